"""Stacks: frames, and what probes have taken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from posixpath import normpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.model.program import SourceLocation

__all__ = ["BY_FRAME_POINTER", "REPLACED", "TRUNCATED", "FoldedStacks", "Stack", "StackFrame"]


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
        return f"{name} {BY_FRAME_POINTER}" if self.is_guess else name

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
BY_FRAME_POINTER = "[by frame pointer]"
"""What is behind a call that a frame pointer alone has led to: there may be calls in between."""
REPLACED = "[replaced]"
"""What is behind the names of a frame where more than one library was, one after the other."""


@dataclass(frozen=True, slots=True)
class Stack:
    """The calls that a thread was in when a snippet took its stack, the innermost first."""

    frames: tuple[StackFrame, ...]
    is_whole: bool
    """Whether all calls were found, or as many as were asked for."""

    @property
    def names(self) -> tuple[str, ...]:
        """The functions, the outermost first, as flame graphs have them."""
        found = [frame.function or f"{frame.address:#x}" for frame in self.frames]
        guesses = (place for place, frame in enumerate(self.frames) if frame.is_guess)
        if (first := next(guesses, None)) is not None:
            # Of several, one says enough: code of a JIT is all found so.
            found.insert(first, BY_FRAME_POINTER)
        return tuple(reversed(found if self.is_whole else [*found, TRUNCATED]))

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
