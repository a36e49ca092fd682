"""Stacks: the calls that the threads of a process are in."""

from __future__ import annotations

from dataclasses import dataclass

from weft.model.program import SourceLocation

__all__ = [
    "TRUNCATED",
    "FoldedStacks",
    "Stack",
    "StackFrame",
    "Stacks",
    "SystemCall",
    "ThreadStack",
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

    @property
    def is_whole(self) -> bool:
        """Whether all calls were found."""
        return self.cut is None


@dataclass(frozen=True, slots=True)
class Stacks:
    """The stacks of a process at one moment."""

    pid: int
    threads: tuple[ThreadStack, ...]
    pauses: tuple[float, ...]
    """For how many seconds the process stood still: more than once where a stack was deep."""
