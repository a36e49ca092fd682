"""Where the threads of a process have spent their time: counted by the kernel, divided by samples.

How long a thread has run, was ready to run, and was blocked is exact. How that time is divided
among places is estimated, by how often the thread was found in each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from weft.model.stacks import StackFrame
from weft.model.waits import Holder, Wait, WaitKind

__all__ = [
    "NOT_SAMPLED",
    "HeldWait",
    "Lock",
    "PlaceTime",
    "SampledTime",
    "Stay",
    "ThreadState",
    "ThreadTime",
]

ThreadState: TypeAlias = Literal["running", "runnable", "blocked"]
"""What a thread does: it runs, it could run but waits for a processor, or it waits for something
else."""

NOT_SAMPLED = "[not sampled]"
"""What stands for the place of time in which a thread was never found."""


@dataclass(frozen=True, slots=True)
class ThreadTime:
    """The time of a thread, while it was watched."""

    tid: int
    name: str
    seconds: float
    """For how long it was there."""
    running: float
    """Seconds on a processor."""
    runnable: float
    """Seconds for which it was ready to run, and waited for a processor."""

    @property
    def blocked(self) -> float:
        """Seconds for which it waited for something else."""
        return max(self.seconds - self.running - self.runnable, 0.0)

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {
            "tid": self.tid,
            "name": self.name,
            "seconds": self.seconds,
            "running": self.running,
            "runnable": self.runnable,
            "blocked": self.blocked,
        }


@dataclass(frozen=True, slots=True)
class PlaceTime:
    """The time of a thread in one place."""

    tid: int
    is_blocked: bool
    """Whether it was blocked there; otherwise it ran there, or was ready to."""
    frames: tuple[StackFrame, ...]
    """The calls that it was in, the innermost first; none where it was never found."""
    cut: str | None
    """Why there may be more calls; none if these are all."""
    call: str | None
    """The system call that it was in."""
    descriptor: int | None
    """The first argument of that call, where it ran."""
    wait: Wait | None
    """What it was found to wait for, the first time."""
    holders: tuple[tuple[Holder, int], ...]
    """Who was found to hold that, and how often."""
    samples: int
    """How often it was found there."""
    running: float
    """Seconds on a processor, estimated."""
    runnable: float
    """Seconds for which it waited for a processor, estimated."""
    blocked: float
    """Seconds for which it was blocked, estimated."""

    def seconds(self, *states: ThreadState) -> float:
        """Return its time in these states."""
        return sum(float(getattr(self, state)) for state in states)


class Lock(NamedTuple):
    """What threads wait for until another lets it go."""

    kind: WaitKind
    name: str
    """The variable that it is in, or its address, or its file."""

    @classmethod
    def of(cls, wait: Wait | None) -> Lock | None:
        """The lock that a thread waits for; none if it waits for something else."""
        if wait is None or wait.kind not in ("lock", "read-write lock", "file lock"):
            return None
        if wait.kind == "file lock":
            return cls(wait.kind, wait.descriptors[0].text if wait.descriptors else "a file")
        where = None if wait.address is None else f"{wait.address:#x}"
        return cls(wait.kind, wait.symbol or where or wait.text)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class HeldWait(NamedTuple):
    """What a thread was found to wait for that another held."""

    place: PlaceTime
    """Where it waited."""
    lock: Lock
    holder: Holder | None
    """Who held it; none if that could not be seen."""
    holder_place: PlaceTime | None
    """Where the holder was meanwhile; none of another process."""
    samples: int
    """How often it was found so."""

    @property
    def seconds(self) -> float:
        """For how long, estimated."""
        return self.place.blocked * self.samples / self.place.samples


class Stay(NamedTuple):
    """The looks, one after the other, at which a thread was found in the same place."""

    first: int
    """The first of them: its place in :attr:`SampledTime.moments`."""
    end: int
    """The first that is none of them."""
    place: PlaceTime


@dataclass(frozen=True, slots=True)
class SampledTime:
    """Where the threads of a process have spent their time."""

    pid: int
    command: str
    seconds: float
    """For how long they were watched."""
    looks: int
    """How often they were looked at."""
    stood_still: float
    """For how many seconds in all threads that ran were stopped for it."""
    threads: tuple[ThreadTime, ...]
    places: tuple[PlaceTime, ...]
    together: tuple[tuple[tuple[int, ...], int], ...] = ()
    """Which threads were found to run, or to be ready to, at once; and how often."""
    notes: tuple[str, ...] = ()
    """What could not be found out."""
    moments: tuple[int, ...] = ()
    """When looks were, if that was kept: nanoseconds since the machine was booted."""
    stays: tuple[Stay, ...] = ()
    """Which thread was found where at these moments."""
    held: tuple[HeldWait, ...] = ()
    """Who waited for whom, for locks."""
    queues: tuple[tuple[Lock, tuple[tuple[int, int], ...]], ...] = ()
    """How often so many threads were found to wait for a lock at once."""

    @property
    def running(self) -> float:
        """Seconds on processors, of all threads."""
        return sum(thread.running for thread in self.threads)

    @property
    def runnable(self) -> float:
        """Seconds of waiting for processors, of all threads."""
        return sum(thread.runnable for thread in self.threads)

    @property
    def blocked(self) -> float:
        """Seconds of waiting for something else, of all threads."""
        return sum(thread.blocked for thread in self.threads)

    def by_stack(
        self, states: Sequence[ThreadState]
    ) -> Iterator[tuple[PlaceTime, tuple[StackFrame, ...], float]]:
        """Return the places with time in these states, their frames, and the seconds."""
        for place in self.places:
            seconds = place.seconds(*states)
            if seconds > 0:
                yield place, place.frames, seconds
