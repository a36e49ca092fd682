"""The stacks of a process: the calls that its threads are in, and what they wait for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from weft.model.stacks import StackFrame
from weft.model.waits import Wait

__all__ = ["Deadlock", "Stacks", "StuckThread", "SystemCall", "ThreadStack", "folded"]


@dataclass(frozen=True, slots=True)
class SystemCall:
    """A system call that a thread is in."""

    number: int
    name: str
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """The calls that a thread is in, the innermost first."""

    tid: int
    name: str
    state: str
    """The kernel's letter: ``R`` runs, ``S`` sleeps, ``D`` waits in the kernel for what no signal
    ends, ``T`` is stopped."""
    frames: tuple[StackFrame, ...]
    cut: str | None
    """Why there may be more calls; none if these are all."""
    call: SystemCall | None
    """The system call that it is in."""
    waits_for: Wait | None = None
    """What it waits for; none if it runs, or if that was not asked for."""

    @property
    def is_whole(self) -> bool:
        """Whether all calls were found."""
        return self.cut is None

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        call = self.call
        return {
            "tid": self.tid,
            "name": self.name,
            "state": self.state,
            "call": None if call is None else call.name,
            "waits_for": None if self.waits_for is None else self.waits_for.to_json(),
            "truncated": self.cut,
            "frames": [frame.to_json() for frame in self.frames],
        }


@dataclass(frozen=True, slots=True)
class StuckThread:
    """A thread of a deadlock."""

    pid: int
    tid: int
    name: str
    process: str
    """The name of its process."""
    waits_for: Wait
    at: StackFrame | None
    """Where in the program it waits: the innermost call that is not in the C library."""

    def __str__(self) -> str:
        """What a person reads."""
        text = f"thread {self.tid} '{self.name}' of process {self.pid} '{self.process}'"
        where = "" if self.at is None else f" in {self.at}"
        return f"{text} waits{where} for {self.waits_for.text}"

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {
            "pid": self.pid,
            "tid": self.tid,
            "name": self.name,
            "process": self.process,
            "waits_for": self.waits_for.to_json(),
            "at": None if self.at is None else self.at.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Threads that wait for each other in a circle, so that none of them can go on.

    It is ``certain`` if all of them slept while what they wait for was read, and each waits, for as
    long as it takes, for something that only the others can do. Otherwise it is ``likely``, and
    ``doubts`` say why.
    """

    certainty: Literal["certain", "likely"]
    threads: tuple[StuckThread, ...]
    """Those in the circle. Where each waits for one other, it is for the next."""
    doubts: tuple[str, ...] = ()
    behind: tuple[tuple[int, int], ...] = ()
    """The processes and threads that wait for those in the circle, without being in it."""

    def __str__(self) -> str:
        """What a person reads, with a line for each thread."""
        title = "deadlock" if self.certainty == "certain" else "likely a deadlock"
        if self.doubts:
            title += f" ({'; '.join(self.doubts)})"
        return "\n  ".join([f"{title}:", *map(str, self.threads)])

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {
            "certainty": self.certainty,
            "doubts": list(self.doubts),
            "threads": [thread.to_json() for thread in self.threads],
            "behind": [{"pid": pid, "tid": tid} for pid, tid in self.behind],
        }


@dataclass(frozen=True, slots=True)
class Stacks:
    """The stacks of a process at one moment."""

    pid: int
    command: str
    """The name of the process."""
    time: float
    """When it was, in seconds since 1970."""
    threads: tuple[ThreadStack, ...]
    pauses: tuple[float, ...]
    """For how many seconds threads stood still that run: more than once where a stack was deep."""
    notes: tuple[str, ...] = ()
    """What could not be found out."""
    deadlocks: tuple[Deadlock, ...] = ()
    """The circles of waits that its threads are in, also with other processes."""

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {
            "pid": self.pid,
            "name": self.command,
            "time": self.time,
            "seconds_stopped": sum(self.pauses),
            "notes": list(self.notes),
            "threads": [thread.to_json() for thread in self.threads],
            "deadlocks": [deadlock.to_json() for deadlock in self.deadlocks],
        }


def folded(threads: Iterable[ThreadStack]) -> list[list[ThreadStack]]:
    """Return the threads, those in the same place together, in the order of the first of each."""
    alike: dict[object, list[ThreadStack]] = {}
    for thread in threads:
        call = thread.call and thread.call.name
        key = thread.state, call, thread.cut, thread.frames
        alike.setdefault(key, []).append(thread)
    return list(alike.values())
