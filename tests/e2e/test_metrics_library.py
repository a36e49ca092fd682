"""Every metric of the library says the truth.

The programs know what is true of them, and say it after each batch (``tests/programs/metrics``).
Counts must be equal, and times within 2%, with four threads; and with one, in the long form
(``WEFT_CASES=1000000``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import weft
from tests.e2e.harness import PROGRAMS, eventually, is_blocked
from tests.lockstep import Lockstep, lockstep
from tests.probing import IS_LONG
from weft.errors import BadSnippet
from weft.model.measured import Measured
from weft.model.values import Histogram

Build = Callable[[str], Path]

LIBRARY = Path(weft.__file__).parent / "metrics" / "library"
AMOUNT = 30
TOLERANCE = 0.02
MOST_BATCHES = 9
"""How often a time may be looked at: one batch in which no thread loses its processor is enough."""

# What is right with four threads is so with one: that is for the long form.
every_number = pytest.mark.parametrize("threads", [1, 4] if IS_LONG else [4])


@dataclass(frozen=True)
class Case:
    """A metric of a part of a program, and the value that must come out.

    ``unit`` is what a value of 1 is in the truth's: seconds are 1e9 nanoseconds.
    """

    metric: str
    program: str
    part: str
    truth: str
    unit: float = 1
    is_time: bool = False

    @property
    def focus(self) -> str:
        return f"/Code/metric_{self.program}/{self.part}" if self.part else ""

    def __str__(self) -> str:
        return f"{self.metric}@{self.program}/{self.part}" if self.part else self.metric


def count(metric: str, program: str, part: str, truth: str) -> Case:
    return Case(metric, program, part, truth)


def seconds(metric: str, program: str, part: str, truth: str) -> Case:
    return Case(metric, program, part, truth, 1e9, is_time=True)


CASES = [
    count("calls", "procedures", "leaf", "leaf_calls"),
    count("calls", "procedures", "recurses", "recurses_calls"),
    count("call_rate", "procedures", "caller", "caller_calls"),
    seconds("inclusive_time", "procedures", "leaf", "leaf_ns"),
    seconds("inclusive_time", "procedures", "caller", "caller_ns"),
    seconds("inclusive_time", "procedures", "recurses", "recurses_ns"),
    seconds("exclusive_time", "procedures", "caller", "caller_own_ns"),
    seconds("cpu_time", "procedures", "caller", "caller_cpu_ns"),
    count("syscalls", "syscalls", "", "all_syscalls"),
    count("syscalls", "syscalls", "does_syscalls", "work_syscalls"),
    count("syscalls", "syscalls", "asks", "asks_syscalls"),
    seconds("syscall_time", "syscalls", "sleeps", "sleeps_ns"),
    count("io_bytes", "io", "", "all_bytes"),
    count("io_bytes", "io", "moves_bytes", "moves_bytes"),
    count("io_bytes", "io", "waits", "waits_bytes"),
    seconds("io_wait", "io", "waits", "waits_ns"),
    seconds("lock_wait", "locks", "", "wait_ns"),
    seconds("lock_wait", "locks", "locks", "worker_wait_ns"),
    seconds("lock_hold", "locks", "", "hold_ns"),
    seconds("lock_hold", "locks", "locks", "worker_hold_ns"),
    count("alloc_bytes", "memory", "", "bytes"),
    count("alloc_bytes", "memory", "keeps", "kept_bytes"),
    count("alloc_bytes", "aligned", "", "bytes"),
    count("alloc_rate", "memory", "", "allocations"),
    count("alloc_rate", "aligned", "", "allocations"),
    count("live_bytes", "memory", "", "live"),
    count("live_bytes", "memory", "keeps", "kept_live"),
    count("live_bytes", "aligned", "", "live"),
    count("live_bytes", "obsolete", "", "live"),
    count("exceptions", "events", "", "thrown"),
    count("exceptions", "events", "throws_deep", "deep_thrown"),
    count("thread_starts", "events", "", "started"),
    count("thread_starts", "events", "starts", "started"),
    count("blocks", "code", "sums", "blocks"),
    count("branches_taken", "code", "sums", "taken"),
    count("loads", "code", "sums", "loads"),
    count("stores", "code", "sums", "stores"),
]

TESTED_ELSEWHERE = {
    *("latency", "lock_contention", "page_faults", "process_io_bytes"),
    *("off_cpu", "runnable"),
}


WEAVER = "patch"


@pytest.fixture(autouse=True, params=["patch", "clone"])
def each_weaver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have to give the same answers."""
    monkeypatch.setattr(sys.modules[__name__], "WEAVER", request.param)


