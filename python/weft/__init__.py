"""weft weaves measurement into running native programs, from Python."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft._native import __version__

if TYPE_CHECKING:
    from weft import errors
    from weft.clone import Cloned, CloneStats
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
    "Histogram",
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

# Where each name lives. They are imported when they are asked for: a command that runs a program
# must not keep it waiting for what it does not need.
_HOMES = {
    "CloneStats": "weft.clone",
    "Cloned": "weft.clone",
    "Session": "weft.session",
    "attach": "weft.session",
    "run": "weft.session",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'weft' has no attribute {name!r}")
        if name == "errors":
            return import_module("weft.errors")
        value = getattr(import_module(_HOMES.get(name, "weft.probes")), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
