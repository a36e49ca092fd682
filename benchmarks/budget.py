"""What a program loses that is measured at its hottest function, with a budget of 1%.

    python benchmarks/budget.py [--seconds N]

Of three programs two copies do the same work at the same time, again and again. In one of them weft
counts the calls of a hot function for a while. Printed are how much longer it takes then, by the
medians of what it takes beside the other, how far these are from each other before and after, when
nothing is measured, and whether the interval that weft reports holds the true number, which is
known from counting without a budget.
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
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

import weft
from tests.toolchain import compile_program

BUDGET = 0.01


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


class Copy:
    """One of two copies of a program, on a processor of its own."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.process = subprocess.Popen(
            work.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self.process.stdout
        self.process.stdout.readline()

    def begin(self, processor: int) -> None:
        os.sched_setaffinity(self.process.pid, {processor})
        print(self._work.piece, file=self.process.stdin, flush=True)

    def end(self) -> float:
        assert self.process.stdout
        return int(self.process.stdout.readline()) / 1e9


def pairs(one: Copy, other: Copy, seconds: float) -> list[float]:
    """Have both do the same at the same time; return how long the first took, by the other.

    They change places each time: processors are not alike, and others use them, too.
    """
    first, second = sorted(os.sched_getaffinity(0))[:2]
    end = time.monotonic() + seconds
    ratios: list[float] = []
    while time.monotonic() < end or len(ratios) % 2:
        one.begin(first)
        other.begin(second)
        ratios.append(one.end() / other.end())
        first, second = second, first
    return ratios


def measure(work: Work, seconds: float) -> str:
    one, other = Copy(work), Copy(work)
    try:
        with weft.attach(one.process.pid) as session:
            # Without a budget it counts exactly.
            exact = session.metric("calls", work.focus)
            one.begin(min(os.sched_getaffinity(0)))
            one.end()
            calls = exact.value
            assert isinstance(calls, int) and calls
        before = pairs(one, other, seconds / 2)
        with weft.attach(one.process.pid) as session:
            session.metrics.keep_within(BUDGET)
            metric = session.metric("calls", work.focus)
            woven = pairs(one, other, seconds)
            value, interval, shed = metric.value, metric.interval, metric.shed
        after = pairs(one, other, seconds / 2)
    finally:
        one.process.kill()
        other.process.kill()
    assert isinstance(value, int)
    truth = calls * len(woven)
    low, high = (interval.low, interval.high) if interval else (value, value)
    ratio = median(woven) / median(before + after)
    noise = abs(median(before) / median(after) - 1)
    share = 100.0 if shed is None else 100 * shed.share
    return (
        f"{work.name:14}{100 * (ratio - 1):+6.2f}% time (noise {100 * noise:.2f}%), "
        f"measured {share:.1f}% of it; "
        f"{value / truth:.2f} of the truth, between {low / truth:.2f} and {high / truth:.2f}: "
        + ("holds" if low <= truth <= high else "WRONG")
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=60, help="how long for each program")
    seconds = arguments.parse_args().seconds
    print(f"budget {100 * BUDGET:.0f}%, medians of {seconds:.0f} s each")
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        for work in programs(Path(folder)):
            print(measure(work, seconds), flush=True)


if __name__ == "__main__":
    main()
