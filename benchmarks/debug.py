"""What debugging a clone costs, beside gdbserver with the program alone, in the same run.

    python benchmarks/debug.py [--rounds N] [--only NAME...] [--json FILE]

Microseconds for one breakpoint, one step of an instruction and one `next`, best of several rounds:
as GDB has them, and as the server itself takes them, asked without GDB. Below, what only weft does
in the program itself: a condition that is false, and a watchpoint that the processor does not have;
GDB does both by stopping each time, which is measured on fewer and given for one. Then what the
clone loses by being debugged while nobody asks, and what is kept for it in memory.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.clone import cloned
from tests.e2e.builder import Builder
from tests.gdb.rsp import Remote, connected, thread_of
from tests.gdb.sides import NATIVE, WEFT, commands, environment, listening, run_gdb

ROUNDS = 3
PATIENCE = 600.0
MANY = 10**12
"""More rounds than any measurement gets through."""
STEPS = 2000
TIMES = 1_000_000
STOPPED = 2000
STEPPED = 200
PYTHON = "/usr/bin/python3"
SELF_TIMED = """
import sys, time
{}
def timed():
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
best = min(timed() for _ in range(30))
open(sys.argv[1], "w").write(str(best))
"""
"""Tells its best round itself, so that nothing counts of what starts it, translates or connects."""
WORKLOADS = {
    "qsort with strcmp (returns from short functions)": """
import ctypes
c = ctypes.CDLL(None)
words = b"".join(b"%015d\\0" % (number * 7919 % 20011) for number in range(20011))
compare = ctypes.cast(c.strcmp, ctypes.c_void_p)
def work():
    c.qsort(ctypes.create_string_buffer(words), 20011, 16, compare)
""",
    "CPython": """
import json
def fibonacci(number):
    return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)
def work():
    fibonacci(18)
    table = {str(number): [number, {"half": number / 2}] for number in range(2000)}
    json.loads(json.dumps(table))
""",
    "SQLite": """
import sqlite3
def work():
    database = sqlite3.connect(":memory:")
    database.execute("create table t(a integer primary key, b text)")
    rows = ((None, str(number * 7919 % 10007)) for number in range(10000))
    database.executemany("insert into t values(?, ?)", rows)
    database.execute("create index i on t(b)")
    database.execute("select count(*), sum(a) from t where b like '%7%' group by a % 7").fetchall()
""",
    "bzip2": """
import bz2
text = b"".join(b"%d bottles stand on wall %d\\n" % (n, n * n % 977) for n in range(8000))
def work():
    bz2.decompress(bz2.compress(text))
""",
}
TIMED = """python
import gdb, time
def timed(count, command):
    start = time.perf_counter()
    for _ in range(count):
        gdb.execute(command, to_string=True)
    print(f"seconds {{time.perf_counter() - start}}")
timed({count}, {command!r})
end"""


@dataclass(frozen=True)
class Question:
    """Something that is measured on both sides: the seconds of one."""

    name: str
    ask: Callable[[str, Path], float]
    unit: float = 1e6


def timed(
    side: str, target: Sequence[str | Path], first: Sequence[str], command: str, count: int
) -> float:
    """How long GDB takes to do something so often, after it has done something first."""
    with tempfile.NamedTemporaryFile("w", suffix=".gdb") as script:
        script.write(TIMED.format(count=count, command=command))
        script.flush()
        printed = run_gdb(side, [*commands(*first), "-x", script.name], target, PATIENCE)
    found = re.search(r"^seconds ([\d.e-]+)$", printed, re.MULTILINE)
    assert found, printed
    return float(found[1])


def by_gdb(command: str, *first: str) -> Callable[[str, Path], float]:
    """How long GDB takes for a command, with all that it asks the server for."""

    def ask(side: str, program: Path) -> float:
        before = ("break hot", "continue", *first)
        return timed(side, [program, str(MANY)], before, command, STEPS) / STEPS

    return ask


def by_server(action: str) -> Callable[[str, Path], float]:
    """How long the server takes to resume and to stop, and to tell the registers."""

    def ask(side: str, program: Path) -> float:
        with listening(side, [program, str(MANY)]) as address, connected(address) as remote:
            packet = f"vCont;{action}:{arrive(remote, symbol(program, 'hot'))}"
            start = time.perf_counter()
            for _ in range(STEPS):
                thread_of(remote.ask(packet))
                remote.ask("g")
            return (time.perf_counter() - start) / STEPS

    return ask


def arrive(remote: Remote, at: int) -> str:
    """Set a breakpoint and go there: the thread that has come."""
    thread = thread_of(remote.ask("?"))
    assert remote.ask(f"Z0,{at:x},1") == "OK"
    assert thread_of(remote.ask(f"vCont;c:{thread}")) == thread
    return thread


def symbol(program: Path, name: str) -> int:
    """The address of a function of a program that is not relocated."""
    lines = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    found = re.search(rf"^([0-9a-f]+) T {name}$", lines, re.MULTILINE)
    assert found
    return int(found[1], 16)


def to_the_end(side: str, program: Path, rounds: int, *first: str) -> float:
    """How long a round of the program takes, with something that is looked at in each."""
    before = ("tbreak main", "continue", *first)
    return timed(side, [program, str(rounds)], before, "continue", 1) / rounds


def condition(evaluated_by: str) -> Callable[[str, Path], float]:
    """How long a condition takes that natively is evaluated by GDB, or by gdbserver."""

    def ask(side: str, program: Path) -> float:
        point = "break hot if number == -1"
        if side == WEFT:
            return to_the_end(side, program, TIMES, point)
        setting = f"set breakpoint condition-evaluation {evaluated_by}"
        return to_the_end(side, program, STOPPED, setting, point)

    return ask


def watched(expression: str) -> Callable[[str, Path], float]:
    """How long a watchpoint takes for each round, which natively is not the processor's."""

    def ask(side: str, program: Path) -> float:
        first = ("set var level = 5",)  # so that no write changes it, and there is no stop
        if side == WEFT:
            return to_the_end(side, program, TIMES, *first, f"watch {expression}")
        steps = (*first, "set can-use-hw-watchpoints 0", f"watch {expression}")
        return to_the_end(side, program, STEPPED, *steps)

    return ask


