"""The kinds of time, and stacks with the time that was spent in them.

In a stack that was blocked, what it waited for stands as the innermost frame, in brackets; so does
the waiting for a processor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from weft.model.sampled import NOT_SAMPLED, PlaceTime, SampledTime, ThreadState
from weft.model.stacks import Stack, StackFrame
from weft.model.waits import Descriptor, Wait
from weft.model.weighed import FrameTable, TimedStack, WeighedStack, WeighedStacks

__all__ = ["KINDS", "STATES", "Kind", "StackTime", "note", "stack_times", "wait_name", "weighed"]

Kind: TypeAlias = Literal["cpu", "wall", "off-cpu"]
"""``cpu`` is time on a processor, ``off-cpu`` all other time, and ``wall`` both."""

STATES: Final[dict[Kind, tuple[ThreadState, ...]]] = {
    "cpu": ("running",),
    "wall": ("running", "runnable", "blocked"),
    "off-cpu": ("blocked", "runnable"),
}
KINDS: Final = tuple(STATES)

_RUNNABLE = "[waiting for a processor]"
_ABOUT: Final[dict[Kind, str]] = {
    "cpu": "where its threads ran",
    "wall": "where its threads were",
    "off-cpu": "where its threads waited",
}
_NANO = 1e9
_ONE_WORD = ("futex", "condition", "semaphore", "barrier", "lock", "read-write lock")
_PATHS = ("file", "directory", "device", "terminal")


@dataclass(frozen=True, slots=True)
class StackTime:
    """The time of a thread in one place and one state."""

    place: PlaceTime
    state: ThreadState
    stack: Stack
    """With what it waited for as its innermost frame."""
    seconds: float


def stack_times(found: SampledTime, kind: Kind) -> Iterator[StackTime]:
    """Return the stacks of a kind of time."""
    for state in STATES[kind]:
        for place in found.places:
            seconds = place.seconds(state)
            if seconds > 0:
                yield StackTime(place, state, _stack(place, state), seconds)


def _stack(place: PlaceTime, state: ThreadState) -> Stack:
    frames = place.frames
    if not place.samples:
        frames = (_named(NOT_SAMPLED),)
    elif state == "runnable":
        frames = (_named(_RUNNABLE), *frames)
    elif state == "blocked":
        frames = (_named(wait_name(place)), *frames)
    return Stack(frames, place.cut is None)


def _named(name: str) -> StackFrame:
    """A frame that stands for no function."""
    return StackFrame(0, name, None, None, None)


def wait_name(place: PlaceTime) -> str:
    """Say what a blocked thread waits for, shortly: ``[lock table_lock]``, ``[read pipe]``.

    The same wait has the same name in all threads, so that flame graphs add them up.
    """
    if not place.samples:
        return NOT_SAMPLED
    return f"[{_wait(place.wait, place.call)}]"


def _wait(wait: Wait | None, call: str | None) -> str:
    if wait is None:
        return call or "blocked"
    if wait.kind in _ONE_WORD:
        return f"{wait.kind} {wait.symbol}" if wait.symbol else wait.kind
    if wait.kind == "thread":
        return "end of a thread"
    if wait.kind == "file lock":
        return " ".join(["file lock", *(one.text for one in wait.descriptors[:1])])
    if wait.kind == "descriptor":
        return _descriptors(wait, call)
    if wait.kind in ("call", "file", "message", "device") and call is not None:
        return call
    return wait.kind


def _descriptors(wait: Wait, call: str | None) -> str:
    if call is None or call == "restart_syscall":
        call = wait.descriptors[0].direction or "wait" if wait.descriptors else "wait"
    if len(wait.descriptors) != 1 or wait.descriptors[0].kind == "epoll":
        return call
    return f"{call} {_descriptor(wait.descriptors[0])}"


def _descriptor(one: Descriptor) -> str:
    """What it is of; connections have no names of their own, or each would have its own frame."""
    if one.kind in _PATHS or (one.kind == "pipe" and "/" in one.text):
        return one.text
    return f"{one.protocol} socket" if one.kind == "socket" and one.protocol else one.kind


def note(found: SampledTime) -> str:
    """Say what is exact of the times, and what is not."""
    return (
        "the time of each thread is exact, as the kernel counts it; how it is divided among "
        f"stacks is estimated by {found.looks:,} looks"
    )


def weighed(found: SampledTime, kind: Kind, title: str) -> WeighedStacks:
    """Return the stacks with their time in nanoseconds; with moments, if these were kept."""
    times = list(stack_times(found, kind))
    # A thread that ran and one that was ready to cannot be told apart at a moment.
    seen = {
        id(one.place): one
        for one in reversed(times)
        if one.place.samples and (kind == "wall" or one.place.is_blocked == (kind == "off-cpu"))
    }
    table = FrameTable((one.stack for one in times), found.command)
    stacks = WeighedStacks.of(
        ((one.stack, round(one.seconds * _NANO)) for one in times),
        title=title,
        kind=f"{kind.replace('-', '_')}_time",
        unit="ns",
        about=_ABOUT[kind],
        meaning=f"{kind} time by stack, an estimate",
        status="estimate",
        notes=(note(found), *found.notes),
        table=table,
    )
    frames = {
        key: WeighedStack(table.frames(one.stack), round(one.seconds * _NANO / one.place.samples))
        for key, one in seen.items()
    }
    names = {thread.tid: thread.name for thread in found.threads}
    samples = tuple(
        TimedStack(moment, found.pid, stay.place.tid, stack, names[stay.place.tid])
        for stay in found.stays
        if (stack := frames.get(id(stay.place))) is not None
        for moment in found.moments[stay.first : stay.end]
    )
    return replace(stacks, samples=samples)
