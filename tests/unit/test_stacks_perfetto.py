"""Samples of stacks as a trace for Perfetto, read again by Google's library for its format."""

from __future__ import annotations

import io
from collections import defaultdict
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.unit.test_weighed import MAIN, MAIN_LATER, MALLOC, NOTE, NOVEL, PAPER, made
from weft.errors import InvalidArgument
from weft.export.stacks import perfetto, save
from weft.model.stacks import Stack
from weft.model.weighed import StackSample, WeighedStacks

SCHEMA = """
Trace: packet=1:*TracePacket
TracePacket: timestamp=8 sequence=10 interned=12:InternedData flags=13
TracePacket: track=60:Track sample=66:PerfSample
PerfSample: process=2 thread=3 callstack=4
InternedData: names=5:*Text frames=6:*Frame callstacks=7:*Callstack
InternedData: files=17:*Text paths=18:*Text mappings=19:*Mapping
Text: iid=1 text=2:text
Mapping: iid=1 start=4 end=5 path=7:*
Frame: iid=1 name=2 mapping=3 offset=4 path=5 line=6
Callstack: iid=1 frames=2:*
Track: uuid=1 process=3:Process thread=4:Thread
Process: pid=1 name=6:text
Thread: pid=1 tid=2 name=5:text
"""
"""The messages of Perfetto that are needed, each with its fields, their numbers and types: integers
if nothing else is said; an asterisk for a list, which is not packed."""

NOTES = Stack((MALLOC, PAPER, NOTE, MAIN), is_whole=True)
NOTES_LATER = Stack((MALLOC, PAPER, NOTE, MAIN_LATER), is_whole=True)
NOVELS = Stack((MALLOC, PAPER, NOVEL), is_whole=False)
SAMPLES = [
    StackSample(3_000, 7, 8, NOVELS, 10, "writer"),
    StackSample(1_000, 7, 7, NOTES, 10),
    StackSample(2_000, 7, 7, NOTES_LATER, 30),
    StackSample(4_000, 7, 8, NOVELS, 10, "writer"),
]


def _reader() -> Any:
    """The class of a trace, made of the schema."""
    file = descriptor_pb2.FileDescriptorProto(name="trace.proto", syntax="proto2")
    messages: dict[str, Any] = {}
    for line in SCHEMA.split("\n"):
        name, _, fields = line.partition(": ")
        for field in fields.split():
            known = messages.get(name)
            if known is None:
                known = messages[name] = file.message_type.add(name=name)
            label, _, rest = field.partition("=")
            number, _, kind = rest.partition(":")
            made = known.field.add(name=label, number=int(number))
            made.label = made.LABEL_REPEATED if kind.startswith("*") else made.LABEL_OPTIONAL
            made.type = made.TYPE_UINT64
            if kind == "text":
                made.type = made.TYPE_STRING
            elif kind.strip("*"):
                made.type, made.type_name = made.TYPE_MESSAGE, "." + kind.strip("*")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Trace"))


Frame: TypeAlias = tuple[str, str, str, int]
"""A function, its module, its file, and the line."""


