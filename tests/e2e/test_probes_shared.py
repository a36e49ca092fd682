"""Probes that belong together: woven in one stop, with data in common, and read all at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

import weft
from tests.lockstep import Lockstep, lockstep
from weft import _native
from weft.errors import InvalidArgument, LimitReached, WeftError
from weft.model.points import PointKind

Build = Callable[[str], Path]
Item: TypeAlias = "tuple[int, str, list[PointKind], list[int], list[int], bool]"

THREADS = 3


@contextmanager
def attached(
    build: Build, name: str = "counts", threads: int = THREADS
) -> Iterator[tuple[Lockstep, weft.Session, _native.Target]]:
    with lockstep(build(name), threads) as program:
        program.batch(1)
        with weft.attach(program.pid) as session:
            yield program, session, session._target


def item(
    session: weft.Session, number: int, snippet: str, function: str, module: str = "counts"
) -> Item:
    points = [
        point
        for kind in _native.snippet_points(snippet) or ["entry"]
        for point in session.points(f"/Code/{module}/{function}", kind)
    ]
    assert points
    return (
        number,
        snippet,
        [point.kind for point in points],
        [point.address for point in points],
        [point.target for point in points],
        False,
    )


def regions(pid: int) -> int:
    """Count the pieces of memory that weft has in a program."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return sum("weft-" in line for line in maps.splitlines())


INSIDE = "local inside\nat entry { inside += 1 }\nat exit { inside -= 1 }"


def test_a_local_of_one_probe_decides_in_another(build: Build) -> None:
    with attached(build) as (program, session, target):
        caller, callee, all_calls = target.reserve_probes(3)
        target.insert_many(
            [
                item(session, caller, INSIDE, "switching"),
                item(
                    session,
                    callee,
                    f"local inside of {caller}\ncounter calls shared\nif inside {{ calls += 1 }}",
                    "tiny",
                ),
                item(session, all_calls, "counter calls shared\ncalls += 1", "tiny"),
            ]
        )
        counts = program.batch(900)
        # Every ninth number of a batch has switching() call tiny().
        assert target.probe_counters(callee, "calls") == [THREADS * 100]
        assert target.probe_counters(all_calls, "calls") == [counts["tiny"]]


def test_probes_add_to_one_counter(build: Build) -> None:
    with attached(build) as (program, session, target):
        probe = session.insert("/Code/counts/tiny", "counter calls shared; calls += 1")
        first = probe._parts[0].number
        (second,) = target.reserve_probes(1)
        text = f"counter calls shared of {first}\ncalls += 1"
        target.insert_many([item(session, second, text, "normal")])
        (third,) = target.reserve_probes(1)
        text = f"counter calls shared of {second}\ncalls += 1"
        target.insert_many([item(session, third, text, "even")])
        counts = program.batch(100)
        total = counts["tiny"] + counts["normal"] + counts["even"]
        for number in (first, second, third):
            assert target.probe_counters(number, "calls") == [total]


def test_a_batch_takes_one_stop(build: Build) -> None:
    with attached(build) as (program, session, target):
        # The first probe of all needs memory, which takes a stop of its own.
        session.insert("/Code/counts/tiny", "counter n; n += 1").remove()
        names = sorted(set(program.batch(1)) - {"one_byte", "jumped_into"})
        numbers = target.reserve_probes(len(names))
        items = [
            item(session, number, "counter calls\ncalls += 1", name)
            for number, name in zip(numbers, names, strict=True)
        ]
        program.go()
        before = len(session.pauses())
        target.insert_many(items)
        assert len(session.pauses()) == before + 1
        program.rest()
        before_batch = [sum(target.probe_counters(number, "calls")) for number in numbers]
        counts = program.batch(100)
        for number, name, earlier in zip(numbers, names, before_batch, strict=True):
            assert not target.probe_refused(number)
            assert sum(target.probe_tactics(number).values()) == 1
            assert sum(target.probe_counters(number, "calls")) - earlier == counts[name]


