"""Probes: snippets that run inside the target at points of its code.

A :class:`Probe` is made by :meth:`weft.Session.insert`. It measures into memory that weft reads
without stopping anything. What a snippet can say is in the reference of the snippet language.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft import _native
from weft.control.libraries import Arrivals, Reload, loaded_again
from weft.control.stack_keys import TakenStacks
from weft.control.texts import Texts, kinds
from weft.errors import AlreadyTraced, InvalidArgument
from weft.model.completeness import Completeness, Missing
from weft.model.points import (
    Point,
    Process,
    Refusal,
    refused_points,
    unseen_points,
)
from weft.model.values import HIGHEST, LOWEST, Bucket, Histogram, Key, MapValue, Timer

__all__ = ["Probe", "refuse_anothers", "remove_all"]

_CHANGED = "the code has changed since weft has read it"


def refuse_anothers(what: str, probes: Iterable[Probe]) -> None:
    """Raise an error if nothing could be woven because all of it is another weft's."""
    probes = list(probes)
    refused = [refusal for probe in probes for refusal in probe.refused]
    anothers = [refusal for refusal in refused if refusal.is_anothers]
    if anothers and len(refused) == sum(len(probe.points) for probe in probes):
        reason = anothers[0].reason
        advice = "end that one first, or measure other functions: a function has one owner"
        if "was killed" in reason:
            advice = "measure it in a clone (--weaver clone), or when that thread has gone on"
        raise AlreadyTraced(f"{what} cannot be measured", reason, advice)


@dataclass(slots=True)
class Part:
    """What was woven in one go: a probe grows when modules are loaded."""

    target: _native.Target
    number: int
    points: tuple[Point, ...]
    uncertain: tuple[Point, ...]
    stacks: TakenStacks = field(default_factory=TakenStacks)
    never_woven: frozenset[Point] = field(init=False)
    """The points that were refused at once, and have no values."""
    _refused: tuple[Refusal, ...] = ()
    _refusals: int = -1
    """How often the core had refused a point when it was last asked which ones."""

    def __post_init__(self) -> None:
        self.never_woven = frozenset(refusal.point for refusal in self.refused)

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """Where it could not be woven.

        That can be more than when it was inserted: a probe that is enabled again, or shares a
        function with one that came later, is woven anew.
        """
        refusals = self.target.refusals()
        if refusals != self._refusals:
            by_place = {(point.kind, point.address, point.target): point for point in self.points}
            rows = self.target.probe_refused(self.number)
            self._refused = tuple(Refusal(by_place[place], reason) for place, reason in rows)
            self._refusals = refusals
        return self._refused


