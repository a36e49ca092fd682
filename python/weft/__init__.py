"""weft weaves measurement into running native programs, from Python."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft import errors
    from weft._native import __version__
    from weft.clone import Cloned
    from weft.control.clone import CloneStats
    from weft.control.kept import KeptClone, KeptClones
    from weft.control.probes import Probe
    from weft.fleet.blocking import Fleet
    from weft.fleet.front import AsyncFleet
    from weft.model.completeness import Completeness, Interval, Missing
    from weft.model.points import Point, PointKind, PointSelection, Refusal
    from weft.model.stacks import Stack, StackFrame
    from weft.model.values import Bucket, Histogram, Timer
    from weft.sampling import SampledProfile, sample
    from weft.session import Session
    from weft.starting import attach, run

__all__ = [
    "AsyncFleet",
    "Bucket",
    "CloneStats",
    "Cloned",
    "Completeness",
    "Fleet",
    "Histogram",
    "Interval",
    "KeptClone",
    "KeptClones",
    "Missing",
    "Point",
    "PointKind",
    "PointSelection",
    "Probe",
    "Refusal",
    "SampledProfile",
    "Session",
    "Stack",
    "StackFrame",
    "Timer",
    "__version__",
    "attach",
    "errors",
    "run",
    "sample",
]

_HOMES = {
    "AsyncFleet": "weft.fleet.front",
    "Fleet": "weft.fleet.blocking",
    "CloneStats": "weft.control.clone",
    **dict.fromkeys(["Completeness", "Interval", "Missing"], "weft.model.completeness"),
    **dict.fromkeys(["attach", "run"], "weft.starting"),
    "Cloned": "weft.clone",
    **dict.fromkeys(["KeptClone", "KeptClones"], "weft.control.kept"),
    "Session": "weft.session",
    **dict.fromkeys(["Point", "PointKind", "PointSelection", "Refusal"], "weft.model.points"),
    **dict.fromkeys(["Bucket", "Histogram", "Timer"], "weft.model.values"),
    **dict.fromkeys(["Stack", "StackFrame"], "weft.model.stacks"),
    **dict.fromkeys(["SampledProfile", "sample"], "weft.sampling"),
    "Probe": "weft.control.probes",
    "__version__": "weft._native",
}


if not TYPE_CHECKING:  # a checker would believe that everything is there

    def __getattr__(name: str) -> Any:
        """Load what is asked for: the command line handles signals before it loads anything."""
        if name not in __all__:
            raise AttributeError(f"module 'weft' has no attribute {name!r}")
        if name == "errors":
            return import_module("weft.errors")
        found = getattr(import_module(_HOMES[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return __all__
