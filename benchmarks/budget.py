"""What a program loses that is measured at its hottest function, with a budget of 1%.

    python benchmarks/budget.py [--seconds N]

Each of three programs does the same short piece of work again and again, on a processor of its own;
weft has another, as the budget is about the program's time and not about weft's. In turns of a
quarter of the seconds, weft counts the calls of a hot function within the budget, or is not there.

Between the moments in which weft measures, the code of the program is what it was, byte by byte. So
what is lost is lost in pieces with such a moment, and a piece is compared with those right before
and after it: how much longer it took than the middle one of them, on average, and how much more of
that there is with weft than without. That does not depend on how fast the machine was a minute ago,
which on shared machines changes by far more than a percent; the average of all pieces is printed
beside it. And whether the intervals that weft reports hold the true number, which is known from
counting without a budget.
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
NEAR = 10
"""So many pieces before and after one are around it."""


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
        Work("a tight loop", "/Code/hot/tiny", [str(hot), "1"], "16000000"),
        Work("Python", f"/Code/{module}/PyLong_FromLong", [python, "-c", PYTHON], "160000"),
        Work(
            "SQLite",
            "/Code/libsqlite3.so.0*/sqlite3VdbeSerialGet",
            [python, "-c", SQLITE],
            "32000",
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
    alone: list[list[float]] = []
    woven: list[list[float]] = []
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
            alone.append(worker.pieces(seconds / TURNS))
            with weft.attach(worker.process.pid) as session:
                session.metrics.keep_within(BUDGET)
                metric = session.metric("calls", work.focus)
                own = time.process_time()
                pieces = worker.pieces(seconds / TURNS)
                spent += time.process_time() - own
                values.append(judged(metric, calls * len(pieces)))
            woven.append(pieces)
        alone.append(worker.pieces(seconds / TURNS))
    finally:
        worker.process.kill()
    with_weft, without = [excess(pieces) for pieces in woven], [excess(one) for one in alone]
    loss, natural = mean(with_weft), mean(without)
    error = hypot(standard_error(with_weft), standard_error(without))
    pieces = [piece for turn in woven for piece in turn]
    others = [piece for turn in alone for piece in turn]
    overall = mean(pieces) / mean(others) - 1
    return (
        f"{work.name:14}{100 * (loss - natural):+6.2f}% +-{100 * error:.2f} beside its neighbours "
        f"({100 * natural:.2f}% without weft), {100 * overall:+.1f}% overall, "
        f"of {len(pieces)} pieces of {1000 * median(others):.0f} ms; "
        f"weft {100 * spent / sum(pieces):.1f}% of another processor\n"
        f"{'':14}{', '.join(values)}"
    )


def excess(pieces: list[float]) -> float:
    """By how much pieces took longer than those around them, on average."""

    def usual(at: int) -> float:
        # The first ones are measured all the time, until weft knows what that costs.
        first = at - NEAR if at >= NEAR else NEAR
        return median(pieces[first : first + 2 * NEAR + 1])

    return mean(piece / usual(at) - 1 for at, piece in enumerate(pieces))


def standard_error(values: list[float]) -> float:
    """How far the mean of these may be from the true one."""
    return stdev(values) / sqrt(len(values))


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
