"""Probes: snippets that run inside the target at points of its code.

A :class:`Probe` is made by :meth:`weft.Session.insert`. It measures into memory that weft reads
without stopping anything. What a snippet can say is in the reference of the snippet language.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from weft import _native
from weft.errors import InvalidArgument

__all__ = ["Bucket", "Histogram", "MapValue", "Point", "PointKind", "Probe", "Refusal", "Timer"]

PointKind: TypeAlias = Literal["entry", "exit", "call", "after", "block", "edge", "insn"]
"""Where a function is entered; each way out of it; before and after each call that it makes; the
start of a basic block; a way from one block to another; any instruction."""


@dataclass(frozen=True, slots=True)
class Point:
    """A place in the code of the target: a kind, an address, and whose code it is.

    ``target`` is where an edge leads, and 0 for all other kinds. Points can be compared, hashed and
    kept, but addresses mean nothing in another process.
    """

    kind: PointKind
    address: int
    function: str
    module: str
    target: int = 0

    def __str__(self) -> str:
        place = f"/Code/{self.module}/{self.function}"
        return f"{place} {self.kind} {self.address:#x}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A point at which a probe could not be woven, and why.

    The code there is untouched; the other points of the probe are woven.
    """

    point: Point
    reason: str

    def __str__(self) -> str:
        return f"{self.point}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Bucket:
    """How many values were at least ``low`` and at most ``high``."""

    low: int
    high: int
    count: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """A distribution: the buckets that are not empty, how many values, and their sum.

    The sum is exact, the buckets are as wide as the snippet declared them.
    """

    buckets: tuple[Bucket, ...]
    count: int
    sum: int

    @property
    def mean(self) -> float:
        """The mean of all values; 0 when there is none."""
        return self.sum / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Timer:
    """How long, in nanoseconds, and how often it was stopped.

    The time of wall timers that run right now is included.
    """

    ns: int
    count: int

    @property
    def seconds(self) -> float:
        """The time in seconds."""
        return self.ns / 1e9


MapValue: TypeAlias = "dict[int, int] | dict[tuple[int, int], int]"


class Probe:
    """A snippet in the target, at its points; made by :meth:`weft.Session.insert`.

    ``refused`` are the points where it could not be woven, each with the reason. Values can be read
    at any time while the session lasts, and reading them stops nothing. They are those of the
    target itself: what its forked children measure is kept apart.
    """

    def __init__(self, target: _native.Target, number: int, points: Sequence[Point]) -> None:
        self._target = target
        self._number = number
        self._points = tuple(points)
        self._removed = False
        refused = target.probe_refused(number)
        by_place = {(point.kind, point.address, point.target): point for point in points}
        self.refused: tuple[Refusal, ...] = tuple(
            Refusal(by_place[place], reason) for place, reason in refused
        )

    @property
    def points(self) -> tuple[Point, ...]:
        """The points that were asked for, the refused ones included."""
        return self._points

    @property
    def tactics(self) -> dict[str, int]:
        """How many points were woven in which way: ``jump``, ``neighbours`` or ``hop``."""
        return self._target.probe_tactics(self._number)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what the snippet declares, in its order."""
        return tuple(name for name, _ in self._target.probe_data(self._number))

    def value(self, name: str | None = None) -> int | Timer | Histogram | MapValue:
        """Return a value as it is now; without a name that of the first declaration.

        A counter is a number, summed over all threads and points; a timer is a :class:`Timer`, a
        histogram a :class:`Histogram`, and a map a dictionary from its keys to sums. Rings are read
        with :meth:`records`.
        """
        name, kind = self._datum(name)
        if kind == "counter":
            return sum(self._target.probe_counters(self._number, name))
        if kind == "timer":
            return Timer(*self._target.probe_timer(self._number, name))
        if kind == "histogram":
            buckets, total = self._target.probe_histogram(self._number, name)
            filled = tuple(Bucket(*bucket) for bucket in buckets)
            return Histogram(filled, sum(bucket.count for bucket in filled), total)
        if kind == "map":
            entries, _ = self._target.probe_map(self._number, name)
            return dict(entries)
        raise _wrong_kind(name, kind)

    def values(self, name: str | None = None) -> dict[Point, int]:
        """Return a counter of each point. Points where it could not be woven are left out.

        A ``shared`` counter has no such values: read it with :meth:`value`.
        """
        name, kind = self._datum(name)
        if kind != "counter":
            raise _wrong_kind(name, kind)
        counts = self._target.probe_counters(self._number, name)
        missing = {refusal.point for refusal in self.refused}
        pairs = zip(self._points, counts, strict=True)
        return {point: count for point, count in pairs if point not in missing}

    def records(self, name: str | None = None) -> list[tuple[int, ...]]:
        """Take the records out of a ring that have been written since the last time.

        A record is a tuple of numbers, one for each field. The records of one thread come in their
        order; those of different threads one thread after the other.
        """
        name, kind = self._datum(name, "ring")
        if kind != "ring":
            raise _wrong_kind(name, kind)
        return self._target.probe_records(self._number, name)

    def lost(self, name: str | None = None) -> int:
        """Return how many records a ring, or additions a map, has lost for want of room."""
        name, _ = self._datum(name)
        return self._target.probe_lost(self._number, name)

    def disable(self) -> None:
        """Take the probe out of the code for a while. Its values stay."""
        self._target.set_probe_enabled(self._number, False)

    def enable(self) -> None:
        """Put a disabled probe back."""
        self._target.set_probe_enabled(self._number, True)

    def remove(self) -> None:
        """Take the probe out for good. Its last values can be read until the session ends."""
        if not self._removed:
            self._target.remove_probe(self._number)
            self._removed = True

    def __repr__(self) -> str:
        woven = len(self._points) - len(self.refused)
        state = " removed" if self._removed else ""
        return f"<weft.Probe {', '.join(self.names)} at {woven} points{state}>"

    def _datum(self, name: str | None, kind: str | None = None) -> tuple[str, str]:
        data = self._target.probe_data(self._number)
        for datum in data:
            if name in (None, datum[0]) and kind in (None, datum[1]):
                return datum
        names = ", ".join(name for name, _ in data) or "nothing"
        raise InvalidArgument(f"the probe has no {kind or 'value'} {name!r}", f"it has {names}")


def _wrong_kind(name: str, kind: str) -> InvalidArgument:
    return InvalidArgument(f"{name} is a {kind} and cannot be read like this")
