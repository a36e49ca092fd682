"""What processes of one program take of memory in clones, beside as many native ones.

    python benchmarks/memory.py [--processes N]

Each process works a little, says so, and waits. Of what it has in memory, what it shares with
others counts in parts (the kernel's Pss): so the sum is what all of them take. MiB for each, median
of the processes: natively, in clones that are made in each process, and in clones that are mapped
from files. Behind that what the clone adds, and how many bytes of clone there are for each byte of
code that was executed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

PROCESSES = 20
PROGRAMS = {
    "python3, a few modules": [
        *("/usr/bin/python3", "-c"),
        "import json, re, decimal, asyncio, sys; print(flush=True); sys.stdin.readline()",
    ],
    "sqlite3, a small table": [
        *("sqlite3", ":memory:", "-cmd"),
        "create table t(a, b); insert into t values (1, 2), (3, 4);select sum(a) from t group by b",
    ],
    "perl, a few modules": [
        *("perl", "-MPOSIX", "-MData::Dumper", "-e"),
        "$| = 1; print Dumper([1, 2]); <STDIN>",
    ],
    "node, a line": ["node", "-e", "console.log(1); process.stdin.resume()"],
}


class Process(Protocol):
    """What was started."""

    @property
    def pid(self) -> int: ...

    def wait(self) -> int | None: ...


def memory_of(start: Callable[[int, int], Process], processes: int) -> float:
    """MiB of each of so many processes, when all of them wait."""
    pipes: list[int] = []
    running = []
    try:
        for _ in range(processes):
            source, keeps_waiting = os.pipe()
            says, sink = os.pipe()
            running.append(start(source, sink))
            pipes += [keeps_waiting, says]
            os.close(source)
            os.close(sink)
            os.read(says, 1)
        return statistics.median(map(proportional, (process.pid for process in running)))
    finally:
        for process in running:
            os.kill(process.pid, 9)
            process.wait()
        for pipe in pipes:
            os.close(pipe)


def proportional(pid: int) -> float:
    """What a process takes, in MiB, with its part of what it shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    [kilobytes] = [int(line.split()[1]) for line in lines if line.startswith("Pss:")]
    return kilobytes / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=PROCESSES, help="how many at once")
    processes = parser.parse_args().processes
    with tempfile.TemporaryDirectory(prefix="weft-memory-") as folder:
        # Before weft is imported, which reads it.
        os.environ["WEFT_CLONES"] = folder
        titles = ("native", "made in each", "from files")
        print(f"MiB of each of {processes} processes, with its part of what they share")
        print(f"{'program':26}", *(f"{title:>14}" for title in titles), "clone / code", sep="  ")
        for name, command in PROGRAMS.items():
            show(name, command, processes)


def show(name: str, command: list[str], processes: int) -> None:
    import weft
    from weft.clone import Cloned

    def native(stdin: int, stdout: int) -> Process:
        return subprocess.Popen(command, stdin=stdin, stdout=stdout)

    def cloned(keeps: bool) -> Callable[[int, int], Process]:
        return lambda stdin, stdout: weft.run(
            command, weaver="clone", keeps=keeps, stdin=stdin, stdout=stdout
        )

    def once(records: Literal["nothing", "hits"] = "nothing", *, keeps: bool = True) -> Cloned:
        null = subprocess.DEVNULL
        with weft.run(
            command, weaver="clone", records=records, keeps=keeps, stdin=null, stdout=null
        ) as program:
            program.wait()
        return program

    # What is executed until it waits, and at its end, is kept for the next one.
    once()
    modules = once("hits").flow().modules
    executed = sum(block.size for module in modules for block in module.blocks)
    made = once(keeps=False).stats().bytes
    found = [memory_of(start, processes) for start in (native, cloned(False), cloned(True))]
    cells = [f"{found[0]:14.1f}", *(f"{one:6.1f} (+{one - found[0]:.1f})" for one in found[1:])]
    print(
        f"{name:26}",
        *(f"{cell:>14}" for cell in cells),
        f"{made / executed:11.1f}",
        sep="  ",
        flush=True,
    )


if __name__ == "__main__":
    main()
