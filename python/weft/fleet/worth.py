"""What a host knows of a series beside its value: what sinks are told, and what does not travel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from weft.export.metrics.values import by_cause, exported_value, number
from weft.model.completeness import Completeness, Interval, Missing
from weft.model.measured import Measured, MetricKind, Shed, Value

__all__ = ["Worth", "of_metric", "together"]

_MOST_CAUSES = 20


@dataclass(frozen=True, slots=True)
class Worth:
    """What kind of value it is, and how far it can be relied on."""

    title: str
    kind: MetricKind
    is_monotonic: bool
    completeness: Completeness
    """Without the places that something is missing of: there may be thousands."""
    shed: Shed | None = None
    """What was shed of it, where least of it is measured."""
    newest: Value | None = None
    """Of a rate what it was last; nothing of a process in which it is measured no more."""


def of_metric(metric: Measured, *, is_over: bool) -> Worth:
    """What is known of a metric of one process; ``is_over`` if it is measured no more."""
    completeness = metric.completeness
    return Worth(
        metric.title,
        metric.kind,
        metric.is_monotonic,
        replace(completeness, missing=_missing([completeness])),
        metric.shed,
        exported_value(metric) if metric.kind == "rate" and not is_over else None,
    )


def together(
    parts: Sequence[tuple[Worth, Value | None]], aggregate: str, others: Iterable[Missing] = ()
) -> Worth:
    """What is known of several values as one; ``others`` are missing from that."""
    first = parts[0][0]
    known = [one for one, _ in parts]
    missing = _missing([*(one.completeness for one in known), Completeness(None, (*others,))])
    newest = [one.newest for one in known if isinstance(one.newest, int | float)]
    return Worth(
        first.title,
        first.kind,
        # A process that comes may have less than the least until then.
        aggregate != "min" and all(one.is_monotonic for one in known),
        Completeness(_interval(parts, aggregate), missing),
        min((one.shed for one in known if one.shed), key=lambda one: one.share, default=None),
        _as_one(aggregate, newest) if newest else None,
    )


def _interval(parts: Sequence[tuple[Worth, Value | None]], aggregate: str) -> Interval | None:
    """Where the true value is if that of each is where it is said to be."""
    intervals = [one.completeness.interval for one, _ in parts]
    estimates = [one for one in intervals if one is not None]
    if not estimates:
        return None
    exact = [
        float(number(value))
        for (_, value), interval in zip(parts, intervals, strict=True)
        if interval is None and value is not None
    ]
    low = _as_one(aggregate, [*exact, *(one.low for one in estimates)])
    high = _as_one(aggregate, [*exact, *(one.high for one in estimates)])
    return Interval(low, high, min(one.confidence for one in estimates))


def _as_one(aggregate: str, numbers: Sequence[float]) -> float:
    if aggregate == "sum":
        return sum(numbers)
    return min(numbers) if aggregate == "min" else max(numbers)


def _missing(parts: Sequence[Completeness]) -> tuple[Missing, ...]:
    """What is missing from any of them, by cause; if there are many causes, the first."""
    causes: Counter[tuple[str, str]] = Counter()
    for one in parts:
        causes.update(by_cause(one))
    found = [Missing(what, "", why, count) for (what, why), count in causes.items()]
    rest = sum(one.count or 0 for one in found[_MOST_CAUSES:])
    if rest:
        found[_MOST_CAUSES:] = [Missing("others", "", "for other reasons", rest)]
    return tuple(found)
