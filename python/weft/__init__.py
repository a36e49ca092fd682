"""weft weaves measurement into running native programs, from Python."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft import errors
    from weft._native import __version__
    from weft.clone import Cloned, CloneStats
    from weft.completeness import Completeness, Interval, Missing
    from weft.probes import (
        Bucket,
        Histogram,
        Point,
        PointKind,
        PointSelection,
        Probe,
        Refusal,
        Timer,
    )
    from weft.session import Session, attach, run

__all__ = [
    "Bucket",
    "CloneStats",
    "Cloned",
    "Completeness",
    "Histogram",
    "Interval",
    "Missing",
    "Point",
    "PointKind",
    "PointSelection",
    "Probe",
    "Refusal",
    "Session",
    "Timer",
    "__version__",
    "attach",
    "errors",
    "run",
]

_HOMES = {
    **dict.fromkeys(["CloneStats", "Cloned"], "weft.clone"),
    **dict.fromkeys(["Completeness", "Interval", "Missing"], "weft.completeness"),
    **dict.fromkeys(["Session", "attach", "run"], "weft.session"),
    "__version__": "weft._native",
}


if not TYPE_CHECKING:  # a checker would believe that everything is there

    def __getattr__(name: str) -> Any:
        """Load what is asked for: the command line handles signals before it loads anything."""
        if name not in __all__:
            raise AttributeError(f"module 'weft' has no attribute {name!r}")
        if name == "errors":
            return import_module("weft.errors")
        found = getattr(import_module(_HOMES.get(name, "weft.probes")), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return __all__