class Trace:
    """What a file says."""

    def __init__(self, data: bytes) -> None:
        trace = _reader()()
        assert trace.ParseFromString(data) == len(data)
        names: dict[int, str] = {}
        paths: dict[int, str] = {}
        files: dict[int, str] = {}
        mappings: dict[int, tuple[str, int, int]] = {}
        frames: dict[int, Frame] = {}
        callstacks: dict[int, tuple[Frame, ...]] = {}
        self.processes: dict[int, str] = {}
        self.threads: dict[tuple[int, int], str] = {}
        self.samples: list[tuple[int, int, int, tuple[Frame, ...]]] = []
        assert not _unknown(trace)
        assert trace.packet[0].flags == 1
        for packet in trace.packet:
            assert packet.sequence == 1
            if packet.track.HasField("process"):
                self.processes[packet.track.process.pid] = packet.track.process.name
            if packet.track.HasField("thread"):
                thread = packet.track.thread
                self.threads[thread.pid, thread.tid] = thread.name
            # A number is given once, and before it is used.
            interned = packet.interned
            for table, entries in (
                (names, interned.names),
                (paths, interned.paths),
                (files, interned.files),
            ):
                for entry in entries:
                    assert entry.iid not in table
                    table[entry.iid] = entry.text
            for one in interned.mappings:
                assert one.iid not in mappings
                mappings[one.iid] = "".join(files[part] for part in one.path), one.start, one.end
            for one in interned.frames:
                path = paths[one.path] if one.path else ""
                assert one.iid not in frames
                # Readers drop stacks with frames that are in no module.
                file, start, end = mappings[one.mapping]
                assert one.HasField("offset") and start + one.offset <= end
                frames[one.iid] = names[one.name], file, path, one.line
            for one in interned.callstacks:
                assert one.iid not in callstacks
                callstacks[one.iid] = tuple(frames[number] for number in one.frames)
            if packet.HasField("sample"):
                assert packet.flags == 2
                found = packet.sample
                row = packet.timestamp, found.process, found.thread, callstacks[found.callstack]
                self.samples.append(row)

    def folded(self) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for _, _, _, stack in self.samples:
            found[";".join(name for name, *_ in stack)] += 1
        return dict(found)


def _unknown(message: Any) -> bool:
    """Whether a message, or one within it, has fields that the schema does not."""
    before = message.ByteSize()
    message.DiscardUnknownFields()
    return bool(message.ByteSize() != before)


def sampled(samples: list[StackSample] = SAMPLES, **parts: Any) -> WeighedStacks:
    about = {"title": "letters --long", "kind": "cpu_time", "unit": "ns", **parts}
    return WeighedStacks.of_samples(samples, **about)


def written(stacks: WeighedStacks) -> bytes:
    file = io.BytesIO()
    perfetto.write(file, stacks)
    return file.getvalue()


def test_samples_have_their_times_and_threads() -> None:
    found = Trace(written(sampled()))
    assert [row[:3] for row in found.samples] == [
        (1_000, 7, 7),
        (2_000, 7, 7),
        (3_000, 7, 8),
        (4_000, 7, 8),
    ]
    assert found.folded() == {
        "main;note;paper;malloc": 2,
        "[truncated];novel;paper;malloc": 2,
    }
    assert found.threads == {(7, 7): "", (7, 8): "writer"}


def test_what_the_samples_are_of_is_said() -> None:
    found = Trace(written(sampled(status="estimate")))
    assert found.processes == {7: "letters --long (cpu_time by stack, an estimate)"}


def test_frames_have_their_modules_and_lines() -> None:
    found = Trace(written(sampled()))
    (_, _, _, first), (_, _, _, later), (_, _, _, cut), _ = found.samples
    assert first == (
        ("main", "letters", "/src/letters.c", 17),
        ("note", "letters", "/src/letters.c", 9),
        ("paper", "letters", "/src/letters.c", 7),
        ("malloc", "libc.so.6", "", 0),
    )
    assert later[0] == ("main", "letters", "/src/letters.c", 18)
    assert cut[0] == ("[truncated]", "", "", 0)


def test_nothing_is_a_trace_too() -> None:
    assert Trace(written(sampled([]))).samples == []


def test_stacks_without_times_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="it is not known when they were seen"):
        save(tmp_path / "sums.perfetto", made())
    assert not (tmp_path / "sums.perfetto").exists()
    save(tmp_path / "samples.perfetto", sampled())
    assert (tmp_path / "samples.perfetto").read_bytes() == written(sampled())


def test_hostile_names_do_no_harm() -> None:
    nasty = "a\x00b\n\udcff"
    stack = Stack((PAPER,), is_whole=True)
    found = Trace(written(sampled([StackSample(1, 2, 3, stack, 4, nasty)], title=nasty)))
    assert len(found.samples) == 1
