"""Perfetto: stacks that were seen at known times, under their threads on a timeline.

The file is for https://ui.perfetto.dev, where a stretch of time that one selects has a flame graph.
Stacks without times have no place on a timeline; Perfetto reads ``pprof``, which is for those.

Each sample is a ``PerfSample`` of ``perfetto/trace/profiling/profile_packet.proto``, as Perfetto's
own profiler writes them. Readers count these: a sample has no weight of its own. Names, modules,
frames and stacks are written once and referred to. The numbers below are those of the fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from weft.base.numbers import readable
from weft.errors import InvalidArgument
from weft.export.protobuf import integer, message, optional, text
from weft.model.weighed import (
    CodeModule,
    TimedStack,
    WeighedFrame,
    WeighedFunction,
    WeighedStacks,
)

# Trace, TracePacket
_PACKET, _TIMESTAMP, _SEQUENCE, _INTERNED, _FLAGS = 1, 8, 10, 12, 13
_TRACK, _SAMPLE = 60, 66
# PerfSample
_SAMPLE_PROCESS, _SAMPLE_THREAD, _SAMPLE_CALLSTACK = 2, 3, 4
# InternedData; its entries are InternedString, Mapping, Frame, Callstack
_NAMES, _FRAMES, _CALLSTACKS, _MAPPING_PATHS, _SOURCE_PATHS, _MAPPINGS = 5, 6, 7, 17, 18, 19
_ID, _TEXT = 1, 2
_MAPPING_START, _MAPPING_END, _MAPPING_PATH = 4, 5, 7
_FRAME_NAME, _FRAME_MAPPING, _FRAME_OFFSET, _FRAME_SOURCE, _FRAME_LINE = 2, 3, 4, 5, 6
_CALLSTACK_FRAME = 2
# TrackDescriptor, ProcessDescriptor, ThreadDescriptor
_UUID, _PROCESS, _THREAD = 1, 3, 4
_PROCESS_PID, _PROCESS_NAME = 1, 6
_THREAD_PID, _THREAD_TID, _THREAD_NAME = 1, 2, 5

_STATE_CLEARED, _STATE_NEEDED = 1, 2
_ONLY_SEQUENCE = 1


def write(file: BinaryIO, stacks: WeighedStacks) -> None:
    """Write the samples of the stacks."""
    if stacks.stacks and not stacks.samples:
        raise InvalidArgument(
            "these stacks cannot be written as perfetto",
            "it is not known when they were seen",
            "write them as pprof, which Perfetto opens as well",
        )
    writer = _Writer()
    file.write(_packet(b"", _STATE_CLEARED))
    for track in _tracks(stacks):
        file.write(_packet(message(_TRACK, track), 0))
    for sample in sorted(stacks.samples, key=lambda sample: sample.time):
        file.write(writer.sample(sample))


def _packet(content: bytes, flags: int) -> bytes:
    whole = content + integer(_SEQUENCE, _ONLY_SEQUENCE) + optional(_FLAGS, flags)
    return message(_PACKET, whole)


def _tracks(stacks: WeighedStacks) -> Iterator[bytes]:
    """What the processes and the threads are called."""
    threads = {(one.process, one.thread): one.thread_name for one in stacks.samples}
    processes = dict.fromkeys(process for process, _ in threads)
    # There is no other place for what the samples are of.
    name = f"{stacks.title} ({stacks.meaning})"
    for process in processes:
        about = integer(_PROCESS_PID, process) + text(_PROCESS_NAME, readable(name))
        # A thread's track has its id for a number, and no thread has this one.
        yield integer(_UUID, 1 << 32 | process) + message(_PROCESS, about)
    for (process, thread), name in threads.items():
        about = integer(_THREAD_PID, process) + integer(_THREAD_TID, thread)
        if name:
            about += text(_THREAD_NAME, readable(name))
        yield integer(_UUID, thread) + message(_THREAD, about)


class _Writer:
    """Numbers what samples refer to; what is new stands in the packet that needs it."""

    def __init__(self) -> None:
        self._texts: dict[tuple[int, str], int] = {}
        self._mappings: dict[CodeModule | None, int] = {}
        self._frames: dict[tuple[WeighedFunction, int, int], int] = {}
        self._callstacks: dict[tuple[WeighedFrame, ...], int] = {}
        self._by_identity: dict[int, int] = {}
        self._fresh = b""

    def sample(self, sample: TimedStack) -> bytes:
        """The packet of a sample."""
        self._fresh = b""
        frames = sample.stack.frames
        # Most are the very same as before, which is sooner known than that they are equal.
        callstack = self._by_identity.get(id(frames)) or self._callstack(frames)
        self._by_identity[id(frames)] = callstack
        content = integer(_SAMPLE_PROCESS, sample.process)
        content += integer(_SAMPLE_THREAD, sample.thread) + integer(_SAMPLE_CALLSTACK, callstack)
        interned = message(_INTERNED, self._fresh) if self._fresh else b""
        packet = integer(_TIMESTAMP, sample.time) + interned + message(_SAMPLE, content)
        return _packet(packet, _STATE_NEEDED)

    def _callstack(self, frames: tuple[WeighedFrame, ...]) -> int:
        if (known := self._callstacks.get(frames)) is not None:
            return known
        number = self._callstacks[frames] = len(self._callstacks) + 1
        # The field is not packed, and the outermost frame stands first.
        numbers = b"".join(integer(_CALLSTACK_FRAME, self._frame(frame)) for frame in frames)
        self._fresh += message(_CALLSTACKS, integer(_ID, number) + numbers)
        return number

    def _frame(self, frame: WeighedFrame) -> int:
        function = frame.function
        key = function, frame.address, frame.line
        if (known := self._frames.get(key)) is not None:
            return known
        number = self._frames[key] = len(self._frames) + 1
        start = 0 if function.module is None else function.module.start
        content = integer(_ID, number) + integer(_FRAME_NAME, self._text(_NAMES, function.name))
        # Without a module and a place in it, readers drop the whole stack.
        content += integer(_FRAME_MAPPING, self._mapping(function.module))
        content += integer(_FRAME_OFFSET, max(frame.address - start, 0))
        if path := frame.file or function.file:
            content += integer(_FRAME_SOURCE, self._text(_SOURCE_PATHS, path))
        content += optional(_FRAME_LINE, frame.line or function.line)
        self._fresh += message(_FRAMES, content)
        return number

    def _mapping(self, module: CodeModule | None) -> int:
        if (known := self._mappings.get(module)) is not None:
            return known
        number = self._mappings[module] = len(self._mappings) + 1
        content = integer(_ID, number)
        if module is not None:
            content += integer(_MAPPING_START, module.start) + integer(_MAPPING_END, module.end)
            content += integer(_MAPPING_PATH, self._text(_MAPPING_PATHS, module.path))
        self._fresh += message(_MAPPINGS, content)
        return number

    def _text(self, table: int, value: str) -> int:
        key = table, readable(value)
        if key not in self._texts:
            self._texts[key] = len(self._texts) + 1
            self._fresh += message(table, integer(_ID, self._texts[key]) + text(_TEXT, key[1]))
        return self._texts[key]
