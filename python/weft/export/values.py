"""What several formats must know about values: numbers, base units, cumulative buckets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from weft.metrics.model import Measured, TargetFacts, Value
from weft.probes import Histogram

Source: TypeAlias = Callable[[], "tuple[TargetFacts, Sequence[Measured]]"]
"""What to export, for exporters that ask again and again."""

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}

_HIGHEST = (1 << 63) - 1
_POWERS = range(41)
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


def base_unit(metric: Measured) -> tuple[str, float]:
    """The base unit to export a metric in, and what to divide by to get there.

    That is what both Prometheus and OpenTelemetry ask for: seconds and bytes. The unit is empty
    when the metric counts something else.
    """
    unit = "s" if metric.kind == "timer" else metric.unit
    return _BASE_UNITS.get(unit, ("", 1))


def falls(metric: Measured) -> bool:
    """Whether the value has ever become less, as what is in use does: then it is no total.

    An estimate may become less just because it gets better.
    """
    return metric.interval is None and any(sample.change < 0 for sample in metric.history())


def cumulative(histogram: Histogram) -> list[tuple[int, int]]:
    """Bounds, and how many values are at most as high as each; in order, without infinity.

    Those who receive it want the same bounds each time. So a log2 histogram has a bound at each
    power of two up to ``2**40``, in addition to those that are needed; of a linear one only the
    buckets that are not empty are known.
    """
    added: dict[int, int] = {bucket.high: bucket.count for bucket in histogram.buckets}
    if all(_is_log2(bucket.low, bucket.high) for bucket in histogram.buckets):
        added |= {bound: added.get(bound, 0) for bound in ((1 << power) - 1 for power in _POWERS)}
    added.pop(_HIGHEST, None)
    total = 0
    bounds = []
    for bound, count in sorted(added.items()):
        total += count
        bounds.append((bound, total))
    return bounds


def _is_log2(low: int, high: int) -> bool:
    return low < 0 > high or low == high == 0 or (low & (low - 1) == 0 and high == 2 * low - 1)


def readable(text: str) -> str:
    """A text with what is not Unicode replaced: names of programs may be any bytes."""
    return text.encode(errors="replace").decode()