QUESTIONS = [
    Question("breakpoint hit, GDB", by_gdb("continue")),
    Question("breakpoint hit, server alone", by_server("c")),
    Question("stepi, GDB", by_gdb("stepi", "delete")),
    Question("stepi, server alone", by_server("s")),
    Question("next, GDB", by_gdb("next", "delete", "finish")),
]
IN_THE_PROGRAM = [
    Question("false condition, beside GDB", condition("host")),
    Question("false condition, beside gdbserver", condition("target")),
    Question("hot variable watched", watched("level")),
    Question("table of 4 KB watched", watched("table if table.words[0] == -1")),
]


def idle(workload: str, told: Path) -> tuple[float, float]:
    """Seconds that a workload takes as a bare clone, and with a debugger that asks for nothing."""
    command = [PYTHON, "-c", SELF_TIMED.format(workload), str(told)]
    subprocess.run([*cloned(), *command], check=True, env=environment())
    bare = float(told.read_text())
    with listening(WEFT, command) as address, connected(address) as remote:
        answer = remote.ask("vCont;c")
        assert answer.startswith("W00"), answer
    return bare, float(told.read_text())


def show_idle(rounds: int, told: Path) -> dict[str, dict[str, float]]:
    """Measure what an idle debugger costs, both ways in turn; a line for each workload."""
    print(f"{'seconds of one round, and with an idle debugger':48} {'clone':>8} {'idle':>8}")
    found = {}
    for name, workload in WORKLOADS.items():
        pairs = [idle(workload, told) for _ in range(rounds)]
        bare, debugged = (min(times) for times in zip(*pairs, strict=True))
        found[name] = {"bare": bare, "debugged": debugged}
        print(f"{name:48} {bare:8.3f} {debugged:8.3f} {percents(debugged / bare)}", flush=True)
    mean = statistics.geometric_mean(it["debugged"] / it["bare"] for it in found.values())
    print(f"{'slowdown while nobody asks, mean':66} {percents(mean)}")
    return found


def percents(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}%"


def kept() -> float:
    """What the engine keeps of each instruction, for debuggers and others, over its code."""
    command = [*cloned("--stats"), PYTHON, "-c", "import json, sqlite3"]
    told = subprocess.run(command, check=True, env=environment(), capture_output=True, text=True)
    records, code = (
        int(re.findall(rf"^ *{name} +([\d,]+) ", told.stderr, re.MULTILINE)[0].replace(",", ""))
        for name in ("records", "bytes")
    )
    return records / code


def best(question: Question, side: str, program: Path, rounds: int) -> float:
    return min(question.ask(side, program) for _ in range(rounds))


def show(questions: Sequence[Question], program: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Measure on both sides in turn, and print a line for each question."""
    found = {}
    for question in questions:
        times = {side: float("inf") for side in (NATIVE, WEFT)}
        for _ in range(rounds):
            for side in times:
                times[side] = min(times[side], question.ask(side, program))
        found[question.name] = times
        native, weft = (times[side] * question.unit for side in (NATIVE, WEFT))
        ratio = weft / native if native else float("nan")
        factor = f"{ratio:.2f}x" if ratio > 0.1 else f"1/{1 / ratio:,.0f}" if ratio else "none"
        print(f"{question.name:36} {native:12.3f} {weft:12.3f} {factor:>12}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="the best of how many")
    parser.add_argument("--only", nargs="+", help="only questions whose names begin so")
    parser.add_argument("--json", type=Path, help="write all times into a file, too")
    options = parser.parse_args()
    wanted = tuple(options.only or [""])
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        program = Builder(Path(folder)).build("debug_busy")
        print(f"microseconds for one, best of {options.rounds}")
        print(f"{'':36} {'gdbserver':>12} {'weft':>12} {'ratio':>12}")
        chosen = [one for one in QUESTIONS if one.name.startswith(wanted)]
        found = show(chosen, program, options.rounds)
        print(
            f"in the program, {TIMES:,} rounds with weft, {STOPPED:,} (conditions) and "
            f"{STEPPED:,} (watchpoints) with GDB, which stops in each: for one round"
        )
        chosen = [one for one in IN_THE_PROGRAM if one.name.startswith(wanted)]
        found |= show(chosen, program, options.rounds)
        if "idle".startswith(wanted):
            found |= show_idle(options.rounds, Path(folder) / "told")
            print(f"records of instructions: {100 * kept():.1f}% of the clone's code")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
