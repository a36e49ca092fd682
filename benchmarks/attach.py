"""What it costs a program when a tool attaches and detaches, seen from inside the program.

One thread of the target looks at the clock all the time, so it knows how long it was kept from
running. Each tool attaches and detaches once per round, beside a round in which nothing happens.
Frida is measured when it is installed (`pip install frida`), GDB and strace when they are.
"""

from __future__ import annotations

import importlib.util
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import weft

ROUNDS = 15
SOURCE = Path(__file__).parent.parent / "tests" / "programs" / "gaps.c"

Attach = Callable[[int], None]


def nothing(_pid: int) -> None:
    time.sleep(0.05)


def by_weft(pid: int) -> None:
    with weft.attach(pid):
        pass


def by_weft_with_ping(pid: int) -> None:
    with weft.attach(pid) as session:
        session.ping()


def by_gdb(pid: int) -> None:
    # Without symbols: reading them is not what is measured.
    command = ["gdb", "-nx", "-batch", "-ex", "set auto-solib-add off", "-p", str(pid)]
    subprocess.run([*command, "-ex", "detach"], check=True, capture_output=True)


def by_strace(pid: int) -> None:
    command = ["strace", "-f", "-qq", "-e", "trace=none", "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as strace:
        while f"TracerPid:\t{strace.pid}\n" not in Path(f"/proc/{pid}/status").read_text():
            time.sleep(0.001)
        strace.send_signal(signal.SIGINT)


def by_frida(pid: int) -> None:
    script = f"import frida; frida.attach({pid}).detach()"
    subprocess.run([sys.executable, "-c", script], check=True)


def tools() -> dict[str, Attach]:
    found: dict[str, Attach] = {
        "(nothing)": nothing,
        "weft": by_weft,
        "weft, with a ping": by_weft_with_ping,
    }
    if shutil.which("gdb"):
        found["gdb"] = by_gdb
    if shutil.which("strace"):
        found["strace"] = by_strace
    # Last, since it leaves most behind.
    if importlib.util.find_spec("frida"):
        found["frida"] = by_frida
    return found


def measure(program: Path, threads: int, attach: Attach) -> tuple[list[float], int]:
    """Return the longest gap of each round in milliseconds, and how many mappings were left."""
    with subprocess.Popen(
        [program, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as target:
        assert target.stdin and target.stdout
        target.stdout.readline()

        def longest_gap() -> float:
            assert target.stdin and target.stdout
            target.stdin.write("\n")
            target.stdin.flush()
            return int(target.stdout.readline()) / 1e6

        maps = Path(f"/proc/{target.pid}/maps")
        before = set(maps.read_text().splitlines())
        gaps = []
        for _ in range(ROUNDS):
            longest_gap()
            attach(target.pid)
            gaps.append(longest_gap())
        left = len(before ^ set(maps.read_text().splitlines()))
        target.kill()
    return gaps, left


def main() -> None:
    print(f"longest time that a busy thread did not run, of {ROUNDS} attaches and detaches, in ms")
    print(f"{'tool':20} {'threads':>7} {'median':>8} {'worst':>8}   mappings that changed")
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "gaps"
        subprocess.run(["gcc", "-O2", "-pthread", "-o", program, SOURCE], check=True)
        for threads in (2, 64):
            for name, attach in tools().items():
                gaps, left = measure(program, threads, attach)
                middle, worst = statistics.median(gaps), max(gaps)
                print(f"{name:20} {threads:7} {middle:8.2f} {worst:8.2f}   {left}")


if __name__ == "__main__":
    main()