@contextmanager
def measured(program: Path, threads: int) -> Iterator[tuple[Lockstep, weft.Session]]:
    """Run a program and attach to it while it rests."""
    with lockstep(program, threads) as target:
        rest(target)
        if WEAVER == "clone":
            with weft.attach(target.pid, weaver="clone") as cloned:
                yield target, cloned.session
            return
        with weft.attach(target.pid) as session:
            yield target, session


def number(metric: Measured) -> int | float:
    value = metric.value
    assert isinstance(value, int | float)
    return value


def histogram(metric: Measured) -> Histogram:
    value = metric.value
    assert isinstance(value, Histogram)
    return value


def rest(target: Lockstep) -> None:
    """Wait until nothing moves any more: those who have said that they are done go on a little."""
    eventually(lambda: is_blocked(target.pid))


def batches(target: Lockstep, amount: int = AMOUNT, most: int = 3) -> Iterator[dict[str, int]]:
    """Have it work some times, and say each time what is true of all that it did."""
    total: dict[str, int] = {}
    for _ in range(most):
        truth = target.counts(f"batch {amount}")
        rest(target)
        total = {name: total.get(name, 0) + value for name, value in truth.items()}
        yield total


class Times:
    """Times of several batches, beside the true ones.

    A thread that loses its processor between weft's look at the clock and the program's own makes a
    batch longer for one of them. So the best batch counts: what is wrong by itself is wrong in all.
    """

    def __init__(self) -> None:
        self._last = (0.0, 0.0)
        self._ratios: list[float] = []

    def add(self, value: float, expected: float) -> None:
        before, expected_before = self._last
        self._ratios.append((value - before) / (expected - expected_before))
        self._last = value, expected

    def are_true(self) -> bool:
        return min(abs(ratio - 1) for ratio in self._ratios) <= TOLERANCE

    def check(self) -> None:
        assert self.are_true(), self._ratios


@every_number
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_metric_is_true(case: Case, threads: int, build: Build) -> None:
    with measured(build(f"metric_{case.program}"), threads) as (target, session):
        if WEAVER == "clone" and case.metric == "live_bytes":
            with pytest.raises(BadSnippet, match="calls a function of the program"):
                session.metric(case.metric, focus=case.focus)
            return
        metric = session.metric(case.metric, focus=case.focus)
        times = Times()
        for truth in batches(target, most=MOST_BATCHES if case.is_time else 3):
            value, expected = metric.value, truth[case.truth] / case.unit
            if metric.kind == "rate":
                # What it was per second came to this in all.
                session.metrics.sample()
                value = sum(sample.change for sample in metric.history())
            if case.is_time:
                assert isinstance(value, (int, float))
                times.add(value, expected)
                if times.are_true():
                    break
            else:
                assert value == expected
        if case.is_time:
            times.check()
        metric.remove()


@every_number
def test_latency_has_every_call(threads: int, build: Build) -> None:
    with measured(build("metric_procedures"), threads) as (target, session):
        leaf = session.metric("latency", focus="/Code/metric_procedures/leaf")
        recurses = session.metric("latency", focus="/Code/metric_procedures/recurses")
        leaf_times, recursive_times = Times(), Times()
        for truth in batches(target):
            assert histogram(leaf).count == truth["leaf_calls"]
            leaf_times.add(histogram(leaf).sum, truth["leaf_ns"])
            assert histogram(recurses).count == truth["recurses_calls"]
            recursive_times.add(histogram(recurses).sum, truth["recurses_calls_ns"])
        leaf_times.check()
        recursive_times.check()
        # It never slept for less than it wanted to.
        assert all(bucket.high >= 2_000_000 for bucket in histogram(leaf).buckets if bucket.count)


@pytest.mark.alone
@every_number
def test_locks_that_are_waited_for_are_contended(threads: int, build: Build) -> None:
    with measured(build("metric_locks"), threads) as (target, session):
        everyone = session.metric("lock_contention")
        workers = session.metric("lock_contention", focus="/Code/metric_locks/locks")
        for truth in batches(target):
            # Who gets a free lock may lose the processor meanwhile, and so take long as well: in
            # the call, or between the call and the program's own look at the clock.
            assert 0.98 * truth["contended"] <= number(everyone) <= truth["perhaps_contended"]
            least, most = (truth[f"worker_{which}contended"] for which in ("", "perhaps_"))
            assert 0.98 * least <= number(workers) <= most
            assert truth["contended"] > truth["worker_contended"] > 0


