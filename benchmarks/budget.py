"""What a program loses that is measured at its hottest function, with a budget of 1%.

    python benchmarks/budget.py [--seconds N]

Each of three programs does the same piece of work again and again, on a processor of its own; weft
has another, as the budget is about the program's time and not about weft's. In turns of a quarter
of the seconds, weft counts the calls of a hot function within the budget, or is not there. Printed
is how much longer a piece takes when it is: on average, which nothing that weft does can hide from,
with its standard error, and by the medians, which a neighbour's busy moment does not change. And
whether the intervals that weft reports hold the true number, which is known from counting without a
budget.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from math import hypot, sqrt
from pathlib import Path
from statistics import mean, median, stdev

sys.path.insert(0, str(Path(__file__).parents[1]))

import weft
from tests.toolchain import compile_program
from weft.metrics.metric import Metric

BUDGET = 0.01
TURNS = 4


@dataclass(frozen=True)
class Work:
    """A program that works for each line that it reads, and says how long it took."""

    name: str
    focus: str
    command: list[str]
    piece: str


PYTHON = """
import sys, time
print("ready", flush=True)
for line in sys.stdin:
    began = time.perf_counter_ns()
    for number in range(int(line)):
        divmod(number, 7)
    print(time.perf_counter_ns() - began, flush=True)
"""

SQLITE = """
import sqlite3, sys, time
base = sqlite3.connect(":memory:")
print("ready", flush=True)
for line in sys.stdin:
    began = time.perf_counter_ns()
    query = "with recursive n(i) as (select 1 union all select i+1 from n where i < ?) "
    base.execute(query + "select sum(abs(i % 7)) from n", (int(line),)).fetchall()
    print(time.perf_counter_ns() - began, flush=True)
"""


def programs(folder: Path) -> list[Work]:
    hot = compile_program("hot.c", folder / "hot", "-O2", "-pthread")
    python = shutil.which("python3", path="/usr/bin") or sys.executable
    module = Path(python).resolve().name
    return [
        Work("a tight loop", "/Code/hot/tiny", [str(hot), "1"], "1600000000"),
        Work("Python", f"/Code/{module}/PyLong_FromLong", [python, "-c", PYTHON], "16000000"),
        Work(
            "SQLite",
            "/Code/libsqlite3.so.0*/sqlite3VdbeSerialGet",
            [python, "-c", SQLITE],
            "3200000",
        ),
    ]


class Worker:
    """A program at work, on a processor of its own."""

    def __init__(self, work: Work, processor: int) -> None:
        self._work = work
        self.process = subprocess.Popen(
            work.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        os.sched_setaffinity(self.process.pid, {processor})
        assert self.process.stdout
        self.process.stdout.readline()

    def piece(self) -> float:
        """Have it do its piece of work once; return the seconds."""
        assert self.process.stdout
        print(self._work.piece, file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline()) / 1e9

    def pieces(self, seconds: float) -> list[float]:
        end = time.monotonic() + seconds
        took: list[float] = []
        while time.monotonic() < end:
            took.append(self.piece())
        return took


def measure(work: Work, seconds: float, processor: int) -> str:
    worker = Worker(work, processor)
    alone: list[float] = []
    woven: list[float] = []
    values: list[str] = []
    try:
        with weft.attach(worker.process.pid) as session:
            # Without a budget it counts exactly.
            exact = session.metric("calls", work.focus)
            worker.piece()
            calls = exact.value
            assert isinstance(calls, int) and calls
        spent = 0.0
        for _ in range(TURNS):
            alone += worker.pieces(seconds / TURNS)
            with weft.attach(worker.process.pid) as session:
                session.metrics.keep_within(BUDGET)
                metric = session.metric("calls", work.focus)
                own = time.process_time()
                pieces = worker.pieces(seconds / TURNS)
                spent += time.process_time() - own
                values.append(judged(metric, calls * len(pieces)))
            woven += pieces
        alone += worker.pieces(seconds / TURNS)
    finally:
        worker.process.kill()
    loss = mean(woven) / mean(alone) - 1
    error = hypot(standard_error(woven), standard_error(alone))
    middle = median(woven) / median(alone) - 1
    return (
        f"{work.name:14}{100 * loss:+6.2f}% +-{100 * error:.2f} on average, "
        f"{100 * middle:+.2f}% by medians, of {len(woven)} pieces of {median(alone):.2f} s; "
        f"weft {100 * spent / sum(woven):.1f}% of another processor\n"
        f"{'':14}{', '.join(values)}"
    )


def standard_error(pieces: list[float]) -> float:
    """How far their mean may be from the true one, by the mean."""
    return stdev(pieces) / sqrt(len(pieces)) / mean(pieces)


def judged(metric: Metric, truth: int) -> str:
    """Say how close a metric is."""
    value, interval = metric.value, metric.interval
    assert isinstance(value, int)
    low, high = (interval.low, interval.high) if interval else (value, value)
    holds = "holds" if low <= truth <= high else "WRONG"
    return f"{value / truth:.2f} of the truth ({low / truth:.2f} to {high / truth:.2f}) {holds}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=60, help="how long for each program")
    seconds = arguments.parse_args().seconds
    print(f"budget {100 * BUDGET:.0f}%, {seconds:.0f} s each, in {TURNS} turns")
    first, second = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {second})
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        for work in programs(Path(folder)):
            print(measure(work, seconds, first), flush=True)


if __name__ == "__main__":
    main()