def test_what_cannot_be_shared(build: Build) -> None:
    with attached(build) as (program, session, target):
        one = session.insert("/Code/counts/tiny", "local x; counter c shared; c += 1")
        number = one._parts[0].number
        code = session.read(session.points("/Code/counts/normal")[0].address, 16)
        wrong = [
            f"local y of {number}",
            f"mark x of {number}",
            f"timer c wall of {number}",
            "local x of 4711",
        ]
        for text in wrong:
            good, bad = target.reserve_probes(2)
            with pytest.raises(InvalidArgument):
                target.insert_many(
                    [
                        item(session, good, "counter n shared\nn += 1", "normal"),
                        item(session, bad, text + "\ncounter n\nn += 1", "even"),
                    ]
                )
            with pytest.raises(InvalidArgument):
                target.probe_data(good)
            # Its number is free, and nothing was woven.
            assert session.read(session.points("/Code/counts/normal")[0].address, 16) == code
            target.insert_many([item(session, good, "counter n shared\nn += 1", "even")])
            target.remove_probes([good])
        with pytest.raises(InvalidArgument, match="number"):
            target.insert_many([item(session, number, "counter n\nn += 1", "even")])
        with pytest.raises(InvalidArgument, match="number"):
            target.insert_many([item(session, 4711, "counter n\nn += 1", "even")])
        counts = program.batch(50)
        assert one.value("c") == counts["tiny"]


def test_data_of_different_memory_cannot_be_used_together(build: Build) -> None:
    with attached(build) as (_, session, target):
        small = session.insert("/Code/counts/tiny", "local x; counter c shared; c += 1")
        large = session.insert("/Code/counts/tiny", "local y; map m[1] 65536; m[1] += 1")
        first, second = small._parts[0].number, large._parts[0].number
        (third,) = target.reserve_probes(1)
        text = f"local x of {first}\nlocal y of {second}\nx += y"
        with pytest.raises(InvalidArgument, match="reach"):
            target.insert_many([item(session, third, text, "tiny")])
        text = f"local x of {first}\nmap n[1] 65536\nn[x] += 1"
        with pytest.raises(LimitReached, match="room"):
            target.insert_many([item(session, third, text, "tiny")])
        # In one batch there is room for both.
        fourth, fifth = target.reserve_probes(2)
        target.insert_many(
            [
                item(session, fourth, "local x", "tiny"),
                item(session, fifth, f"local x of {fourth}\nmap n[1] 65536\nn[x] += 1", "tiny"),
            ]
        )