class Probe:
    """A snippet in the target, at its points; made by :meth:`weft.Session.insert`.

    Values can be read at any time, also when the probe is removed or the target has ended, and
    reading them stops nothing. They are those of the target itself: what its forked children
    measure is kept apart, see :meth:`processes`.
    """

    def __init__(
        self,
        target: _native.Target,
        number: int,
        points: Sequence[Point],
        uncertain: Iterable[Point] = (),
        forgotten: deque[tuple[_native.Target, int]] | None = None,
        reloads: Callable[[], Sequence[Reload]] = tuple,
    ) -> None:
        self._parts: list[Part] = []
        self._retired: set[int] = set()
        self._arrivals = Arrivals()
        """Modules that came since, and were woven."""
        self._reloads = reloads
        self._last_reloads: Sequence[Reload] = ()
        self._began = time.monotonic()
        self._ended: float | None = None
        self._removed = False
        self._forgotten = forgotten
        """Where to leave what the compiled core need not keep any longer."""
        self._grow(target, number, points, uncertain)

    def _grow(
        self,
        target: _native.Target,
        number: int,
        points: Sequence[Point],
        uncertain: Iterable[Point],
    ) -> None:
        self._parts.append(Part(target, number, tuple(points), tuple(uncertain)))
        if any(kind == "stacks" for _, kind in target.probe_data(number)):
            self._newest.stacks.see(target)

    @property
    def _newest(self) -> Part:
        """What was woven last."""
        return self._parts[-1]

    @property
    def _never_woven(self) -> set[Point]:
        """The points that have no values."""
        return {point for part in self._parts for point in part.never_woven}

    @property
    def points(self) -> tuple[Point, ...]:
        """The points that were asked for, the refused ones included."""
        return tuple(point for part in self._parts for point in part.points)

    @property
    def calls_program(self) -> bool:
        """Whether its snippet calls functions of the program, which is not possible in a clone."""
        return any(part.target.probe_calls_program(part.number) for part in self._parts)

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """The points where it could not be woven, each with the reason."""
        return tuple(refusal for part in self._parts for refusal in part.refused)

    @property
    def completeness(self) -> Completeness:
        """Whether its values contain all that they say to, and what is missing if not.

        That is about points: what was refused, what cannot be seen, and libraries that were loaded
        while it was there. What a ring or a map has lost for want of room is told by :meth:`lost`,
        and of too many threads :attr:`is_crowded`.
        """
        unseen = ((point, "") for point in self.uncertain)
        missing = (*refused_points(self.refused), *unseen_points(unseen))
        return Completeness(None, (*missing, *self._arrivals.missing(), *self._reloaded()))

    def _reloaded(self) -> list[Missing]:
        """What was loaded again while it was there, so that it was there no longer."""
        points, times = self.points, Counter[str]()
        reloads = self._reloads() if self._ended is None else self._last_reloads
        for reload in reloads:
            if reload.seen > self._began and (self._ended is None or reload.seen <= self._ended):
                times.update({point.module for point in points if reload.has(point.address)})
        advice = "" if self._removed else "look more often: session.refresh()"
        return [loaded_again(module, count, advice) for module, count in sorted(times.items())]

    @property
    def uncertain(self) -> tuple[Point, ...]:
        """Instructions of its functions behind which there may be points that it does not have.

        See :meth:`weft.Session.uncertain`. A probe at points of your own choice has none.
        """
        return tuple(point for part in self._parts for point in part.uncertain)

    @property
    def tactics(self) -> dict[str, int]:
        """How many points were woven in which way.

        ``jump``, ``neighbours``, ``hop`` or ``relocated``: see "How weaving works".
        """
        total: Counter[str] = Counter()
        for part in self._parts:
            total.update(part.target.probe_tactics(part.number))
        return dict(total)

    @property
    def numbers(self) -> tuple[int, ...]:
        """What the compiled core calls it: a number for each time that it has grown."""
        return tuple(part.number for part in self._parts)

    @property
    def active_numbers(self) -> tuple[int, ...]:
        """The same, of what may be in the code."""
        return tuple(number for number in self.numbers if number not in self._retired)

    @property
    def _not_there(self) -> set[Point]:
        """The newest points that were gone when they were to be woven, as libraries go."""
        return {one.point for one in self._newest.refused if one.reason == _CHANGED}

    def _retire(self, is_new: Callable[[Point], bool]) -> set[Point]:
        """Take out for good what was woven together with points that are new now.

        In a clone it may still be there, and would count together with what is woven next. Return
        all points that it was at.
        """
        gone: set[Point] = set()
        for part in self._parts:
            if part.number not in self._retired and any(map(is_new, part.points)):
                part.target.set_probes_enabled([part.number], False)
                self._retired.add(part.number)
                gone.update(part.points)
        return gone

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what the snippet declares, in its order."""
        return tuple(name for name, _ in self._data())

    @property
    def is_removed(self) -> bool:
        """Whether it was taken out for good."""
        return self._removed

    def processes(self) -> list[int]:
        """Return the processes that have measured something: the target, and children it forked.

        A child is named by the id that it has in its own PID namespace. Of hundreds of children,
        those that have ended are no longer told apart: what they measured is in the value of all.
        """
        return sorted({pid for part in self._parts for pid in part.target.probe_processes()})

    def threads(self) -> list[tuple[int, int]]:
        """Return the threads that have measured something: of each its process, and its own id.

        Threads are named by the ids that they have in their own PID namespace. A thread that has
        ended, and one that was started later with the same stack, count as one; in a clone only
        when about 500 have measured.
        """
        return sorted({pair for part in self._parts for pair in part.target.probe_threads()})

    @property
    def is_crowded(self) -> bool:
        """Whether more threads have measured at a time than there is room for.

        There is room for about a thousand threads, those of children included. What comes beyond
        shares a place, and the values of the target may be too low.
        """
        return any(part.target.is_probe_crowded(part.number) for part in self._parts)

    def value(
        self, name: str | None = None, *, process: Process = None, thread: int | None = None
    ) -> int | Timer | Histogram | MapValue:
        """Return a value as it is now; without a name that of the first declaration.

        A counter is a number, summed over all threads and points; a timer is a :class:`Timer`, a
        histogram a :class:`Histogram`, and a map a dictionary from its keys to sums. Rings are read
        with :meth:`records`. ``process`` asks for the value of a forked child, ``thread`` for that
        of one thread: see :meth:`processes` and :meth:`threads`. ``process="all"`` asks for the sum
        over the target and all its children, also of those that have ended.
        """
        name, kind = self._datum(name)
        process = process_number(process, thread)
        if kind == "counter":
            return sum(
                sum(part.target.probe_counters(part.number, name, process, thread))
                for part in self._parts
            )
        if kind == "timer":
            times = [
                part.target.probe_timer(part.number, name, process, thread) for part in self._parts
            ]
            return Timer(sum(ns for ns, _ in times), sum(count for _, count in times))
        if kind == "histogram":
            return self._histogram(name, process, thread)
        if kind == "map":
            sums: Counter[Key | tuple[Key, Key]] = Counter()
            for part in self._parts:
                entries, _ = part.target.probe_map(part.number, name, process, thread)
                columns = kinds(part.target, part.number, name)
                if any(columns):
                    texts = Texts(part.target, part.stacks)
                    for key, value in entries:
                        words = key if isinstance(key, tuple) else (key,)
                        row = texts.row(columns, words)
                        sums[row[0] if len(row) == 1 else (row[0], row[1])] += value
                else:
                    sums.update(dict(entries))
            return dict(sums)
        raise _wrong_kind(name, kind)

    def _histogram(self, name: str, process: int | None, thread: int | None) -> Histogram:
        counts: Counter[tuple[int, int]] = Counter()
        total = 0
        for part in self._parts:
            buckets, part_sum = part.target.probe_histogram(part.number, name, process, thread)
            total += part_sum
            for low, high, count in buckets:
                # Seen as signed, as the sum is, the last of the log2 buckets has the negative ones.
                is_negative = (low, high) == (LOWEST, HIGHEST)
                counts[low, -1 if is_negative else high] += count
        filled = tuple(Bucket(low, high, count) for (low, high), count in sorted(counts.items()))
        return Histogram(filled, sum(bucket.count for bucket in filled), total)

    def values(
        self, name: str | None = None, *, process: Process = None, thread: int | None = None
    ) -> dict[Point, int]:
        """Return a counter of each point. Points where it was never woven are left out.

        A ``shared`` counter has no such values: read it with :meth:`value`, which also says what
        ``process`` and ``thread`` are.
        """
        name, kind = self._datum(name)
        if kind != "counter":
            raise _wrong_kind(name, kind)
        process = process_number(process, thread)
        values: dict[Point, int] = {}
        for part in self._parts:
            counts = part.target.probe_counters(part.number, name, process, thread)
            if len(counts) != len(part.points):
                raise InvalidArgument(
                    f"{name} is shared by all points", advice="read it with value()"
                )
            for point, count in zip(part.points, counts, strict=True):
                # A library that came back to the same place has the same points again.
                if point not in part.never_woven:
                    values[point] = values.get(point, 0) + count
        return values

    def records(self, name: str | None = None) -> list[tuple[Any, ...]]:
        """Take the records out of a ring that have been written since the last time.

        A record is a tuple of numbers, texts and stacks, one for each field. The records of one
        thread come in their order; those of different threads one thread after the other.
        """
        name, kind = self._datum(name, "ring")
        if kind != "ring":
            raise _wrong_kind(name, kind)
        found: list[tuple[Any, ...]] = []
        for part in self._parts:
            records = part.target.probe_records(part.number, name)
            columns = kinds(part.target, part.number, name)
            if records and any(columns):
                texts = Texts(part.target, part.stacks)
                found += [texts.row(columns, record) for record in records]
            else:
                found += records
        return found

    def lost(self, name: str | None = None) -> int:
        """Return how many records a ring, or additions a map, has lost for want of room.

        Of a timer or a mark, return how many calls did not return, so that their time is lost.
        """
        name, _ = self._datum(name)
        return sum(part.target.probe_lost(part.number, name) for part in self._parts)

    def disable(self) -> None:
        """Take the probe out of the code for a while. Its values stay."""
        for part in self._parts:
            part.target.set_probes_enabled([part.number], False)

    def enable(self) -> None:
        """Put a disabled probe back."""
        for part in self._parts:
            if part.number in self._retired:
                continue
            part.target.set_probes_enabled([part.number], True)

    def remove(self) -> None:
        """Take the probe out for good. Its last values can still be read."""
        remove_all([self])

    def _be_over(self) -> None:
        """Take note of when the probe is taken out, and of what there is until then."""
        self._last_reloads = tuple(self._reloads())
        self._ended = time.monotonic()

    def _be_removed(self) -> None:
        """Take note that the probe was taken out."""
        self._removed = True
        if self._forgotten is not None:
            # Its values can be read for as long as there is a probe to ask. It ends at any
            # moment, also within a call of the core: so it is only noted then.
            parts = [(part.target, part.number) for part in self._parts]
            weakref.finalize(self, self._forgotten.extend, parts).atexit = False

    def __repr__(self) -> str:
        woven = len(self.points) - len(self.refused)
        state = " removed" if self._removed else ""
        return f"<weft.Probe {', '.join(self.names)} at {woven} points{state}>"

    def _data(self) -> list[tuple[str, str]]:
        first = self._parts[0]
        # Where texts and stacks are kept is no value.
        data = first.target.probe_data(first.number)
        return [one for one in data if one[1] not in ("texts", "stacks")]

    def _datum(self, name: str | None, kind: str | None = None) -> tuple[str, str]:
        data = self._data()
        for datum in data:
            if name in (None, datum[0]) and kind in (None, datum[1]):
                return datum
        names = ", ".join(name for name, _ in data) or "nothing"
        raise InvalidArgument(f"the probe has no {kind or 'value'} {name!r}", f"it has {names}")


def remove_all(probes: Iterable[Probe]) -> None:
    """Take probes out for good, those of a target in one stop."""
    there = [probe for probe in probes if not probe.is_removed]
    numbers: dict[_native.Target, list[int]] = {}
    for probe in there:
        probe._be_over()
        for part in probe._parts:
            numbers.setdefault(part.target, []).append(part.number)
    for target, found in numbers.items():
        target.remove_probes(found)
    for probe in there:
        probe._be_removed()


def process_number(process: Process, thread: int | None) -> int | None:
    """Return what the compiled core calls it: 0, which is no process, stands for all."""
    if process != "all":
        return process
    if thread is not None:
        raise InvalidArgument("a thread is one process's", advice="name its process, or none")
    return 0


def _wrong_kind(name: str, kind: str) -> InvalidArgument:
    return InvalidArgument(f"{name} is a {kind} and cannot be read like this")
