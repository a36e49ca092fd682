"""Values by key: what a request divides them by, and how much of that a host tells.

By process, each process of a host is a part of its own, whatever the value is: a number, a map or a
distribution. Whatever else they are divided by is for the metrics to know, and makes a map of each
value. Either is bounded, and what is not told by itself is told together: the total stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from weft.errors import InvalidArgument
from weft.fleet.folding import OTHERS, Series, SeriesKey, cut, fold, folded, number
from weft.fleet.protocol import MOST_BYTES, MOST_KEYS, MOST_SERIES, Report, short_notes
from weft.mdl import ast
from weft.metrics.grouping import WORDS, By
from weft.model.measured import Value

__all__ = ["PROCESS", "Divided", "bounded", "divided", "fitted", "key_of", "summed_up"]

PROCESS = "process"
"""What the metrics of a process know nothing of."""
_OF_A_HOST = (PROCESS, "thread")
"""Keys that mean nothing without the name of their host."""
_NUMBER = 24
"""How many bytes a number takes in a document, with what is around it."""
UNDIVIDED = "(not divided)"
"""The key for the value of a host that knows nothing of keys."""


def key_of(by: str) -> ast.Expression | None:
    """The expression that something is divided by, if it is none of the words for that.

    Raises an error if nothing can be divided by it.
    """
    if by == PROCESS:
        return None
    try:
        found = By.parse(by)
    except InvalidArgument as error:
        words = ", ".join((PROCESS, *WORDS))
        raise InvalidArgument(error.what, error.why, f"--by {words}, or '$arg[0]'") from None
    return None if by in WORDS else found.key


def bounded(series: Iterable[Series], most: int = MOST_SERIES) -> list[Series]:
    """Keep the largest parts and keys; what is left of each metric is told together."""
    by_key: dict[SeriesKey, list[Series]] = {}
    for one in series:
        by_key.setdefault(one.key, []).append(one)
    room = max(most // max(len(by_key), 1), 1)
    kept: list[Series] = []
    for parts in by_key.values():
        if len(parts) > room:
            parts.sort(key=lambda one: (-number(one.value), one.part))
            parts[room - 1 :] = folded([[replace(one, part=OTHERS) for one in parts[room - 1 :]]])
        kept += parts
    return [_with_most(one) for one in kept]


def _with_most(series: Series) -> Series:
    value = cut(series.value, MOST_KEYS, series.aggregate)
    return series if value is series.value else replace(series, value=value)


def fitted(report: Report) -> Report:
    """Make a report small enough to travel, with as many keys and parts as there is room for."""
    if len(report.encode()) <= MOST_BYTES:
        return report
    room = MOST_BYTES * 3 // 4 // max(len(report.series), 1)
    report = replace(report, series=tuple(_cut_to(one, room) for one in report.series))
    most = MOST_SERIES
    while (excess := len(report.encode()) - MOST_BYTES) > 0 and report.series:
        if most > 1 and any(one.part not in ("", OTHERS) for one in report.series):
            most //= 2
            report = replace(report, series=tuple(bounded(report.series, most)))
            continue
        report = _without_largest(report, excess)
    return report


def _cut_to(series: Series, room: int) -> Series:
    """A series with as many keys as there is room for, in bytes, if it is a map."""
    value = series.value
    if not isinstance(value, dict):
        return series
    few = 0
    for key in sorted(value, key=lambda key: (-value[key], key)):
        room -= len(json.dumps(key)) + _NUMBER
        if room < 0:
            break
        few += 1
    return replace(series, value=cut(value, max(few, 1), series.aggregate))


def _without_largest(report: Report, excess: int) -> Report:
    """A report without what it would be too large with, and that it is so."""
    sizes = {id(one): len(replace(report, series=(one,)).encode()) for one in report.series}
    empty = len(replace(report, series=()).encode())
    by_size = sorted(report.series, key=lambda one: -sizes[id(one)])
    left_out: list[str] = []
    while by_size and excess > 0:
        one = by_size.pop(0)
        excess -= sizes[id(one)] - empty
        left_out.append(f"{one.metric}@{one.focus} is too large to be published")
    kept = {id(one) for one in by_size}
    notes = short_notes([*left_out, *report.notes])
    series = tuple(one for one in report.series if id(one) in kept)
    return replace(report, series=series, notes=notes, complete=False)


@dataclass(frozen=True)
class Divided:
    """A value, and what it is by key."""

    whole: Series
    by: Mapping[str, Value] | None = None
    is_divided: bool = True
    """Whether it is what was asked for: a host of an older version leaves it whole."""


def divided(series: Sequence[Series], by: str) -> list[Divided]:
    """The values of a host, each by its keys, if they are divided by something."""
    if not by:
        return [Divided(one) for one in _wholes(series)]
    if by == PROCESS:
        found = []
        for whole in _wholes(series):
            own = [one for one in series if one.key == whole.key and one.value is not None]
            parts = {one.part or UNDIVIDED: one.value for one in own if one.value is not None}
            found.append(Divided(whole, parts, UNDIVIDED not in parts))
        return found
    return [_of_map(one) for one in _wholes(series)]


def _wholes(series: Sequence[Series]) -> list[Series]:
    return folded([[replace(one, part="") if one.part else one for one in series]])


def _of_map(series: Series) -> Divided:
    value = series.value
    if isinstance(value, dict):
        nothing = 0 if series.aggregate == "sum" else None
        whole = fold(series.aggregate, value.values()) if value else nothing
        return Divided(replace(series, value=whole), {**value})
    return Divided(series, {} if value is None else {UNDIVIDED: value}, is_divided=value is None)


def summed_up(hosts: Mapping[str, Sequence[Divided]], by: str) -> list[Divided]:
    """The values of all hosts, each by its keys, if they are divided by something."""
    wholes = folded([[one.whole for one in some] for some in hosts.values()])
    if not by:
        return [Divided(one) for one in wholes]
    found = []
    for whole in wholes:
        keys: dict[str, list[Value]] = {}
        for host, some in hosts.items():
            for one in some:
                # What is in another unit is no part of the whole.
                if (one.whole.key, one.whole.unit) == (whole.key, whole.unit):
                    for key, value in (one.by or {}).items():
                        name = f"{host}/{key}" if by in _OF_A_HOST else key
                        keys.setdefault(name, []).append(value)
        values = {key: fold(whole.aggregate, some) for key, some in keys.items()}
        found.append(Divided(whole, {k: one for k, one in values.items() if one is not None}))
    return found
