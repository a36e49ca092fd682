"""Who waits for whom, from samples that are made up."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from weft.export.waits import html, perfetto, text
from weft.export.waits.classes import Stretch, class_of, stretches
from weft.export.waits.json import document
from weft.model.contention import contention, thread_group
from weft.model.program import SourceLocation
from weft.model.sampled import HeldWait, Lock, PlaceTime, SampledTime, Stay, ThreadTime
from weft.model.stacks import StackFrame
from weft.model.waits import Holder, Sureness, Wait

TABLE = Wait("lock", "mutex table", 0x1000, "table")
TIMER = Wait("timer", "1 s to pass")
LOCK = Lock("lock", "table")
LIBC = StackFrame(1, "__lll_lock_wait", 1, "libc.so.6", None)


def frame(function: str, line: int, address: int = 100) -> StackFrame:
    return StackFrame(address, function, 4, "prog", SourceLocation("/src/prog.c", line, 1))


def place(tid: int, wait: Wait | None, *frames: StackFrame, samples: int = 10) -> PlaceTime:
    is_blocked = wait is not None
    return PlaceTime(
        tid,
        is_blocked,
        (LIBC, *frames),
        None,
        "futex" if is_blocked else None,
        None,
        wait,
        (),
        samples,
        0.0 if is_blocked else 1.0,
        0.0,
        samples / 10 if is_blocked else 0.0,
    )


def holder(tid: int, sure: Sureness = "sure", pid: int = 1) -> Holder:
    return Holder(pid, tid, f"worker-{tid}", sure)


def made(*held: HeldWait, queue: dict[int, int], looks: int = 20) -> SampledTime:
    places = {id(one.place): one.place for one in held}
    places |= {id(one.holder_place): one.holder_place for one in held if one.holder_place}
    threads = tuple(ThreadTime(tid, f"worker-{tid}", 2.0, 0.5, 0.0) for tid in (1, 2, 3))
    stays = tuple(Stay(0, 10, one) for one in places.values())
    return SampledTime(
        1,
        "prog",
        2.0,
        looks,
        0.001,
        threads,
        tuple(places.values()),
        moments=tuple(range(0, 200_000_000, 10_000_000)),
        stays=stays,
        held=held,
        queues=((LOCK, tuple(queue.items())),),
    )


WAITS = [place(tid, TABLE, frame("take", 7, 100 + tid)) for tid in (1, 2, 3)]
SLEEPS = [place(tid, TIMER, frame("hold", 9, 200 + tid)) for tid in (1, 2, 3)]


def test_sites_are_added_up() -> None:
    """Threads of a pool that wait at the same line, for holders at the same line, are one wait."""
    found = made(
        HeldWait(WAITS[0], LOCK, holder(2), SLEEPS[1], 6),
        HeldWait(WAITS[0], LOCK, holder(2, "shortly after"), SLEEPS[1], 2),
        HeldWait(WAITS[0], LOCK, None, None, 2),
        HeldWait(WAITS[1], LOCK, holder(3), SLEEPS[2], 10),
        queue={1: 10, 2: 5},
    )
    (lock,) = contention(found).locks
    assert lock.lock == LOCK and lock.seconds == pytest.approx(2.0)
    assert lock.waiters == (1, 2) and [one.tid for one in lock.holders] == [3, 2]
    first, second = lock.held
    assert first.seconds == pytest.approx(1.8) and first.samples == 18
    assert first.who_waits == "2 worker in take (prog.c:7)"
    assert first.who_holds == "2 worker in hold (prog.c:9), blocked"
    assert second.who_holds == "not seen" and second.seconds == pytest.approx(0.2)
    assert (lock.wanted, lock.longest) == (0.75, 2)
    assert lock.queue == pytest.approx(20 / 15)
    assert not lock.is_convoy


def test_convoys_pass_on_what_they_queue_for() -> None:
    ring = [
        HeldWait(WAITS[at], LOCK, holder(to), SLEEPS[to - 1], 10) for at, to in enumerate((2, 3, 1))
    ]
    (lock,) = contention(made(*ring, queue={2: 16, 1: 2})).locks
    assert lock.is_convoy and lock.convoy == pytest.approx(0.8)
    # A queue that is short most of the time.
    (lock,) = contention(made(*ring, queue={2: 4, 1: 14})).locks
    assert not lock.is_convoy
    # One thread that has it for long, while others wait.
    one = [HeldWait(WAITS[at], LOCK, holder(1), SLEEPS[0], 10) for at in (1, 2)]
    (lock,) = contention(made(*one, queue={2: 20})).locks
    assert not lock.is_convoy and lock.longest == 2


def test_a_holder_that_was_seen_waiting_has_no_place() -> None:
    """It got the lock after it was looked at."""
    found = made(HeldWait(WAITS[0], LOCK, holder(2), WAITS[1], 10), queue={1: 10})
    (lock,) = contention(found).locks
    assert lock.held[0].who_holds == "worker"
    other = made(HeldWait(WAITS[0], LOCK, holder(9, pid=4), None, 10), queue={1: 10})
    (lock,) = contention(other).locks
    assert lock.held[0].who_holds == "process 4 'worker-9'"


def test_a_wait_of_no_time() -> None:
    """A thread may be found asleep that was blocked for no time that the kernel counts."""
    brief = replace(WAITS[0], blocked=0.0)
    found = made(HeldWait(brief, LOCK, None, None, 1), queue={1: 1})
    for module in (text, html):
        module.write(io.BytesIO(), found, "prog")


def test_what_a_lock_is() -> None:
    assert Lock.of(TIMER) is None and Lock.of(None) is None
    assert str(Lock.of(TABLE)) == "lock table"
    assert str(Lock.of(Wait("read-write lock", "it", 0x20))) == "read-write lock 0x20"
    assert str(Lock.of(Wait("file lock", "a lock on x"))) == "file lock a file"
    assert Lock.of(Wait("semaphore", "it", 0x20)) is None


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("worker-3", "worker"),
        ("worker/12", "worker"),
        ("io7", "io"),
        ("main", "main"),
        ("12", "12"),
    ],
)
def test_names_of_pools(name: str, group: str) -> None:
    assert thread_group(name) == group


def test_stretches_join_looks_in_one_place() -> None:
    run = place(1, None, frame("work", 3))
    found = made(queue={})
    moments = (0, 10, 20, 40)
    stays = (Stay(0, 1, run), Stay(1, 2, run), Stay(2, 4, WAITS[0]))
    found = SampledTime(1, "p", 1.0, 4, 0.0, found.threads, (), moments=moments, stays=stays)
    assert list(stretches(found)) == [Stretch(1, 0, 20, run), Stretch(1, 20, 53, WAITS[0])]
    assert [class_of(one) for one in (run, WAITS[0], SLEEPS[0])] == ["running", "lock", "sleep"]
    descriptor = place(1, Wait("descriptor", "data"))
    assert class_of(descriptor) == "input"


def unknown(message: Any) -> bool:
    """Whether a message, or one in it, has fields that its schema does not have."""
    if len(UnknownFieldSet(message)):
        return True
    inner = [value for field, value in message.ListFields() if field.type == field.TYPE_MESSAGE]
    rows = [[value] if hasattr(value, "ListFields") else value for value in inner]
    return any(unknown(one) for row in rows for one in row)


def test_perfetto_has_slices_and_samples() -> None:
    """Read with the schema that Perfetto publishes."""
    run = place(1, None, frame("work", 3))
    moments = (0, 10, 20, 40)
    stays = (Stay(0, 2, run), Stay(2, 4, WAITS[0]), Stay(0, 4, SLEEPS[1]))
    threads = made(queue={}).threads
    places = (run, WAITS[0], SLEEPS[1])
    found = SampledTime(1, "p", 1.0, 4, 0.0, threads, places, moments=moments, stays=stays)
    file = io.BytesIO()
    perfetto.write(file, found, "prog")
    trace = perfetto_trace_pb2.Trace.FromString(file.getvalue())
    assert not unknown(trace)
    tracks = {packet.track_descriptor.uuid: packet.track_descriptor for packet in trace.packet}
    names: dict[int, str] = {}
    slices: dict[int, list[tuple[int, str]]] = {}
    samples = 0
    for packet in trace.packet:
        if packet.HasField("perf_sample"):
            samples += 1
        if packet.trusted_packet_sequence_id == 2:
            names |= {one.iid: one.name for one in packet.interned_data.event_names}
        if packet.HasField("track_event"):
            event = packet.track_event
            is_begin = event.type == event.TYPE_SLICE_BEGIN
            what = names[event.name_iid] if is_begin else ""
            tid = tracks[tracks[event.track_uuid].parent_uuid].thread.tid
            slices.setdefault(tid, []).append((packet.timestamp, what))
    assert slices == {
        1: [(0, "runs"), (20, ""), (20, "lock table"), (53, "")],
        2: [(0, "timer"), (53, "")],
    }
    # What ran and was blocked, at each of the four looks.
    assert samples == 8


def test_written() -> None:
    name = "</script><!--<script><b>\x1b[1m"
    evil = HeldWait(place(1, TABLE, frame(name, 7)), LOCK, holder(2), SLEEPS[1], 9)
    found = made(evil, queue={1: 10})
    file = io.BytesIO()
    html.write(file, found, "prog </title>")
    page = file.getvalue().decode()
    assert "<!--" not in page and "<b>\\" not in page
    assert page.count("<script") == 2 == page.count("</script>")
    assert "prog </title>" not in page and "\x1b" not in page
    file = io.BytesIO()
    text.write(file, found, "prog")
    assert "lock table" in file.getvalue().decode() and b"\x1b" not in file.getvalue()
    data = json.loads(json.dumps(document(found)))
    (lock,) = data["locks"]
    assert lock["waits"][0]["holder"]["line"] == 9
    assert data["threads"][0]["waits"][0]["for"] == "lock table"


def test_a_futex_that_nothing_explains_is_not_left_out_without_a_word() -> None:
    """It may be a lock: of Rust's library, of Go's, or of the program's own."""
    unknown = Wait("futex", "a futex", 0x2000, doubt="nothing tells what it belongs to")
    waits = [place(tid, unknown, frame("park", 7, 100 + tid)) for tid in (1, 2)]
    found = replace(made(queue={}), places=tuple(waits))
    said = "2 threads waited ~2.0 s at futexes of which nothing tells what they are"
    file = io.BytesIO()
    text.write(file, found, "prog")
    assert said in file.getvalue().decode()
    file = io.BytesIO()
    html.write(file, found, "prog")
    assert said in file.getvalue().decode()
    notes = document(found)["notes"]
    assert isinstance(notes, list) and any(one.startswith(said) for one in notes)
    assert contention(made(queue={})).notes == ()
