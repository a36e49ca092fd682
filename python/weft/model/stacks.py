"""Stacks: the calls that the threads of a process are in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from weft.model.program import SourceLocation
from weft.model.waits import Wait

__all__ = ["Deadlock", "StackFrame", "Stacks", "StuckThread", "SystemCall", "ThreadStack"]


@dataclass(frozen=True, slots=True)
class StackFrame:
    """A function that a thread is in, and where in it.

    ``address`` is where it goes on: of the innermost frame the next instruction, of the others what
    the call returns to. An ``inlined`` function has no call of its own: its code stands within the
    function of the frame that follows, which has the same address.
    """

    address: int
    function: str | None
    """Its name; none if nothing is known of the address."""
    offset: int | None
    """How far behind the start of the function; none of an inlined one."""
    module: str | None
    location: SourceLocation | None
    inlined: bool = False

    def __str__(self) -> str:
        """What a person reads: the function, where in it, and its module or its line."""
        name = self.function or f"{self.address:#x}"
        if self.inlined:
            name += " [inlined]"
        elif self.function is not None and self.offset:
            name += f"+{self.offset:#x}"
        if self.location is not None:
            return f"{name} at {self.location}"
        return f"{name} ({self.module})" if self.module else name


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
    """The kernel's letter: ``R`` runs, ``S`` sleeps, ``D`` waits for a device, ``T`` is stopped."""
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


@dataclass(frozen=True, slots=True)
class Stacks:
    """The stacks of a process at one moment."""

    pid: int
    threads: tuple[ThreadStack, ...]
    pauses: tuple[float, ...]
    """For how many seconds the process stood still: more than once where a stack was deep."""
    deadlocks: tuple[Deadlock, ...] = ()
    """The circles of waits that its threads are in, also with other processes."""
    remarks: tuple[str, ...] = ()
    """What was not looked at on the search for deadlocks, and why."""
