"""Where threads spend their time: as they know themselves, and without their noticing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Timer, get_native_id
from typing import TypeAlias

import pytest

from tests.e2e.harness import Background
from tests.e2e.test_stacks import OWN, WAYS, rest, waiting
from weft.model.sampled import PlaceTime, SampledTime
from weft.program.sampler import ThreadSampler

Build: TypeAlias = Callable[[str], Path]


def own_functions(place: PlaceTime) -> list[str]:
    names = [frame.function or "?" for frame in place.frames if not frame.inlined]
    return [name for name in names if name in OWN]


def by_name(found: SampledTime) -> dict[str, list[PlaceTime]]:
    names = {thread.tid: thread.name for thread in found.threads}
    result: dict[str, list[PlaceTime]] = {}
    for place in found.places:
        result.setdefault(names[place.tid], []).append(place)
    return result


@pytest.mark.parametrize("kind", ["O2", "O0", "no_pie", "static", "frame_pointers", "musl"])
def test_threads_are_found_where_they_are(build: Build, kind: str) -> None:
    with waiting(build(f"stacks_{kind}")) as pid:
        rest(pid)
        sampler = ThreadSampler(pid)
        assert sampler.watch(0.5)
        found = sampler.result()
        assert found.looks > 5
        places = by_name(found)
        for number, expected in enumerate(WAYS):
            for place in places[f"way {number}"]:
                if expected[0] == "in_loop" and not place.frames:
                    # On a busy machine it may not have its turn in time, and says so.
                    continue
                assert own_functions(place) == expected and place.cut is None, (number, place)
                assert place.is_blocked == (expected[0] != "in_loop"), (number, place)


def test_times_are_those_of_the_threads(build: Build) -> None:
    """Running time is the kernel's; blocked time is that of what blocks, and names its holder."""
    with Background([build("timed")]) as program:
        program.wait_for_line(b"ready")
        sampler = ThreadSampler(program.pid)
        began = time.monotonic()
        assert sampler.watch(2.0)
        found = sampler.result()
        assert found.seconds == pytest.approx(time.monotonic() - began, rel=0.1)
        threads = {thread.name: thread for thread in found.threads}
        for thread in threads.values():
            assert thread.running + thread.runnable <= thread.seconds * 1.03
        # By sums: each thread was somewhere all the time.
        for thread in threads.values():
            places = [place for place in found.places if place.tid == thread.tid]
            total = sum(place.seconds("running", "runnable", "blocked") for place in places)
            assert total == pytest.approx(thread.seconds, rel=0.03)
        named = by_name(found)
        for place in named["computes"]:
            if place.running and place.frames:
                assert "compute" in [frame.function for frame in place.frames], place
        locked = [
            place
            for place in named["contends"]
            if place.wait is not None and place.wait.kind == "lock"
        ]
        # It waits for each of the other's holds: about 5 of 10 milliseconds.
        share = sum(place.blocked for place in locked) / threads["contends"].seconds
        assert 0.3 < share < 0.7
        holders = {holder.name for place in locked for holder, _ in place.holders}
        assert holders == {"holds"}
        assert all("contend" in [frame.function for frame in place.frames] for place in locked)
        assert program.finish()[0] == 0


