"""Who waits for whom: the locks that threads wait for, who holds them, and where."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from weft.base.numbers import quantity
from weft.model.sampled import HeldWait, Lock, PlaceTime, SampledTime, ThreadState
from weft.model.stacks import StackFrame
from weft.model.waits import Holder

__all__ = ["Contention", "HeldTime", "LockTime", "Site", "contention", "own_frame", "thread_group"]

_SYSTEM = ("libc.", "libc-", "ld-", "ld.", "libpthread", "linux-vdso", "[vdso]")
"""How modules begin in which threads wait on behalf of others."""
_OFTEN = 0.5
"""In which share of the looks at least two threads wait for a lock that has a convoy."""


_Key: TypeAlias = "tuple[int, int]"


def _key(holder: Holder) -> _Key:
    """The same however sure it is that somebody holds a lock."""
    return holder.pid, holder.tid or 0


@dataclass(frozen=True, slots=True)
class Site:
    """Where threads of one name wait for a lock, or hold it."""

    threads: str
    """What they are called, without the numbers of a pool: ``worker``."""
    frame: StackFrame | None
    """The innermost frame that is not one of the system's libraries; none where it is not known."""
    state: ThreadState | None = None
    """Of a holder: what it did meanwhile; none where it is not known."""

    @property
    def place(self) -> str:
        """The function, with its line where that is known."""
        frame = self.frame
        if frame is None:
            return ""
        name = frame.function or f"{frame.address:#x}"
        if frame.location is None:
            return name
        return f"{name} ({frame.location.file.rpartition('/')[2]}:{frame.location.line})"

    def shown(self, count: int = 1) -> str:
        """What a person reads, for so many threads."""
        who = self.threads or "thread"
        where = f" in {self.place}" if self.place else ""
        doing = f", {self.state}" if self.state is not None else ""
        return f"{f'{count} ' if count > 1 else ''}{who}{where}{doing}"

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        location = None if self.frame is None else self.frame.location
        return {
            "threads": self.threads,
            "function": None if self.frame is None else self.frame.function,
            "file": None if location is None else location.file,
            "line": None if location is None else location.line,
            "state": self.state,
        }


@dataclass(slots=True)
class _Edge:
    seconds: float = 0.0
    samples: int = 0
    waiters: set[int] = field(default_factory=set)
    holders: dict[_Key, Holder] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeldTime:
    """Threads that wait for a lock in one place, while others hold it in another."""

    waiter: Site
    holder: Site | None
    """None where it could not be seen who holds it."""
    seconds: float
    """Of all that wait, estimated."""
    samples: int
    waiters: tuple[int, ...]
    """The threads that were found so."""
    holders: tuple[Holder, ...]

    @property
    def who_waits(self) -> str:
        """What a person reads."""
        return self.waiter.shown(len(self.waiters))

    @property
    def who_holds(self) -> str:
        """What a person reads."""
        return "not seen" if self.holder is None else self.holder.shown(len(self.holders))

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {
            "waiter": {**self.waiter.to_json(), "tids": list(self.waiters)},
            "holder": None
            if self.holder is None
            else {**self.holder.to_json(), "held_by": [one.to_json() for one in self.holders]},
            "seconds": self.seconds,
            "samples": self.samples,
        }


@dataclass(frozen=True, slots=True)
class LockTime:
    """A lock, and the time that threads wait for it."""

    lock: Lock
    seconds: float
    """Of all threads together, estimated."""
    waiters: tuple[int, ...]
    """The threads that waited for it."""
    holders: tuple[Holder, ...]
    """Those that held it while others waited."""
    wanted: float
    """In which share of the looks a thread waited for it."""
    queue: float
    """How many waited at once, on the average of these looks."""
    longest: int
    """How many at most."""
    convoy: float
    """In which share of the looks at least two waited; nought if threads do not pass it on to each
    other."""
    held: tuple[HeldTime, ...]
    """Who waited for whom, and where; most time first."""

    @property
    def is_convoy(self) -> bool:
        """Whether threads queue for it again and again, so that they run one after the other."""
        return self.convoy >= _OFTEN

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {
            "kind": self.lock.kind,
            "name": self.lock.name,
            "seconds": self.seconds,
            "waiters": list(self.waiters),
            "wanted": self.wanted,
            "queue": self.queue,
            "longest_queue": self.longest,
            "convoy": self.is_convoy,
            "waits": [one.to_json() for one in self.held],
        }


