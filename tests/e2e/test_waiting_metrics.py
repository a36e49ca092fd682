"""Waiting for locks, by lock, and for processors, by thread, against what programs measure."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.e2e.harness import eventually
from weft.errors import InvalidArgument
from weft.model.measured import Measured

Build = Callable[[str], Path]

CLOSE = 0.03


class Told:
    """A program that does what it is told, line by line, and answers each with what came of it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process
        assert self._hear() == "ready"

    def say(self, line: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return json.loads(self._hear())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def told(*command: str | Path) -> Iterator[Told]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Told(process)
        finally:
            process.kill()


def by_name(metric: Measured) -> dict[str, float]:
    """The values of a metric by what comes before the numbers in its keys."""
    value = metric.value
    assert isinstance(value, dict)
    return {key.partition(" (")[0]: float(one) for key, one in value.items()}


def total(metric: Measured) -> float:
    value = metric.value
    assert isinstance(value, int | float)
    return value


# Locks.


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_lock_wait_by_lock_is_what_threads_wait_for_each(build: Build, weaver: Any) -> None:
    with told(build("contended")) as program, weft.attach(program.pid, weaver=weaver) as it:
        session = it.session if weaver == "clone" else it
        waits = session.metric("lock_wait", by="lock")
        often = session.metric("lock_contention", by="lock")
        truth = program.say("60")
        found, counts = by_name(waits), by_name(often)
        names = {"journal": "journal_lock", "pool": "pool+0x28", "heap": hex(truth["heap_at"])}
        assert set(names.values()) <= found.keys()
        for name, key in names.items():
            # Getting a free lock is shorter than the two readings of the clock around it.
            seconds, calls = truth[f"{name}_ns"] / 1e9, truth[f"{name}_calls"]
            assert found[key] == pytest.approx(seconds, rel=CLOSE, abs=calls * 5e-6)
        assert found["journal_lock"] > 2 * found["pool+0x28"]
        assert max(counts, key=lambda key: counts[key]) == "journal_lock"
        assert waits.completeness.is_exact
        # The threads that counted have ended, and so may others have without being seen.
        assert set(counts) <= found.keys()


def test_a_lock_taken_within_the_taking_of_another_has_its_own_time(build: Build) -> None:
    """The program's pthread_mutex_lock calls that of the C library, for its books and for the lock.

    So the time of its own is there twice for the lock, and once for the books.
    """
    with told(build("contended_wrapped")) as program, weft.attach(program.pid) as session:
        metric = session.metric("lock_wait", by="lock")
        truth = program.say("60")
        found = by_name(metric)
        keys = {"journal": "journal_lock", "pool": "pool+0x28", "books": "books"}
        for name, key in keys.items():
            seconds, calls = truth[f"{name}_ns"] / 1e9, truth[f"{name}_calls"]
            assert found[key] == pytest.approx(seconds, rel=CLOSE, abs=calls * 5e-6)
        assert not [key for key in found if key.startswith("(locks taken")]


def test_locks_have_names_when_the_program_has_ended(build: Build) -> None:
    with told(build("contended")) as program, weft.attach(program.pid) as session:
        metric = session.metric("lock_contention", by="lock")
        program.say("5")
        program.end()
        assert "journal_lock" in by_name(metric)


def test_what_is_about_no_lock_is_not_divided_by_locks(build: Build) -> None:
    with told(build("contended")) as program, weft.attach(program.pid) as session:
        for metric in ("lock_hold", "io_bytes", "calls"):
            focus = "/Code/contended/want" if metric == "calls" else ""
            with pytest.raises(InvalidArgument, match=f"{metric} cannot be divided by lock") as no:
                session.metric(metric, focus, by="lock")
            assert "lock_calls" in no.value.why
            assert "lock_wait" in no.value.advice
        with pytest.raises(InvalidArgument, match="known for the whole process only"):
            session.metric("page_faults", by="lock")


# Processors.


def test_runnable_is_what_threads_wait_for_their_processor(build: Build) -> None:
    with told(build("off_cpu"), "4", "pinned") as program, weft.attach(program.pid) as session:
        runnable = session.metric("runnable", "/Thread/worker-*")
        by_thread = session.metric("runnable", by="thread")
        one = session.metric("runnable", "/Thread/worker-1")
        off = session.metric("off_cpu", "/Thread/worker-*")
        workers = program.say("compute 400")
        waited = sum(one["wall"] - one["cpu"] for one in workers) / 1e9
        value, each = total(runnable), by_name(by_thread)
        assert value == pytest.approx(waited, rel=CLOSE)
        assert sum(each.values()) == pytest.approx(value + each.get("off_cpu", 0), rel=CLOSE)
        for number, worker in enumerate(workers):
            own = (worker["wall"] - worker["cpu"]) / 1e9
            assert each[f"worker-{number}"] == pytest.approx(own, rel=CLOSE, abs=0.03)
            assert each[f"worker-{number}"] >= worker["waited"] / 1e9
        # It may have had to wait for its processor between the two readings.
        assert total(one) == pytest.approx(each["worker-1"], rel=CLOSE)
        assert total(off) >= value
        for metric in (runnable, by_thread, one, off):
            assert metric.completeness.is_exact
            assert (metric.unit, metric.is_monotonic) == ("s", True)


def test_off_cpu_is_what_threads_do_not_run(build: Build) -> None:
    with told(build("off_cpu"), "2") as program, weft.attach(program.pid) as session:
        before = time.monotonic()
        metric = session.metric("off_cpu", by="thread")
        first = session.metric("off_cpu", "/Thread/worker-0")
        began = time.monotonic()
        ran = [0.0, 0.0]
        for _ in range(3):
            for number, worker in enumerate(program.say("sleeps  300")):
                ran[number] += worker["cpu"] / 1e9
        read = time.monotonic()
        found, value = by_name(metric), total(first)
        end = time.monotonic()
        for number in (0, 1):
            least, most = read - began - ran[number], end - before - ran[number]
            assert least * (1 - CLOSE) <= found[f"worker-{number}"] <= most * (1 + CLOSE)
        assert value == pytest.approx(found["worker-0"], rel=CLOSE)
        assert found["off_cpu"] <= (end - before) * (1 + CLOSE)
        assert metric.completeness.is_exact


def test_a_thread_counts_from_its_birth(build: Build) -> None:
    with told(build("off_cpu"), "1") as program, weft.attach(program.pid) as session:
        off, runnable = (session.metric(name, by="thread") for name in ("off_cpu", "runnable"))
        program.say("start")
        *_, late = program.say("sleeps  600")
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        found = by_name(off)
        lived = now - late["born"]
        assert found["worker-1"] == pytest.approx((lived - late["cpu"]) / 1e9, rel=CLOSE)
        assert by_name(runnable).get("worker-1", 0) >= late["waited"] / 1e9
        assert off.completeness.is_exact
        assert runnable.completeness.is_exact


@pytest.mark.parametrize("name", ["off_cpu", "runnable"])
def test_threads_that_nobody_sees_make_it_incomplete(build: Build, name: str) -> None:
    with told(build("off_cpu"), "1") as program, weft.attach(program.pid) as session:
        metric, other = session.metric(name), session.metric(name, "/Thread/worker-0")
        session.metrics.sample()
        before = total(metric)
        began = time.monotonic()
        program.say("brief 100 1")
        lived = time.monotonic() - began
        value, (missing,) = total(metric), metric.completeness.missing
        assert missing.what == "threads"
        assert "have come and gone without being looked at" in missing.why
        assert missing.advice == "a shorter --interval"
        if name == "off_cpu":
            # Two threads are known all the time, and nothing was made up for the others.
            assert value - before <= 2 * (time.monotonic() - began) * (1 + CLOSE)
            assert lived > 0.1
        # One of them may have had the name.
        total(other)
        assert not other.completeness.is_exact


@pytest.mark.parametrize("name", ["off_cpu", "runnable"])
def test_what_a_thread_did_before_it_ended_is_kept(build: Build, name: str) -> None:
    with told(build("off_cpu"), "3", "pinned") as program, weft.attach(program.pid) as session:
        metric, each = session.metric(name), session.metric(name, by="thread")
        stays = session.metric(name, "/Thread/worker-0")
        tids = [worker["tid"] for worker in program.say("compute 200")]
        first = session.metric(name, f"/Thread/{tids[0]}")
        session.metrics.sample()
        before, kept = total(metric), by_name(each)
        assert metric.completeness.is_exact
        program.say("stop")
        program.say("stop")
        assert total(metric) >= before
        assert by_name(each)["worker-2"] == pytest.approx(kept["worker-2"], rel=1e-6)
        (missing,) = metric.completeness.missing
        assert (missing.what, missing.count) == ("threads", 2)
        assert "they have ended" in missing.why
        assert "a shorter --interval" in missing.advice
        assert first.completeness.is_exact
        assert not any(one.count for one in stays.completeness.missing)


def test_the_first_thread_may_end(build: Build) -> None:
    with told(build("off_cpu"), "1") as program, weft.attach(program.pid) as session:
        off, runnable = session.metric("off_cpu"), session.metric("runnable")
        session.metrics.sample()
        program.say("leave")
        eventually(lambda: state(program.pid) == "Z")
        total(off), total(runnable)
        # When it ended is not known; but the kernel still tells how long it had waited.
        assert [one.count for one in off.completeness.missing] == [1]
        assert runnable.completeness.is_exact
        before = time.monotonic()
        later = session.metric("off_cpu", by="thread")
        began = time.monotonic()
        (worker,) = program.say("sleeps  500")
        read = time.monotonic()
        value = later.value
        end = time.monotonic()
        assert isinstance(value, dict)
        assert not any(key.endswith(f"({program.pid})") for key in value)
        found = next(value[key] for key in value if key.startswith("worker-0"))
        ran = worker["cpu"] / 1e9
        assert (read - began - ran) * (1 - CLOSE) <= found <= (end - before - ran) * (1 + CLOSE)
        assert later.completeness.is_exact
        assert [one.count for one in off.completeness.missing] == [1]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_end_of_the_process_is_told(build: Build) -> None:
    with told(build("off_cpu"), "1") as program, weft.attach(program.pid) as session:
        metric = session.metric("off_cpu")
        program.say("sleeps  100")
        session.metrics.sample()
        before = total(metric)
        program.end()
        assert total(metric) >= before
        (missing,) = metric.completeness.missing
        assert "the process had ended" in missing.why
        assert metric.completeness.status == "incomplete"


def test_what_the_kernel_does_not_know_is_refused(build: Build) -> None:
    with told(build("off_cpu"), "1") as program, weft.attach(program.pid) as session:
        for name in ("runnable", "off_cpu"):
            for by in ("function", "module", "caller", "lock", "$thread"):
                with pytest.raises(InvalidArgument, match="whole process and for its") as no:
                    session.metric(name, by=by)
                assert f"-m {name} --by thread" in no.value.advice
            for focus in ("/Code/off_cpu", "/Code/off_cpu/spin", f"/Process/{program.pid}"):
                with pytest.raises(InvalidArgument, match="whole process and for its"):
                    session.metric(name, focus)
            with pytest.raises(InvalidArgument, match="there is no thread 1 in process"):
                session.metric(name, "/Thread/1")
        with pytest.raises(InvalidArgument, match="known for the whole process only"):
            session.metric("page_faults", by="thread")
        with pytest.raises(InvalidArgument, match="known for the whole process only"):
            session.metric("page_faults", "/Thread/worker-0")
