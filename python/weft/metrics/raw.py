"""Values as probes have them: one minus another, several as one, and as one number."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from weft.mdl.plan import Plan
from weft.model.values import Histogram, Key, MapValue, Timer

__all__ = ["Raw", "combine", "less", "number"]

Raw: TypeAlias = "int | Timer | Histogram | MapValue"
"""A value as probes have it."""


def less(raw: Raw, first: Raw | None) -> Raw:
    """A value without what it was before."""
    if isinstance(raw, int) and isinstance(first, int):
        return raw - first
    if isinstance(raw, Timer) and isinstance(first, Timer):
        return raw - first
    if isinstance(raw, Histogram) and isinstance(first, Histogram):
        return raw - first
    if isinstance(raw, dict) and isinstance(first, dict):
        rest = {key: value - first.get(key, 0) for key, value in raw.items()}
        return {key: value for key, value in rest.items() if value}
    return raw


def number(raw: Raw) -> float:
    """The total that a value comes to: of histograms the count, of maps the sum."""
    if isinstance(raw, Timer):
        return raw.seconds
    if isinstance(raw, Histogram):
        return raw.count
    if isinstance(raw, dict):
        return sum(raw.values())
    return raw


def combine(values: list[Raw], operator: str, plan: Plan) -> Raw:
    """Several threads' or processes' values as one."""
    if not values:
        return {
            "counter": 0,
            "timer": Timer(0, 0),
            "histogram": Histogram((), 0, 0),
            "map": {},
            "ring": 0,
        }[plan.kind]  # type: ignore[return-value]
    if operator in ("min", "max"):
        pick = min if operator == "min" else max
        return pick(values, key=number)
    if all(isinstance(value, int) for value in values):
        return sum(value for value in values if isinstance(value, int))
    if isinstance(values[0], Timer):
        return sum((value for value in values if isinstance(value, Timer)), Timer(0, 0))
    if isinstance(values[0], Histogram):
        histograms = (value for value in values if isinstance(value, Histogram))
        return sum(histograms, Histogram((), 0, 0))
    sums: Counter[Key | tuple[Key, Key]] = Counter()
    for value in values:
        if isinstance(value, dict):
            sums.update(value)
    return dict(sums)
