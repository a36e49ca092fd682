"""weft weaves measurement into running native programs, from Python."""

import importlib
from typing import TYPE_CHECKING

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

if not TYPE_CHECKING:
    _HOMES = {
        "clone": ["CloneStats", "Cloned"],
        "probes": [
            *("Bucket", "Histogram", "Point", "PointKind", "PointSelection"),
            *("Probe", "Refusal", "Timer"),
        ],
        "session": ["Session", "attach", "run"],
    }

    def __getattr__(name: str) -> object:
        # Imported when it is used: commands that need little start sooner for it.
        if name == "errors":
            return importlib.import_module("weft.errors")
        for home, names in _HOMES.items():
            if name in names:
                value = globals()[name] = getattr(importlib.import_module(f"weft.{home}"), name)
                return value
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
