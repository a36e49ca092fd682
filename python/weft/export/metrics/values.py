"""What several formats must know about values: numbers, base units, cumulative buckets."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TypeAlias

from weft.base.numbers import readable
from weft.model.measured import Completeness, Measured, Status, TargetFacts, Value
from weft.model.values import Histogram

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}

_BOUNDS = sorted(
    {bound for power in range(41) for bound in ((1 << power) - 1, (3 << power >> 1) - 1)}
)
"""Two bounds between each power of two and the next: buckets end there, whatever is in them."""
_BASE_UNITS = {
    "ns": ("seconds", 1e9),
    "us": ("seconds", 1e6),
    "ms": ("seconds", 1e3),
    "s": ("seconds", 1),
    "seconds": ("seconds", 1),
    "bytes": ("bytes", 1),
}


def number(value: Value) -> int | float:
    """A value as one number: of a histogram how many values, of a map the sum."""
    if isinstance(value, Histogram):
        return value.count
    if isinstance(value, dict):
        return sum(value.values())
    return value


def trust(completeness: Completeness) -> tuple[Status, float | None, float | None]:
    """What the columns ``status``, ``low`` and ``high`` of a sample say."""
    interval = completeness.interval
    ends = (None, None) if interval is None else (interval.low, interval.high)
    return (completeness.status, *ends)


def by_cause(completeness: Completeness) -> dict[tuple[str, str], int]:
    """How much is missing, by what it is and why: few enough entries to be labels.

    What is missing in a number that is not known counts once.
    """
    causes: Counter[tuple[str, str]] = Counter()
    for one in completeness.missing:
        causes[one.what, one.why] += 1 if one.count is None else one.count
    return dict(causes)


def base_unit(metric: Measured) -> tuple[str, float]:
    """The base unit to export a metric in, and what to divide by to get there.

    That is what both Prometheus and OpenTelemetry ask for: seconds and bytes. The unit is empty
    when the metric counts something else.
    """
    unit = "s" if metric.kind == "timer" else metric.unit
    return _BASE_UNITS.get(unit, ("", 1))


def ends(metric: Measured) -> dict[str, float]:
    """The ends of an estimate's interval in its base unit; of a histogram, in values."""
    interval = metric.completeness.interval
    if interval is None:
        return {}
    divisor = 1.0 if metric.kind == "histogram" else base_unit(metric)[1]
    return {"low": interval.low / divisor, "high": interval.high / divisor}


def cumulative(histogram: Histogram) -> list[tuple[int, int]]:
    """Bounds, and how many values are at most as high as each; in order, without infinity.

    The bounds are the same for all histograms and at all times: those who receive them rely on it.
    """
    rest = sorted((bucket.high, bucket.count) for bucket in histogram.buckets)
    total = place = 0
    bounds = []
    for bound in _BOUNDS:
        while place < len(rest) and rest[place][0] <= bound:
            total += rest[place][1]
            place += 1
        bounds.append((bound, total))
    return bounds


def has_sum(histogram: Histogram) -> bool:
    """Whether its sum only grows, as those want it who receive sums."""
    return all(bucket.low >= 0 for bucket in histogram.buckets)


def exported_value(metric: Measured) -> Value:
    """The value for those who ask again and again: of a rate the newest, not the mean."""
    history = metric.history() if metric.kind == "rate" else []
    return history[-1].value if history else metric.value


class Rising:
    """Values of which it was said that they only grow: an estimate that gets better may fall."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Exporters ask from threads of their own."""
        self._highest: dict[tuple[str, str, str], float] = {}

    def of(self, metric: Measured, value: float, key: str = "") -> float:
        """The value, or the one before if that was higher."""
        if not metric.is_monotonic:
            return value
        place = (metric.name, metric.focus, key)
        with self._lock:
            self._highest[place] = max(value, self._highest.get(place, value))
            return self._highest[place]


@dataclass(frozen=True)
class Subject:
    """Whose metrics are exported.

    What exporters must remember of them is kept here, and so for no longer than they are exported.
    """

    labels: Mapping[str, str]
    """What tells them from those of others: the labels of Prometheus."""
    resource: Mapping[str, str | int | list[str]]
    """What OpenTelemetry calls the resource, by its conventions."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """What tells them from others of the same resource."""
    rising: Rising = field(default_factory=Rising)
    starts: dict[tuple[str, str], int] = field(default_factory=dict)
    """Since when each metric is measured, by its name and focus: nanoseconds since 1970."""

    @classmethod
    def of_process(cls, target: TargetFacts) -> Subject:
        """Return one process, with all of its metrics."""
        return cls(
            {"pid": str(target.pid), "program": readable(target.program)},
            {
                "service.name": readable(target.name),
                "process.pid": target.pid,
                "process.executable.name": readable(PurePath(target.program).name),
                "process.command_args": [readable(argument) for argument in target.command],
            },
        )


Source: TypeAlias = Callable[[], Sequence[tuple[Subject, Sequence[Measured]]]]
"""What to export, for exporters that ask again and again, from threads of their own."""


def in_seconds(metric: Measured) -> tuple[str, float]:
    """The unit of exported data, and what to divide a histogram's numbers by to get there."""
    if metric.kind == "histogram" and metric.unit in _BASE_UNITS:
        unit, divisor = _BASE_UNITS[metric.unit]
        return ("s", divisor) if unit == "seconds" else (metric.unit, 1)
    return metric.unit, 1


def sample_unit(metric: Measured) -> str:
    """What the numbers of samples are in: of a histogram, they say how many values there were."""
    return "values" if metric.kind == "histogram" else metric.unit