@every_number
def test_page_faults_are_those_that_the_kernel_counts(threads: int, build: Build) -> None:
    with measured(build("metric_memory"), threads) as (target, session):
        metric = session.metric("page_faults")
        # The first batches touch all sorts of things for the first time.
        target.counts("batch 1000")
        rest(target)
        true_before = target.counts(f"batch {AMOUNT}")["page_faults"]
        rest(target)
        before = number(metric)
        truth = target.counts("batch 1000")["page_faults"] - true_before
        rest(target)
        assert truth >= 1000 * threads
        # A thread may still touch a page after the program has asked the kernel.
        assert number(metric) - before == pytest.approx(truth, abs=threads)


@every_number
def test_the_kernel_counts_what_is_read_and_written(threads: int, build: Build) -> None:
    with measured(build("metric_io"), threads) as (target, session):
        kernel = session.metric("process_io_bytes")
        before = number(kernel)
        for _ in batches(target):
            pass
        rest(target)
        assert number(kernel) > before


@every_number
def test_a_thread_has_its_own_value(threads: int, build: Build) -> None:
    with measured(build("metric_procedures"), threads) as (target, session):
        first = session.metric("calls", focus="/Code/metric_procedures/leaf,/Thread/worker-0")
        workers = session.metric("calls", focus="/Code/metric_procedures/leaf,/Thread/worker-*")
        for truth in batches(target):
            assert first.value == truth["leaf_calls"] / threads
            assert workers.value == truth["leaf_calls"]


def test_every_metric_of_the_library_is_tested() -> None:
    texts = [file.read_text() for file in LIBRARY.glob("*.mdl")]
    names = {
        line.split()[1] for text in texts for line in text.splitlines() if line[:7] == "metric "
    }
    assert names == {case.metric for case in CASES} | TESTED_ELSEWHERE


MESSAGES = {
    "": "all",
    "/Code/pvm/exchanges": "exchanges_msgs",
    "/Code/pvm/gathers": "gathers_msgs",
    "/Code/pvm/scatters": "scatters_msgs",
    "/Code/pvm/relays": "relays_msgs",
    "/Code/pvm_solve.c": "solve_msgs",
    "/Code/pvm_spread.c": "spread_msgs",
    "/Code/pvm_solve.c/gathers": "gathers_msgs",
    "/SyncObject/MsgTag/0": "tag_0",
    "/SyncObject/MsgTag/1": "tag_1",
    "/SyncObject/MsgTag/2": "tag_2",
    "/SyncObject/MsgTag/3": "tag_3",
    "/Code/pvm/gathers,/SyncObject/MsgTag/2": "gathers_tag_2",
    "/Code/pvm_solve.c,/SyncObject/MsgTag/2": "solve_tag_2",
}


@every_number
@pytest.mark.parametrize("file", ["msgs.mdl", "figure2.mdl"])
def test_messages_of_all_procedures_modules_and_tags_at_once(
    file: str, threads: int, build: Build
) -> None:
    with measured(build("pvm"), threads) as (target, session):
        session.load_metrics(PROGRAMS / "metrics" / file)
        metrics = {focus: session.metric("msgs", focus=focus) for focus in MESSAGES}
        for truth in batches(target, 100):
            values = {focus: metric.value for focus, metric in metrics.items()}
            assert values == {focus: truth[name] for focus, name in MESSAGES.items()}


def test_messages_of_every_tag(build: Build) -> None:
    with measured(build("pvm"), 4) as (target, session):
        session.load_metrics(PROGRAMS / "metrics" / "figure2.mdl")
        metric = session.metric("msgs", focus="/SyncObject/MsgTag/*")
        inner = session.metric("msgs", focus="/Code/pvm/gathers,/SyncObject/MsgTag/*")
        # The other tags were counted with it.
        of_one_tag = session.metric("msgs", focus="/SyncObject/MsgTag/2", by="thread")
        for truth in batches(target, 100):
            expected = {str(tag): truth[f"tag_{tag}"] for tag in range(4)}
            assert metric.value == {tag: count for tag, count in expected.items() if count}
            assert inner.by_key().get(2, 0) == truth["gathers_tag_2"]
            by_thread = of_one_tag.value
            assert isinstance(by_thread, dict)
            assert sum(by_thread.values()) == truth["tag_2"]
        assert metric.kind == "map"


@pytest.mark.parametrize("threads", [1, 4] if IS_LONG else [4])
@pytest.mark.parametrize("focus", MESSAGES)
def test_messages(focus: str, threads: int, build: Build) -> None:
    with measured(build("pvm"), threads) as (target, session):
        session.load_metrics(PROGRAMS / "metrics" / "msgs.mdl")
        metric = session.metric("msgs", focus=focus)
        for truth in batches(target, 100):
            assert metric.value == truth[MESSAGES[focus]]
        metric.remove()
        target.batch(10)