@dataclass(frozen=True, slots=True)
class Contention:
    """The locks of a process that threads waited for, most time first."""

    locks: tuple[LockTime, ...]
    unexplained: float = 0.0
    """For how long threads waited at futexes of which nothing tells what they are; estimated.

    These may be locks; none of them is among :attr:`locks`.
    """
    unexplained_waiters: int = 0
    """How many threads did."""

    @property
    def seconds(self) -> float:
        """For how long threads waited for locks, all together; estimated."""
        return sum(one.seconds for one in self.locks)

    @property
    def notes(self) -> tuple[str, ...]:
        """What may be missing from the locks."""
        if not self.unexplained_waiters:
            return ()
        many = self.unexplained_waiters
        who = "1 thread" if many == 1 else f"{many:,} threads"
        return (
            f"{who} waited ~{quantity(self.unexplained, 's')} at futexes of which nothing tells "
            "what they are: those that are locks are missing among the locks",
        )


def contention(found: SampledTime) -> Contention:
    """Say who waited for whom."""
    queues = dict(found.queues)
    by_lock: defaultdict[Lock, list[HeldWait]] = defaultdict(list)
    for one in found.held:
        by_lock[one.lock].append(one)
    locks = [
        _lock_time(lock, waits, dict(queues.get(lock, ())), found)
        for lock, waits in by_lock.items()
    ]
    unexplained = [
        one
        for one in found.places
        if one.is_blocked and one.wait is not None and one.wait.kind == "futex"
    ]
    return Contention(
        tuple(sorted(locks, key=lambda one: (-one.seconds, one.lock))),
        sum(one.blocked for one in unexplained),
        len({one.tid for one in unexplained}),
    )


def _lock_time(
    lock: Lock,
    waits: Sequence[HeldWait],
    queue: dict[int, int],
    found: SampledTime,
) -> LockTime:
    names = {thread.tid: thread.name for thread in found.threads}
    looks, pid = found.looks, found.pid
    edges: defaultdict[tuple[Site, Site | None], _Edge] = defaultdict(_Edge)
    for one in waits:
        waiter = Site(thread_group(names.get(one.place.tid, "")), _line(own_frame(one.place)))
        edge = edges[waiter, _holder_site(one, pid)]
        edge.seconds += one.seconds
        edge.samples += one.samples
        edge.waiters.add(one.place.tid)
        if one.holder is not None:
            edge.holders[_key(one.holder)] = one.holder
    held = [
        HeldTime(
            waiter,
            holder,
            edge.seconds,
            edge.samples,
            tuple(sorted(edge.waiters)),
            tuple(edge.holders[key] for key in sorted(edge.holders)),
        )
        for (waiter, holder), edge in edges.items()
    ]
    times = Counter[_Key]()
    known: dict[_Key, Holder] = {}
    for one in waits:
        if one.holder is not None:
            times[_key(one.holder)] += one.samples
            known[_key(one.holder)] = one.holder
    waiters = {one.place.tid for one in waits}
    seen = sum(queue.values())
    # One thread that has it for long makes others wait, too; in a convoy they pass it on.
    passed_on = len({tid for _, tid in times} & waiters) > 1
    long_queue = sum(count for size, count in queue.items() if size > 1)
    return LockTime(
        lock,
        sum(one.seconds for one in waits),
        tuple(sorted(waiters)),
        tuple(known[key] for key, _ in times.most_common()),
        seen / looks if looks else 0.0,
        sum(size * count for size, count in queue.items()) / seen if seen else 0.0,
        max(queue, default=0),
        long_queue / looks if looks and passed_on else 0.0,
        tuple(sorted(held, key=lambda one: -one.seconds)),
    )


def _holder_site(one: HeldWait, pid: int) -> Site | None:
    if one.holder is None:
        return None
    place = one.holder_place
    if one.holder.pid != pid:
        return Site(f"process {one.holder.pid} '{one.holder.name}'", None)
    name = thread_group(one.holder.name)
    if place is None or Lock.of(place.wait) == one.lock:
        # It has got the lock since it was looked at.
        return Site(name, None)
    # What ran, or was ready to, cannot be told apart at a look.
    return Site(name, _line(own_frame(place)), "blocked" if place.is_blocked else "running")


def own_frame(place: PlaceTime) -> StackFrame | None:
    """The innermost frame of a place that is not one of the system's libraries."""
    own = [frame for frame in place.frames if not (frame.module or "").startswith(_SYSTEM)]
    return next((frame for frame in (*own, *place.frames) if frame.function), None)


def _line(frame: StackFrame | None) -> StackFrame | None:
    """A frame that is the same for all instructions of a line, or of a function without lines."""
    if frame is None:
        return None
    return StackFrame(0, frame.function, None, frame.module, frame.location, frame.inlined)


def thread_group(name: str) -> str:
    """What threads of a pool have in common: ``worker`` of ``worker-3`` and ``worker/7``."""
    return name.rstrip("0123456789").rstrip("-_/:# .") or name
