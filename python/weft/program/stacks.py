"""The stacks of a running process, with names. Nothing is put into the process."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

from weft import _native
from weft.model.program import Module
from weft.model.stacks import StackFrame
from weft.model.thread_stacks import Stacks, SystemCall, ThreadStack
from weft.program.deadlocks import explain
from weft.program.frames import Names
from weft.program.live_modules import live_modules
from weft.program.python_frames import find_python, mixed
from weft.program.system_calls import name_of
from weft.program.tasks import reachable, sleep, tids

__all__ = ["StackReader", "cut_short", "end_of_go", "read_stacks"]

_MORE_PYTHON = "there are more frames of Python than were read"
_OTHER_STACK = "what the goroutine is in is on a stack of its own"
_GO_ENDS: dict[str, str | None] = {
    "runtime.goexit": None,
    "runtime.mstart": None,
    "runtime.rt0_go": None,
    "runtime.mcall": _OTHER_STACK,
    "runtime.morestack": _OTHER_STACK,
    "runtime.asmcgocall": _OTHER_STACK,
}
"""The functions that stacks of Go begin with, and what there is beyond."""


class StackReader:
    """Reads the stacks of a process, again and again: what it knows of its modules, it keeps."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._mapped: list[tuple[str, str, int, int]] = []
        self._modules: list[Module] = []

    def read(self, *, waits: bool = True) -> Stacks:
        """Read the stacks of all its threads.

        Those that sleep are read where they sleep; those that run stand still while their stacks
        are copied, about 70 microseconds for each. Names and lines are found when they run again.
        So is what they wait for, unless that is not wanted, and which of them can never go on: for
        that, other processes that they wait for are looked at as well.
        """
        at = reachable(self.pid)
        mapped = [
            (found["file"], found["path"], found["start"], found["bias"])
            for found in _native.modules(at)
        ]
        if mapped != self._mapped:
            self._modules, self._mapped = live_modules(at), mapped
        if not waits:
            return _read(self.pid, self._modules)
        # A call that a time ends is another one for the kernel after it was interrupted.
        earlier = {tid: sleep(self.pid, tid) for tid in tids(self.pid)}
        return explain(_read(self.pid, self._modules), self._modules, earlier, _read_other)


def read_stacks(pid: int, *, waits: bool = True) -> Stacks:
    """Read the stacks of all threads of a process once; see :class:`StackReader`."""
    return StackReader(pid).read(waits=waits)


def _read_other(pid: int) -> tuple[Stacks, Sequence[Module]]:
    modules = live_modules(reachable(pid))
    return _read(pid, modules), modules


def _read(pid: int, modules: Sequence[Module]) -> Stacks:
    at = reachable(pid)
    python = find_python(at, modules)
    # Before they stand still: a thread that is let go runs for a moment, and sleeps again.
    seen = _seen(pid)
    when = time.time()
    layout = None if python is None else python.layout
    rows, pauses, interpreted, shortened = _native.stacks(at, layout)
    if any(tid not in seen for tid, *_ in rows):
        seen = defaultdict(seen.default_factory, {**_seen(pid), **seen})
    names = Names.now(at, modules)
    found = {
        tid: [frame for row in calls for frame in names.frames(*row)] for tid, calls, *_ in rows
    }
    cuts = {tid: cut for tid, _, cut, _ in rows}
    notes = [] if interpreted is None else _mix(found, cuts, interpreted)
    cuts = {tid: end_of_go(found[tid], cut) for tid, cut in cuts.items()}
    threads = [
        ThreadStack(
            tid,
            *seen[tid],
            tuple(found[tid]),
            cuts[tid],
            None if call is None else SystemCall(call[0], name_of(call[0]), tuple(call[1])),
        )
        for tid, _, _, call in rows
    ]
    if python is not None and python.problem is not None:
        notes.append(python.problem)
    if shortened:
        notes.append(cut_short(shortened))
    return Stacks(pid, seen[pid][0], when, tuple(threads), tuple(pauses), tuple(notes))


def cut_short(count: int) -> str:
    """Say that system calls may have done less than they were asked for, because of weft."""
    calls = "call" if count == 1 else "calls"
    return (
        f"{count:,} system {calls} may have come back with less than asked for, as weft stopped "
        "the thread just then: it does so where kernel.perf_event_paranoid does not let it sample, "
        "and for frames of Python, clones and deep stacks"
    )


def end_of_go(frames: list[StackFrame], cut: str | None) -> str | None:
    """Take what is behind the end of a stack of Go away; return why there may be more frames.

    Nothing returns to the functions that stacks of goroutines and of the scheduler begin with, so
    what is found behind them is left from before.
    """
    for place, frame in enumerate(frames):
        name = (frame.function or "").removesuffix(".abi0")
        if name in _GO_ENDS:
            del frames[place + 1 :]
            return _GO_ENDS[name]
    return cut


def _mix(
    frames: dict[int, list[StackFrame]],
    cuts: dict[int, str | None],
    interpreted: _native.PythonRows,
) -> list[str]:
    """Put frames of the interpreter into those of the threads that run them.

    Return what could not be shown, and note in ``cuts`` where there may be more frames.
    """
    threads, codes = interpreted
    notes = []
    for tid, found, is_cut in threads:
        if tid not in frames:
            continue
        if is_cut and cuts[tid] is None:
            cuts[tid] = _MORE_PYTHON
        frames[tid], unplaced = mixed(frames[tid], found, codes, is_whole=cuts[tid] is None)
        if unplaced:
            text = f"{unplaced} frames of Python of thread {tid} are not shown: it is not known"
            notes.append(f"{text} which native frames run them")
    return notes


def _seen(pid: int) -> defaultdict[int, tuple[str, str]]:
    """The names and states of threads, by their ids; one that has ended has no name."""
    found = {tid: (name, state) for tid, name, state in _native.threads(pid)}
    return defaultdict(lambda: ("", "X"), found)