def test_running_time_is_exact(build: Build) -> None:
    """The kernel counts what a thread's own clock counts."""
    with subprocess.Popen(
        [build("timed")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            began = time.monotonic()
            sampler = ThreadSampler(process.pid)
            unseen = time.monotonic() - began
            assert sampler.watch(1.0)
            during = {thread.name: thread for thread in sampler.result().threads}
            ended = time.monotonic()
            process.stdin.close()
            own = [float(word) for word in process.stdout.read().split()]
            assert process.wait(30) == 0
        finally:
            process.kill()
    # What it ran before and after is not more than the time that passed then.
    unseen += time.monotonic() - ended + 0.05
    assert own[0] - unseen < during["computes"].running <= own[0]


def test_a_process_that_ends() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        sampler = ThreadSampler(process.pid)
        Timer(0.5, process.kill).start()
        assert not sampler.watch(60.0)
        assert 0 < sampler.result().seconds < 60


def processor(pid: int, tid: int) -> int:
    text = Path(f"/proc/{pid}/task/{tid}/stat").read_text()
    return int(text.rpartition(")")[2].split()[36])


def tracer() -> int:
    """The thread of weft's that stops others."""
    tasks = list(Path("/proc/self/task").iterdir())
    return max(int(one.name) for one in tasks if (one / "comm").read_text() == "weft-tracer\n")


@pytest.mark.alone
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor only")
def test_who_runs_alone_keeps_its_processor() -> None:
    """Weft works on another: the kernel would put it where the program is, and idle ones nearby."""
    before = os.sched_getaffinity(0)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            sampler = ThreadSampler(process.pid)
            own, apart = (tracer(), get_native_id()), Counter[bool]()

            def every() -> bool:
                program = processor(process.pid, process.pid)
                apart[all(processor(os.getpid(), tid) != program for tid in own)] += 1
                return True

            assert sampler.watch(2.0, every=every)
        finally:
            process.kill()
    assert apart[True] > 0.8 * apart.total() > 0, apart
    assert os.sched_getaffinity(0) == before


def test_a_call_in_which_a_thread_lost_its_processor_is_run() -> None:
    """It has not slept there: what it was about to do goes on when it has its turn again."""
    one = min(os.sched_getaffinity(0))
    calls = "import os\nwhile True: os.stat('/proc/self/status')"
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", text], preexec_fn=lambda: os.sched_setaffinity(0, {one})
        )
        for text in (calls, "while True: pass")
    ]
    try:
        sampler = ThreadSampler(programs[0].pid)
        assert sampler.watch(5.0, budget=0.05)
        found = sampler.result()
    finally:
        for program in programs:
            program.kill()
            program.wait()
    in_calls = [place for place in found.places if place.call == "newfstatat"]
    samples = sum(place.samples for place in in_calls)
    everything = sum(place.samples for place in found.places)
    share = sum(place.running for place in in_calls) / found.running
    assert share == pytest.approx(samples / everything, abs=0.1)


def test_a_call_of_unknown_number_is_one(build: Build) -> None:
    with Background([build("numbered_calls")]) as program:
        sampler = ThreadSampler(program.pid)
        assert sampler.watch(1.0)
        found = sampler.result()
    in_calls = [place for place in found.places if place.call is not None]
    assert {place.call for place in in_calls} <= {"a system call", "getrandom"}
    assert sum(place.running for place in in_calls) > 0.8 * found.running


def test_waiting_for_a_processor_is_no_running(build: Build) -> None:
    """Where others have the processors, a thread is mostly found right where it was woken."""
    spin = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spin) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        with subprocess.Popen(
            [build("works_and_naps")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            try:
                assert process.stdout.readline() == "ready\n"
                sampler = ThreadSampler(process.pid)
                assert sampler.watch(6.0, budget=0.05)
                found = sampler.result()
                process.stdin.close()
                share = float(process.stdout.read())
            finally:
                process.kill()
    finally:
        for other in others:
            other.kill()
            other.wait()
    running = Counter[str]()
    samples = 0
    for place in found.places:
        names = [frame.function or "?" for frame in place.frames]
        own = next((name for name in names if name in ("longer", "shorter")), "other")
        running[own] += place.running  # type: ignore[assignment]
        samples += place.samples if place.running else 0
    whole = sum(running.values())
    # Four standard deviations, and some for what is beside both functions.
    error = 4 * (share * (1 - share) / max(samples, 1)) ** 0.5 + 0.05
    assert running["longer"] / whole == pytest.approx(share, abs=error), (running, samples)
    assert running["other"] / whole < 0.2 + 1 / max(samples, 1), running
