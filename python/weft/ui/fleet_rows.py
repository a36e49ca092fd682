"""The rows of the live view of a fleet: hosts, or hosts by a label; what stands out comes first."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from weft.fleet.folding import SeriesKey, number
from weft.fleet.results import FleetResult, HostResult
from weft.model.measured import Value

__all__ = ["Part", "Place", "Row", "labels", "parts", "rates", "rows"]

NOTHING = "-"
"""The name of those that have no label of the kind."""


@dataclass(frozen=True)
class Place:
    """What of a fleet is looked at: all of it, a host, a process of that, or its stacks."""

    host: str = ""
    process: str = ""
    """Its program and its id."""
    stacks: bool = False

    @property
    def by(self) -> str:
        """What its values are divided by."""
        if self.stacks:
            return "stack"
        return "thread" if self.process else "process"

    @property
    def outer(self) -> Place:
        """What it is a part of."""
        if self.stacks:
            return replace(self, stacks=False)
        return Place(self.host) if self.process else Place()

    def within(self, where: str) -> str:
        """The selector of what it is, of those processes that a selector means."""
        found = f"host={self.host}"
        if self.process:
            found += f" and pid={self.process.rpartition('(')[2].removesuffix(')')}"
        return found if where.strip() == "*" else f"({where}) and {found}"

    def __str__(self) -> str:
        """What a person calls it."""
        names = ["fleet", self.host, self.process, "stacks" if self.stacks else ""]
        return " / ".join(filter(None, names))


@dataclass(frozen=True)
class Part:
    """A process of a host, a thread of a process, or a stack."""

    name: str
    values: Mapping[SeriesKey, Value]
    rates: Mapping[SeriesKey, float]
    """How much each has grown per second."""


@dataclass(frozen=True)
class Row:
    """A host, or all hosts of which a label says the same."""

    name: str
    state: str
    hosts: int
    processes: int
    totals: Mapping[SeriesKey, float]
    rates: Mapping[SeriesKey, float]
    """How much each has grown per second."""
    unlike: float
    """How far its rates are from what is usual, in multiples of the usual difference."""
    complete: bool
    members: tuple[str, ...]


def totals(host: HostResult) -> dict[SeriesKey, float]:
    """The totals of a host, as numbers."""
    return {(one.metric, one.focus): number(one.value) for one in host.totals}


def rates(
    now: FleetResult, before: FleetResult, seconds: float
) -> dict[str, dict[SeriesKey, float]]:
    """How much the totals of each host have grown per second; not of one that is new."""
    old = {one.host: totals(one) for one in before.hosts}
    return {
        one.host: {
            key: max(value - old[one.host].get(key, 0.0), 0.0) / seconds
            for key, value in totals(one).items()
        }
        for one in now.hosts
        if one.host in old and seconds > 0
    }


def labels(found: FleetResult) -> list[str]:
    """The labels that hosts have."""
    return sorted({name for host in found.hosts for name in host.labels})


def rows(
    found: FleetResult,
    grown: Mapping[str, Mapping[SeriesKey, float]],
    by: str = "",
    order: SeriesKey | None = None,
) -> list[Row]:
    """One row for each host, or for each value of a label.

    Those come first whose rates are least like the others'; or with ``order``, the highest rates
    of that.
    """
    groups: dict[str, list[HostResult]] = {}
    for host in found.hosts:
        name = host.labels.get(by, NOTHING) if by else host.host
        groups.setdefault(name, []).append(host)
    own = {
        name: _sums([grown.get(host.host, {}) for host in hosts]) for name, hosts in groups.items()
    }
    unlike = _unlike(own)
    listed = [
        Row(
            name,
            _state(hosts),
            len(hosts),
            sum(host.processes for host in hosts),
            _sums([totals(host) for host in hosts]),
            own[name],
            unlike[name],
            not any(host.notes for host in hosts),
            tuple(host.host for host in hosts),
        )
        for name, hosts in groups.items()
    ]
    if order is not None:
        return sorted(listed, key=lambda row: (-row.rates.get(order, 0.0), row.name))
    return sorted(listed, key=lambda row: (-row.unlike, row.name))


def _sums(several: Sequence[Mapping[SeriesKey, float]]) -> dict[SeriesKey, float]:
    keys = {key for one in several for key in one}
    return {key: sum(one.get(key, 0.0) for one in several) for key in keys}


def _state(hosts: Sequence[HostResult]) -> str:
    states = sorted({host.state for host in hosts})
    return states[0] if len(states) == 1 else ", ".join(states)


def _unlike(grown: Mapping[str, Mapping[SeriesKey, float]]) -> dict[str, float]:
    """By how many times the median deviation each is off the median, in what it is most."""
    found = dict.fromkeys(grown, 0.0)
    for key in {key for one in grown.values() for key in one}:
        values = {name: one.get(key, 0.0) for name, one in grown.items()}
        middle = statistics.median(values.values())
        usual = statistics.median(abs(one - middle) for one in values.values())
        # Where most are the same, any that is not stands out.
        usual = usual or max(abs(middle), 1.0) / 100
        for name, value in values.items():
            found[name] = max(found[name], abs(value - middle) / usual)
    return found


def parts(
    found: FleetResult,
    before: FleetResult | None = None,
    seconds: float = 0.0,
    order: SeriesKey | None = None,
) -> list[Part]:
    """What the values of one host are made of; the most of ``order``, or of the first, come first.

    With ``order`` it is the highest rates.
    """
    now, old = _by_part(found), {} if before is None else _by_part(before)
    listed = []
    for name, values in now.items():
        known = old.get(name, {}) if seconds > 0 and before is not None else None
        grown = {
            key: max(number(value) - number(known.get(key)), 0.0) / seconds
            for key, value in values.items()
            if known is not None
        }
        listed.append(Part(name, values, grown))
    if order is not None:
        return sorted(listed, key=lambda one: (-one.rates.get(order, 0.0), one.name))
    keys = [(one.metric, one.focus) for one in found.totals]
    return sorted(
        listed,
        key=lambda one: ([-number(one.values.get(key)) for key in keys], one.name),
    )


def _by_part(found: FleetResult) -> dict[str, dict[SeriesKey, Value]]:
    values: dict[str, dict[SeriesKey, Value]] = {}
    for host in found.hosts:
        for total in host.totals:
            for name, value in (total.by or {}).items():
                values.setdefault(name, {})[total.metric, total.focus] = value
    return values
