"""Perfetto: the calls and the system calls of a trace, as slices on a track for each thread.

The tracks of threads are under those of their processes.

The file opens in https://ui.perfetto.dev and in Perfetto's trace processor. Its format is a
sequence of protobuf messages of which a few fields are needed; the numbers below are those of
``perfetto/trace/trace_packet.proto`` and its neighbours. Names are written once and referred to.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from weft.export.protobuf import integer, message, text
from weft.export.slices import Slice, SliceWriter
from weft.program.system_calls import name_of
from weft.tools.trace import program_of

if TYPE_CHECKING:
    from weft.tools.trace import Trace

__all__ = ["write"]

# TrackDescriptor, ThreadDescriptor, ProcessDescriptor
_PROCESS, _THREAD, _PARENT = 3, 4, 5
_THREAD_PID, _THREAD_TID, _THREAD_NAME, _PROCESS_PID, _PROCESS_NAME = 1, 2, 5, 1, 6

_LONGEST_CALL = 15
"""The most bytes of an instruction."""


def write(trace: Trace, file: BinaryIO) -> int:
    """Write the calls and system calls of a trace; returns how many slices there are.

    Times within a thread are exact for system calls and interpolated for what is between them. A
    function that is left otherwise than by a return (``longjmp``, an exception) ends when the one
    that goes on does something.
    """
    writer = SliceWriter(file)
    # The last one that any thread of a process has executed: programs are numbered as they come.
    programs: dict[int, int] = {}
    for total in trace.threads:
        programs[total.process] = max(programs.get(total.process, 0), total.program)
    for pid, program in programs.items():
        process = integer(_PROCESS_PID, pid) + text(_PROCESS_NAME, _program_name(trace, program))
        writer.track(_process_track(pid), message(_PROCESS, process))
    for total in trace.threads:
        thread = integer(_THREAD_PID, total.process) + integer(_THREAD_TID, total.thread)
        if total.name:
            thread += text(_THREAD_NAME, total.name)
        parent = integer(_PARENT, _process_track(total.process))
        writer.track(total.thread, parent + message(_THREAD, thread))
    for total in trace.threads:
        for one in _merged(trace, total.thread):
            writer.slice(one)
    return writer.slices


def _process_track(pid: int) -> int:
    """Return the number of a process's track: a thread's is its id, and no thread has this one."""
    return 1 << 32 | pid


def _program_name(trace: Trace, program: int) -> str:
    """Return the first word of the command, or the file of what a process has become."""
    command = trace.notes.get("command", "").split(" ")[0]
    if program == 0 and command:
        return command
    return next((Path(file.path).name for file in trace.modules if file.program == program), "")


def _merged(trace: Trace, thread: int) -> Iterator[Slice]:
    """The slices of a thread in the order of their times: system calls are within functions."""
    system_calls = _system_calls(trace, thread)
    following = next(system_calls, None)
    depth = latest = 0
    for one in _calls(trace, thread):
        # A system call is two slices: it begins, it ends.
        while following is not None and following[0].time <= one.time:
            yield from following
            latest = following[1].time
            following = next(system_calls, None)
        latest = max(latest, one.time)
        depth += -1 if one.name is None else 1
        yield Slice(latest, one.track, one.name, one.category, one.annotations)
    while following is not None:
        yield from following
        latest = max(latest, following[1].time)
        following = next(system_calls, None)
    for _ in range(depth):
        yield Slice(latest, thread, None)


def _calls(trace: Trace, thread: int) -> Iterator[Slice]:
    stack: list[int] = []
    names: dict[tuple[int, int], str] = {}
    last = 0
    for batch in trace.calls([thread]):
        named = ("block", "ip", "kind", "target", "time")
        columns = (batch.column(name).to_pylist() for name in named)
        for block, ip, kind, target, time in zip(*columns, strict=True):
            if target is None:
                continue
            program = program_of(block)
            if program != last:
                # What it was before does not go on.
                for _ in stack:
                    yield Slice(time, thread, None)
                stack, last = [], program
            if kind != "return":
                key = program, target
                if key not in names:
                    names[key] = trace.place(target, program)[1] or f"{target:#x}"
                stack.append(ip)
                yield Slice(time, thread, names[key], "call", (("address", target, True),))
                continue
            # The frame that called from right before there goes on; a return that leads to no call
            # is a jump.
            depth = len(stack)
            while depth and not 0 < target - stack[depth - 1] <= _LONGEST_CALL:
                depth -= 1
            if depth:
                for _ in range(len(stack) - depth + 1):
                    yield Slice(time, thread, None)
                del stack[depth - 1 :]


def _system_calls(trace: Trace, thread: int) -> Iterator[tuple[Slice, Slice]]:
    for batch in trace.system_calls([thread]):
        for row in batch.to_pylist():
            end = row["end"] if row["end"] is not None else row["start"]
            notes = [(f"a{index}", row[f"a{index}"], True) for index in range(6)]
            if row["result"] is not None:
                notes.append(("result", row["result"], False))
            name = name_of(row["number"])
            begin = Slice(row["start"], thread, name, "system call", tuple(notes))
            yield begin, Slice(end, thread, None)
