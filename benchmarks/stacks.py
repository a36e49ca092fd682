"""How long a process stands still while its stacks are read, seen from inside the process.

One thread of the target looks at the clock all the time, so it knows how long it was kept from
running; the others sleep. All tools take their turns in each round, beside one in which nothing
happens. GDB, eu-stack and py-spy (`pip install py-spy`, on a Python program) are measured when they
are installed.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from weft.program.stacks import StackReader

ROUNDS = 7
THREADS = (2, 64, 512)
LONG = 600_000_000
"""How long threads sleep, in microseconds."""
SOURCE = Path(__file__).parent.parent / "tests" / "programs" / "gaps.c"
PYTHON = """
import sys, threading, time
longest = 0
def look():
    global longest
    last = time.monotonic_ns()
    while True:
        now = time.monotonic_ns()
        if now - last > longest:
            longest = now - last
        last = now
threading.Thread(target=look, daemon=True).start()
for _ in range(int(sys.argv[1]) - 2):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("ready", flush=True)
for _ in sys.stdin:
    print(longest, flush=True)
    longest = 0
"""

Read = Callable[[int], None]


def nothing(_pid: int) -> None:
    time.sleep(0.2)


def by_weft() -> Read:
    readers: dict[int, StackReader] = {}
    return lambda pid: (readers.setdefault(pid, StackReader(pid)).read(), None)[1]


def by(*command: str) -> Read:
    def read(pid: int) -> None:
        # eu-stack ends with 1 if a frame has no name.
        subprocess.run([*command, str(pid)], capture_output=True, timeout=300)

    return read


def tools(*, is_python: bool) -> dict[str, Read]:
    found: dict[str, Read] = {"(nothing)": nothing, "weft": by_weft()}
    if shutil.which("gdb"):
        command = ("gdb", "-nx", "-batch", "-ex", "thread apply all bt", "-p")
        found["gdb"] = by(*command)
    if shutil.which("eu-stack"):
        found["eu-stack"] = by("eu-stack", "-p")
    if is_python and shutil.which("py-spy"):
        found["py-spy"] = by("py-spy", "dump", "--pid")
        found["py-spy --native"] = by("py-spy", "dump", "--native", "--pid")
    return found


def measure(command: list[str | Path], readers: dict[str, Read]) -> dict[str, list[float]]:
    """Return the longest gaps of all rounds, in milliseconds."""
    gaps: dict[str, list[float]] = {name: [] for name in readers}
    with ExitStack() as stack:
        pipe = subprocess.PIPE
        target = stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
        stack.callback(target.kill)
        assert target.stdin and target.stdout
        target.stdout.readline()

        def longest_gap() -> float:
            assert target.stdin and target.stdout
            target.stdin.write("\n")
            target.stdin.flush()
            return int(target.stdout.readline()) / 1e6

        for _ in range(ROUNDS):
            for name, read in readers.items():
                longest_gap()
                read(target.pid)
                gaps[name].append(longest_gap())
    return gaps


def main() -> None:
    print(f"longest time that a busy thread did not run while stacks were read, of {ROUNDS}, in ms")
    print(f"{'tool':20} {'program':>8} {'threads':>7} {'median':>8} {'worst':>8}")
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "gaps"
        subprocess.run(["gcc", "-O2", "-g", "-pthread", "-o", program, SOURCE], check=True)
        for threads in THREADS:
            commands: dict[str, list[str | Path]] = {
                "C": [program, str(threads), str(LONG)],
                "Python": [sys.executable, "-c", PYTHON, str(threads)],
            }
            for kind, command in commands.items():
                found = measure(command, tools(is_python=kind == "Python"))
                for name, gaps in found.items():
                    middle, worst = statistics.median(gaps), max(gaps)
                    print(f"{name:20} {kind:>8} {threads:7} {middle:8.2f} {worst:8.2f}")


if __name__ == "__main__":
    main()
