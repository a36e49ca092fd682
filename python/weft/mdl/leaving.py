"""Where calls end that do not return: by an exception, by ``longjmp``, or with their thread.

What is kept of a call that has not ended (a timer that runs, a stamp, a predicate) is kept with
its frame, the address of its return address. Whoever leaves calls without returning from them
passes one of a few functions of the C, C++ or Rust library. There, the frames are known that are
over:

- An exception has left all between the frame of the throw and that of the catch. The unwinder
  walks one stack, so frames of other stacks, those of coroutines, are never between the two.
- ``longjmp`` leaves all between its own frame and the stack pointer in its argument. One that
  leads further down is no jump out of calls but a switch to another stack; a thread that has done
  that once is taken to go on doing it, and its jumps leave nothing.
- A thread that ends leaves everything.

A call that is left in some other way is found out when a later one has its place on the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

from weft.model.points import Point, PointSelection
from weft.model.program import Procedures

__all__ = ["LOCALS", "Leaving", "leavings"]

THROWN = "weft_thrown"
"""The frame of the throw that is under way."""
SWITCHED = "weft_switched"
"""Whether the thread has switched stacks by ``longjmp``."""
LOCALS = (THROWN, SWITCHED)

_THROWS = ("__cxa_throw", "__cxa_rethrow", "_Unwind_RaiseException")
_CATCHES = ("__cxa_begin_catch", "__rust_panic_cleanup")
_JUMPS = ("longjmp", "_longjmp", "siglongjmp", "__longjmp_chk")
_ENDS = ("pthread_exit", "__pthread_unwind", "thrd_exit")

_EVERYTHING = "-1"
"""The highest address."""
_STACK_POINTER = 48
"""Where a ``jmp_buf`` has it, in the C libraries of GNU and musl."""
_REACH = 1 << 30
"""How far up a jump may lead: no stack is larger."""


class Program(Protocol):
    """What is asked of a target."""

    def named(self, pattern: str, *, is_regex: bool) -> Procedures:
        """The functions of a name in any module; a pattern may be a path."""

    def points(
        self, procedures: Procedures, kind: PointSelection
    ) -> tuple[list[Point], list[Point]]:
        """The points of a kind that functions have, and instructions behind which more may be."""

    def pointer_guard(self) -> int | None:
        """What the C library of GNU hides stack pointers by, if it is known."""


class Leaving(NamedTuple):
    """Code for the places where calls are left, and those places."""

    points: tuple[Point, ...]
    body: str
    kind: Literal["thrown", "caught", "jump", "end"]


def leavings(program: Program, leave: Callable[[str, str], str]) -> Iterator[Leaving]:
    """Yield what to weave so that calls end which do not return.

    ``leave`` is given the lowest and the highest frame that is over, and says what to do.
    """
    throws, catches = _points(program, _THROWS), _points(program, _CATCHES)
    if throws and catches:
        yield Leaving(throws, f"{THROWN} = $frame", "thrown")
    if catches:
        yield Leaving(catches, leave(THROWN, "$frame"), "caught")
    guard = program.pointer_guard()
    if guard is not None and (jumps := _points(program, _JUMPS)):
        yield Leaving(jumps, _jump(guard, leave), "jump")
    if ends := _points(program, _ENDS):
        yield Leaving(ends, leave("0", _EVERYTHING), "end")


def _points(program: Program, names: Sequence[str]) -> tuple[Point, ...]:
    found: Procedures = {}
    for name in names:
        found.update(program.named(name, is_regex=False))
    return tuple(program.points(found, "entry")[0]) if found else ()


def _jump(guard: int, leave: Callable[[str, str], str]) -> str:
    """What to do at a jump; musl has the stack pointer as it is, glibc hides it."""
    signed = guard - (1 << 64) if guard >> 63 else guard

    def is_above(name: str) -> str:
        return f"{name} > $frame && {name} - $frame < {_REACH}"

    return f"""\
let there = load64($arg[0] + {_STACK_POINTER})
let shown = (shr(there, 17) | (there << 47)) ^ ({signed})
if {SWITCHED} == 0 && {is_above("there")} {{
{leave("$frame", "(there - 8)")}
}} else {{
if {SWITCHED} == 0 && {is_above("shown")} {{
{leave("$frame", "(shown - 8)")}
}} else {{
{SWITCHED} = 1
}}
}}"""