def test_values_of_threads(build: Build) -> None:
    with attached(build) as (program, session, target):
        text = (
            "counter calls\nhistogram h log2\nmap m[1] 16\ntimer t wall\n"
            "at entry { calls += 1; h << arg(0); m[thread] += 1; start t }\nat exit { stop t }"
        )
        probe = session.insert("/Code/counts/tiny", text)
        counts = program.batch(90)
        by_thread = probe.value("m")
        assert isinstance(by_thread, dict)
        workers = {thread.tid for thread in session.threads()} - {program.pid}
        assert by_thread == dict.fromkeys(workers, counts["tiny"] // THREADS)
        assert probe.threads() == [(program.pid, tid) for tid in sorted(workers)]
        assert target.probe_threads() == probe.threads()
        for tid in workers:
            calls = probe.value("calls", thread=tid)
            assert calls == counts["tiny"] // THREADS
            assert sum(probe.values("calls", thread=tid).values()) == calls
            assert probe.value("m", thread=tid) == {tid: calls}
            histogram, timer = probe.value("h", thread=tid), probe.value("t", thread=tid)
            assert isinstance(histogram, weft.Histogram)
            assert isinstance(timer, weft.Timer)
            assert histogram.count == timer.count == calls
        assert probe.value("calls", thread=program.pid) == 0
        assert probe.value("calls", process=1, thread=min(workers)) == 0


def test_a_sampler_reads_what_there_is(build: Build) -> None:
    text = (
        "counter a\ncounter b shared\ntimer t wall\nhistogram h log2\nmap m[1] 2\nring r(x) 64\n"
        "at entry { a += 1; b += 2; start t; h << arg(0); m[arg(0)] += 3; emit r(1) }\n"
        "at exit { stop t }"
    )
    names = ["a", "b", "t", "h", "m", "r"]
    with attached(build) as (program, session, target):
        probe = session.insert("/Code/counts/tiny", text)
        number = probe._parts[0].number
        sampler = _native.Sampler(target, [(number, name) for name in names])
        assert sampler.read() == [0] * 10
        calls = program.batch(900)["tiny"]
        a, b, ns, timed, observed, total, added, lost_adds, written, lost = sampler.read()
        assert (a, b, timed, observed) == (calls, 2 * calls, calls, calls)
        timer, histogram, entries = probe.value("t"), probe.value("h"), probe.value("m")
        assert isinstance(timer, weft.Timer)
        assert isinstance(histogram, weft.Histogram)
        assert isinstance(entries, dict)
        assert ns == timer.ns > 0
        assert total == histogram.sum
        assert added == sum(entries.values())
        assert added + 3 * lost_adds == 3 * calls
        assert (written, lost) == (THREADS * 64, calls - THREADS * 64)
        assert len(probe.records("r")) == written
        last = sampler.read()
        probe.remove()
        program.batch(10)
        assert sampler.read() == last
        with pytest.raises(InvalidArgument):
            _native.Sampler(target, [(number, "nothing")])
        session.detach()
        assert sampler.read() == last
        target.discard_probe(number)
        with pytest.raises(InvalidArgument):
            sampler.read()


def test_a_sampler_is_fast(build: Build) -> None:
    with attached(build) as (program, session, target):
        declared = "\n".join(f"counter c{index} shared" for index in range(1000))
        text = f"{declared}\nc0 += 1; c999 += 1"
        probe = session.insert("/Code/counts/tiny", text)
        number = probe._parts[0].number
        sampler = _native.Sampler(target, [(number, name) for name in probe.names])
        calls = program.batch(100)["tiny"]
        times = []
        for _ in range(50):
            begin = time.perf_counter()
            values = sampler.read()
            times.append(time.perf_counter() - begin)
        assert (values[0], values[1], values[999]) == (calls, 0, calls)
        print(f"1000 counters: {min(times) * 1e6:.0f} microseconds")
        assert min(times) < 1e-3


def test_only_removed_probes_can_be_discarded(build: Build) -> None:
    with attached(build) as (program, session, target):
        probe = session.insert("/Code/counts/tiny", "counter calls; calls += 1")
        number = probe._parts[0].number
        with pytest.raises(InvalidArgument, match="in use"):
            target.discard_probe(number)
        probe.disable()
        with pytest.raises(InvalidArgument, match="in use"):
            target.discard_probe(number)
        probe.remove()
        target.discard_probe(number)
        with pytest.raises(InvalidArgument):
            probe.value("calls")
        with pytest.raises(InvalidArgument):
            target.discard_probe(number)
        program.batch(1)


def test_what_is_used_by_others_stays_when_its_probe_is_discarded(build: Build) -> None:
    with attached(build) as (program, session, target):
        first, second = target.reserve_probes(2)
        target.insert_many(
            [
                item(session, first, "counter calls shared\ncalls += 1", "tiny"),
                item(session, second, f"counter calls shared of {first}\ncalls += 1", "normal"),
            ]
        )
        before = program.batch(100)
        target.remove_probes([first])
        target.discard_probe(first)
        others = [session.insert("/Code/counts/even", "counter n shared; n += 1") for _ in "ab"]
        after = program.batch(100)
        total = before["tiny"] + before["normal"] + after["normal"]
        assert target.probe_counters(second, "calls") == [total]
        assert [other.value() for other in others] == [after["even"]] * 2


@pytest.mark.watchdog(300)
def test_room_is_used_again(build: Build) -> None:
    text = (
        "counter calls\nhistogram took log2\nmark began\ncounter odd shared\n"
        "at entry { stamp began; calls += 1 }\n"
        "at exit { let t = since(began); if t < 0 { odd += 1 } else { took << t } }"
    )
    with attached(build) as (program, session, target):
        sizes = set()
        example = item(session, 0, text, "tiny")
        for cycle in range(2000):
            (number,) = target.reserve_probes(1)
            target.insert_many([(number, *example[1:])])
            if cycle % 20 == 0:
                calls = program.batch(9)["tiny"]
                assert sum(target.probe_counters(number, "calls")) == calls
                buckets, _ = target.probe_histogram(number, "took")
                assert sum(count for _, _, count in buckets) == calls
                assert target.probe_counters(number, "odd") == [0]
            if cycle == 1000:
                program.go()
            if cycle == 1019:
                program.rest()
            target.remove_probes([number])
            target.discard_probe(number)
            sizes.add(regions(program.pid))
        assert len(sizes) == 1


def test_a_target_that_ends_leaves_no_probe_half_there(build: Build) -> None:
    with attached(build) as (program, session, target):
        session.insert("/Code/counts/tiny", "counter n; n += 1")
        (number,) = target.reserve_probes(1)
        wanted = item(session, number, "counter n\nn += 1", "normal")
        program.end()
        time.sleep(0.2)
        with pytest.raises(WeftError):
            target.insert_many([wanted])
        with pytest.raises(InvalidArgument):
            target.probe_data(number)
