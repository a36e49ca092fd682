"""What a program loses that is measured at its hottest function, with a budget of 1%.

    python benchmarks/budget.py [--seconds N]

Three programs do the same work again and again, in turns alone and with weft in them, which counts
the calls of their hottest function. Printed are the ratio of the median times, and whether the
interval that weft reported held the true number: the programs count themselves, or the number is
known from a run that was counted without a budget.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import weft
from tests.toolchain import compile_program

BUDGET = 0.01


@dataclass(frozen=True)
class Work:
    """A program that does a piece of work for each line that it reads, and says how long it took."""

    name: str
    focus: str
    command: list[str]
    piece: str
    calls: Callable[[str], int] | None = None


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
    return [
        Work("a tight loop", "/Code/hot/tiny", [str(hot), "1"], "400000000", int),
        Work(
            "Python",
            f"/Code/{Path(python).resolve().name}/PyNumber_Divmod",
            [python, "-c", PYTHON],
            "4000000",
            int,
        ),
        Work("SQLite", "/Code/libsqlite3.so.0*/sqlite3_value_*", [python, "-c", SQLITE], "800000"),
    ]


def measure(work: Work, seconds: float) -> str:
    with subprocess.Popen(
        work.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin and process.stdout
        process.stdout.readline()

        def piece() -> float:
            assert process.stdin and process.stdout
            print(work.piece, file=process.stdin, flush=True)
            return int(process.stdout.readline()) / 1e9

        piece()
        calls = None
        if work.calls is not None:
            calls = work.calls(work.piece)
        alone: list[float] = []
        woven: list[float] = []
        held = turns = 0
        widths: list[float] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            alone += [piece() for _ in range(3)]
            with weft.attach(process.pid) as session:
                session.metrics.keep_within(BUDGET)
                metric = session.metric("calls", work.focus)
                some = [piece() for _ in range(12)]
                woven += some
                value, interval = metric.value, metric.interval
            assert isinstance(value, int)
            if calls is not None:
                turns += 1
                low, high = (interval.low, interval.high) if interval else (value, value)
                held += low <= calls * len(some) <= high
                widths.append((high - low) / 2 / (calls * len(some)))
        process.kill()
    ratio = statistics.median(woven) / statistics.median(alone)
    truth = (
        f"; truth in the interval {held} of {turns} times, "
        f"which is ± {100 * statistics.median(widths):.0f}% wide"
        if turns
        else ""
    )
    return f"{work.name:14} {100 * (ratio - 1):+.2f}% time{truth}"


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
