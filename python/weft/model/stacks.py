"""Stacks: the calls that the threads of a process are in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from posixpath import normpath
from typing import Literal

from weft.model.program import SourceLocation
from weft.model.waits import Wait

__all__ = [
    "TRUNCATED",
    "Deadlock",
    "FoldedStacks",
    "Stack",
    "StackFrame",
    "Stacks",
    "StuckThread",
    "SystemCall",
    "ThreadStack",
    "folded",
]


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
    is_guess: bool = False
    """Whether it was found by frame pointers alone: there may be calls between it and the last."""
    language: str = "native"
    """``python`` of a frame of its interpreter, ``jit`` of code that the program made and named."""

    def __str__(self) -> str:
        """What a person reads: the function, where in it, and its module or its line."""
        name = self.function or f"{self.address:#x}"
        if self.inlined:
            name += " [inlined]"
        elif self.function is not None and self.offset:
            name += f"+{self.offset:#x}"
        if self.location is not None:
            # Compilers note paths by way of the folder that they were started in.
            name += f" at {replace(self.location, file=normpath(self.location.file))}"
        elif self.module:
            name += f" ({self.module})"
        return f"{name} [by frame pointer]" if self.is_guess else name

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        location = self.location
        return {
            "function": self.function,
            "module": self.module,
            "file": None if location is None else location.file,
            "line": None if location is None else location.line,
            "inlined": self.inlined,
            "language": self.language,
            "address": self.address,
            "guess": self.is_guess,
        }


TRUNCATED = "[truncated]"
"""What stands for the calls of a stack that were not found."""


@dataclass(frozen=True, slots=True)
class Stack:
    """The calls that a thread was in when a snippet took its stack, the innermost first."""

    frames: tuple[StackFrame, ...]
    is_whole: bool
    """Whether all calls were found, or as many as were asked for."""

    @property
    def names(self) -> tuple[str, ...]:
        """The functions, the outermost first, as flame graphs have them."""
        found = [frame.function or f"{frame.address:#x}" for frame in reversed(self.frames)]
        return tuple(found if self.is_whole else [TRUNCATED, *found])

    def __str__(self) -> str:
        """The stack folded to one line, the outermost function first."""
        return ";".join(name.replace(";", ":") for name in self.names)


class FoldedStacks(str):
    """Stacks that are the same when they are folded to one line, which is the key of their sum.

    They differ in where in their functions the calls are.
    """

    __slots__ = ("stacks",)

    stacks: dict[Stack, int | float]
    """The sum of each."""

    def __new__(cls, folded: str) -> FoldedStacks:
        """Make one without stacks."""
        made = super().__new__(cls, folded)
        made.stacks = {}
        return made


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
    """For how many seconds the process stood still: more than once where a stack was deep."""
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
