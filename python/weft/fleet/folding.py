"""Values of many processes as one, and what many reports come to.

What travels is cumulative: a report says all that a host has measured for a request since it has
started. So of two reports of the same start of the same host the newer counts, and neither lost,
nor repeated, nor late ones change a total. :func:`merged` is commutative, associative, idempotent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias, TypeVar

from weft.fleet.worth import Worth, together
from weft.model.completeness import Interval, Missing, Status, status_of
from weft.model.measured import Value
from weft.model.values import Histogram

__all__ = [
    "OTHERS",
    "Aggregate",
    "Ordered",
    "Series",
    "SeriesKey",
    "cut",
    "fold",
    "folded",
    "merged",
    "number",
]

Aggregate: TypeAlias = Literal["sum", "min", "max"]
"""What makes one value of several: the ``aggregateOperator`` of a metric."""

SeriesKey: TypeAlias = "tuple[str, str]"
"""A metric and its focus, as they were asked for."""

OTHERS = "(others)"
"""The key for what is left of a map that is too large."""


@dataclass(frozen=True, slots=True)
class Series:
    """What a metric came to, of one process or of several."""

    metric: str
    focus: str
    unit: str
    value: Value | None
    """Nothing if there is none: the least of no values."""
    aggregate: Aggregate = "sum"
    complete: bool = True
    part: str = ""
    """The process that it is of, if values are told by process."""
    interval: Interval | None = None
    """Where its number is, if that is an estimate and nothing is missing."""
    worth: Worth | None = None
    """What its host knows of it beside; that does not travel."""

    @property
    def key(self) -> SeriesKey:
        """Which metric and which focus it is of."""
        return self.metric, self.focus

    @property
    def status(self) -> Status:
        """``exact``, ``estimate`` or ``incomplete``."""
        return status_of(self.interval, is_exact=self.complete)


def fold(aggregate: Aggregate, values: Iterable[Value | None]) -> Value | None:
    """Make one value of several, in whichever order they come. Nothing if they are no kin."""
    there = [one for one in values if one is not None]
    if not there:
        return None
    if len(there) == 1:
        return there[0]
    if all(isinstance(one, Histogram) for one in there):
        return Histogram.total([one for one in there if isinstance(one, Histogram)])
    if all(isinstance(one, dict) for one in there):
        return _by_key(aggregate, [one for one in there if isinstance(one, dict)])
    numbers = [one for one in there if isinstance(one, int | float)]
    return _one_number(aggregate, numbers) if len(numbers) == len(there) else None


def _one_number(aggregate: Aggregate, numbers: Sequence[int | float]) -> int | float:
    """One number of several: exact, or the nearest there is, in whichever order they come."""
    if aggregate == "sum":
        return sum(numbers) if all(isinstance(one, int) for one in numbers) else math.fsum(numbers)
    return min(numbers) if aggregate == "min" else max(numbers)


def _by_key(
    aggregate: Aggregate, maps: Sequence[Mapping[str, int | float]]
) -> dict[str, int | float]:
    found: dict[str, list[int | float]] = {}
    for one in maps:
        for key, value in one.items():
            found.setdefault(key, []).append(value)
    return {key: _one_number(aggregate, found[key]) for key in sorted(found)}


def cut(value: Value | None, most: int, aggregate: Aggregate = "sum") -> Value | None:
    """Keep the largest keys of a map, and all others as one more: its total stays."""
    if not isinstance(value, dict) or len(value) <= most:
        return value
    kept = dict(sorted(value.items(), key=lambda item: (-item[1], item[0]))[: most - 1])
    rest = [one for key, one in value.items() if key not in kept or key == OTHERS]
    kept[OTHERS] = _one_number(aggregate, rest)
    return kept


def number(value: Value | None) -> int | float:
    """A value as one number: of a distribution how many there were, of a map their sum."""
    if isinstance(value, Histogram):
        return value.count
    if isinstance(value, dict):
        return _one_number("sum", [*value.values()])
    return value or 0


def folded(parts: Iterable[Sequence[Series]]) -> list[Series]:
    """Fold the series of several processes, or hosts, by metric, focus and part; in their order.

    One that has another unit elsewhere cannot be added, and is incomplete then.
    """
    by_key: dict[tuple[SeriesKey, str], list[Series]] = {}
    for some in parts:
        for one in some:
            by_key.setdefault((one.key, one.part), []).append(one)
    return [_one(by_key[key]) for key in sorted(by_key)]


def _one(parts: Sequence[Series]) -> Series:
    if len(parts) == 1 and parts[0].worth is None:
        return parts[0]
    # The unit that most have; of several, the first by name: no order of arrival decides. What
    # could not be measured has none.
    valued = [one for one in parts if one.value is not None] or parts
    kinds = [(one.unit, one.aggregate) for one in valued]
    unit, aggregate = min(set(kinds), key=lambda kind: (-kinds.count(kind), kind))
    same = [one for one in valued if (one.unit, one.aggregate) == (unit, aggregate)]
    value = fold(aggregate, [one.value for one in same])
    is_lost = value is None and any(one.value is not None for one in same)
    complete = all(one.complete for one in parts) and len(same) == len(valued) and not is_lost
    worths = [(one.worth, one.value) for one in same if one.worth is not None]
    worth = None
    if worths:
        odd = len(valued) - len(same)
        others = [Missing("values of processes", "", "they have another unit", odd)] if odd else []
        if failed := sum(one.value is None and not one.complete for one in parts):
            others.append(Missing("values of processes", "", "there is none of some", failed))
        worth = together(worths, aggregate, others)
    is_known = aggregate == "sum" and len(same) == len(valued) and not is_lost
    return replace(
        parts[0],
        unit=unit,
        aggregate=aggregate,
        value=value,
        complete=complete,
        interval=_interval(parts) if is_known and not complete else None,
        worth=worth,
    )


def _interval(parts: Sequence[Series]) -> Interval | None:
    """Where the sum of several is, of which some are estimates; nothing if anything is missing.

    It is at least as sure as theirs: they are not all off by as much, in the same direction.
    """
    if any(one.status == "incomplete" for one in parts):
        return None
    known = [one.interval for one in parts if one.interval is not None]
    exact = [number(one.value) for one in parts if one.interval is None]
    return Interval(
        math.fsum([*exact, *(one.low for one in known)]),
        math.fsum([*exact, *(one.high for one in known)]),
        min(one.confidence for one in known),
    )


class Ordered(Protocol):
    """Something of which there are newer and older ones."""

    @property
    def seq(self) -> int:
        """Which it is: of a newer one it is higher."""

    def encode(self) -> bytes:
        """What decides between two that have the same; the same only of what is the same."""


_Key = TypeVar("_Key")
_Report = TypeVar("_Report", bound=Ordered)


def merged(first: Mapping[_Key, _Report], second: Mapping[_Key, _Report]) -> dict[_Key, _Report]:
    """Keep the newest of each key."""
    found = dict(first)
    for key, report in second.items():
        if key not in found or _is_older(found[key], report):
            found[key] = report
    return found


def _is_older(one: Ordered, other: Ordered) -> bool:
    if one.seq != other.seq:
        return one.seq < other.seq
    return one.encode() < other.encode()
