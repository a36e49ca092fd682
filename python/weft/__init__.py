"""weft weaves measurement into running native programs, from Python."""

from weft import errors
from weft._native import __version__
from weft.clone import Cloned, CloneStats
from weft.probes import Bucket, Histogram, Point, PointKind, PointSelection, Probe, Refusal, Timer
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
