"""What the values of metrics are in."""

from __future__ import annotations

from collections.abc import Mapping

from weft.mdl import ast
from weft.mdl.passes.scope import is_timed
from weft.metrics.grouping import By
from weft.model.measured import MetricKind

__all__ = ["TIMERS", "scale_of", "unit_of"]

TIMERS = ("wallTimer", "processTimer")

_UNITS: Mapping[str, str] = {"opsPerSecond": "operations", "seconds": "s", "nanoseconds": "ns"}
"""Units of the paper that say how a metric is shown, and what its total is in."""

_SECONDS: Mapping[str, float] = {"ns": 1e-9, "nanoseconds": 1e-9, "us": 1e-6, "ms": 1e-3}


def unit_of(definition: ast.Metric, kind: MetricKind, by: By | None) -> str:
    """Return what the total of a metric is counted in."""
    type_ = definition.base.type
    if type_ in TIMERS:
        return "s"
    if by is not None and type_ == "histogram":
        return "values"
    units = definition.units
    if not units:
        is_time = kind == "histogram" and is_timed(definition.base.body)
        return "ns" if is_time else ""
    unit = _UNITS.get(units, units)
    if scale_of(definition, by) != 1.0:
        unit = "s"
    return f"{unit}/s" if kind == "rate" else unit


def scale_of(definition: ast.Metric, by: By | None) -> float:
    """Return what a number of the target is in the metric's unit: times are in seconds."""
    type_ = definition.base.type
    if by is not None and type_ in TIMERS:
        return 1e-9
    if type_ in (*TIMERS, "histogram"):
        return 1.0
    return _SECONDS.get(definition.units, 1.0)
