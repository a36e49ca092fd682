"""Metrics within a budget: what is shed is told, and the truth is where weft says that it is."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import weft
from tests.toolchain import compile_program
from weft.metrics.budget import Budget
from weft.metrics.metric import Metric
from weft.metrics.sampling import HITS

pytestmark = pytest.mark.alone

CALLS = 300_000_000


class Hot:
    """A program that does nothing but call a tiny function."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process

    def call(self, times: int) -> float:
        """Have the function called, and return the seconds that it took."""
        assert self._process.stdin and self._process.stdout
        print(times, file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline()) / 1e9


@pytest.fixture
def hot(tmp_path: Path) -> Iterator[Hot]:
    program = compile_program("hot.c", tmp_path / "hot", "-O2", "-pthread")
    pipe = subprocess.PIPE
    with subprocess.Popen([program, "1"], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        yield Hot(process)
        process.kill()


@pytest.mark.watchdog(300)
def test_a_hot_function_is_measured_for_moments(hot: Hot) -> None:
    with weft.attach(hot.pid) as session:
        session.metrics.keep_within(0.01)
        metric = session.metric("calls", "/Code/hot/tiny")
        total = 0
        for _ in range(10):
            hot.call(CALLS)
            total += CALLS
        assert metric.shed is not None
        assert metric.shed.how == "sampled"
        assert metric.shed.share < 0.5
        assert "estimate" in metric.shed.effect
        assert metric.interval is not None
        assert metric.interval.low <= total <= metric.interval.high
        session.metrics.sample()
    # What was last known stays.
    assert isinstance(metric.value, int)
    assert metric.interval is not None
    assert metric.interval.low <= metric.value <= metric.interval.high


@pytest.mark.watchdog(300)
def test_the_keys_of_an_estimate_are_said_to_be_estimates(hot: Hot) -> None:
    with weft.attach(hot.pid) as session:
        metric = session.metric("calls", "/Code/hot/tiny", by="caller")
        hot.call(1000)
        assert not any("in proportion" in one for one in metric.remarks)
        metric.remove()
        session.metrics.keep_within(0.01)
        metric = session.metric("calls", "/Code/hot/tiny", by="caller")
        while metric.interval is None:
            hot.call(CALLS // 10)
        assert any("in proportion" in one for one in metric.remarks)


def test_what_cannot_be_estimated_is_taken_out(hot: Hot) -> None:
    with weft.attach(hot.pid) as session:
        session.metrics.keep_within(0.01)
        metric = session.metric("inclusive_time", "/Code/hot/tiny")
        while metric.shed is None:
            hot.call(CALLS // 10)
        assert metric.shed.how == "removed"
        assert "incomplete since" in metric.shed.effect
        assert metric.interval is None


def test_what_costs_little_is_exact(hot: Hot) -> None:
    with weft.attach(hot.pid) as session:
        session.metrics.keep_within(0.5)
        metric = session.metric("calls", "/Code/libc.so.6/write")
        for _ in range(3):
            hot.call(CALLS // 10)
        assert metric.shed is None
        assert metric.interval is None
        assert metric.value == 3


# What holds from the first moment on.

PATIENCE = 60.0


class Mills:
    """A program that calls thirty small functions all the time, or none."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process

    def tell(self, what: str) -> None:
        """Have it call them, or not."""
        assert self._process.stdin and self._process.stdout
        print(what, file=self._process.stdin, flush=True)
        self._process.stdout.readline()


@pytest.fixture
def mills(tmp_path: Path) -> Iterator[Mills]:
    program = compile_program("mills.c", tmp_path / "mills", "-O1", "-pthread")
    pipe = subprocess.PIPE
    with subprocess.Popen([program], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        yield Mills(process)
        process.kill()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def budget_of(session: weft.Session) -> Budget:
    budget = session.metrics.budget
    assert budget is not None
    return budget


def hits(metric: Metric) -> int:
    """How often the code of a metric was executed."""
    assert metric.node is not None
    counts = [probe.value(HITS) for probe in metric.node.probes]
    return sum(count for count in counts if isinstance(count, int))


@pytest.mark.parametrize("name", ["inclusive_time", "cpu_time", "exclusive_time"])
def test_what_is_too_hot_is_never_woven(mills: Mills, name: str) -> None:
    with weft.attach(mills.pid) as session:
        session.metrics.keep_within(0.01)
        metric = session.metric(name, "/Code/mills/mill_10")
        assert hits(metric) == 0, "it is known before what it would cost"
        assert metric.shed is not None
        assert metric.shed.how == "removed"
        assert metric.shed.share == 0
        assert metric.shed.cost is not None and metric.shed.cost > 0.01
        assert "not within the budget: costs about" in metric.shed.effect
        assert metric.value == 0
        begun = time.monotonic()
        until(lambda: time.monotonic() > begun + 1)
        assert hits(metric) == 0


def test_the_cheapest_of_thirty_are_measured(mills: Mills) -> None:
    """And together they stay within the budget, from the first interval on."""
    with weft.attach(mills.pid) as session:
        session.metrics.keep_within(0.02)
        engine = session.metrics
        definition = engine.definition("inclusive_time")
        paths = [f"/Code/mills/mill_{number}" for number in range(10, 40)]
        metrics = engine.request_all([(definition, path) for path in paths])
        shed = [metric for metric in metrics if metric.shed]
        rates = {metric: metric.sampling.rate for metric in shed if metric.sampling}
        assert rates.keys() == set(shed), "of each it is known how often it would be hit"
        assert 0 < len(shed) < 30
        # Those that are called least often are the last ones.
        assert metrics[0] in shed
        assert metrics[-1] not in shed
        budget = budget_of(session)
        until(lambda: budget.ledger.passed > 1)
        assert budget.ledger.probes <= 0.02 * budget.ledger.ran
        measured = [metric for metric in metrics if not metric.shed]
        assert measured and all(isinstance(metric.value, float) for metric in measured)
        # Whatever a busy machine has made of the stops is paid back.
        until(lambda: budget.ledger.lost <= 0.02 * budget.ledger.passed)


def test_what_was_shed_comes_back_and_says_what_is_missing(mills: Mills) -> None:
    with weft.attach(mills.pid) as session:
        session.metrics.keep_within(0.05)
        metric = session.metric("inclusive_time", "/Code/mills/mill_10")
        assert metric.shed is not None and "not within" in metric.shed.effect
        mills.tell("rest")
        until(lambda: metric.shed is None or "not within" not in metric.shed.effect)
        assert metric.shed is not None, "it lacks what was not measured, for good"
        assert metric.shed.how == "removed"
        assert "were not measured" in metric.shed.effect
        mills.tell("grind")
        until(lambda: metric.shed is not None and "not within" in metric.shed.effect)
        # It was in the code for as long as it takes to see what it costs, and not again and again.
        assert hits(metric) > 0


def test_a_program_that_is_started_is_measured_from_its_first_call(tmp_path: Path) -> None:
    program = compile_program("mills.c", tmp_path / "mills", "-O1", "-pthread")
    reading, writing = os.pipe()
    with weft.run([program], stdin=reading, stdout=subprocess.DEVNULL) as session:
        session.run_to_entry()
        session.metrics.keep_within(0.05)
        rare = session.metric("calls", "/Code/mills/main")
        hot = session.metric("inclusive_time", "/Code/mills/mill_10")
        assert rare.shed is None and hot.shed is None, "nothing is known of it yet"
        session.resume()
        until(lambda: hot.shed is not None)
        assert rare.value == 1
        assert rare.shed is None
        os.close(writing)
        session.wait(PATIENCE)
    os.close(reading)
