"""Metrics within a budget: what is shed is told, and the truth is where weft says that it is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.toolchain import compile_program

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
