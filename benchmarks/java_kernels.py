"""Eight kernels that a just-in-time compiler compiles, native and cloned.

    python benchmarks/java_kernels.py [--only NAME...] [--rounds N] [--scale X]

The table is that of "Instrumenting self-modifying code" (Maebe and De Bosschere, 2003), with its
numbers beside: seconds, the factor over native, and per second of the cloned run the protection
faults and the look-ups of code addresses. Every kernel checks what it computes, and prints a
checksum that must be the same in both.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.clone import cloned
from tests.toolchain import PROGRAMS, run

SOURCES = PROGRAMS / "java"
ROUNDS = 2


@dataclass(frozen=True)
class Kernel:
    """A program, how much it is to do, and how much slower it was in the paper."""

    name: str
    size: int
    paper: float


KERNELS = [
    Kernel("FFT", 100, 2.38),
    Kernel("MolDyn", 350, 2.98),
    Kernel("SparseMatmult", 10000, 3.75),
    Kernel("HeapSort", 25, 7.82),
    Kernel("LUFact", 400, 8.43),
    Kernel("Search", 250, 17.94),
    Kernel("Crypt", 100, 19.66),
    Kernel("RayTracer", 2500, 22.59),
]


def timed(command: list[str], patience: float | None = None) -> tuple[str, float]:
    """Run a command that must succeed: what it printed, and the seconds that it took."""
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=patience, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"did not end in {patience:.0f} s") from None
    seconds = time.perf_counter() - start
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise RuntimeError(f"ended with {done.returncode}: {last[:150]}")
    return done.stdout, seconds


def per_second(stats: dict[str, Any], key: str, seconds: float) -> str:
    return f"{stats[key] / seconds:.0f}" if key in stats else ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=[kernel.name for kernel in KERNELS])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="the best of how many")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of the usual work")
    parser.add_argument("--prefix", help="what to put before a command, instead of weft")
    options = parser.parse_args()
    print(
        f"{'kernel':14} {'native':>9} {'cloned':>9} {'slowdown':>9} {'faults/s':>9} "
        f"{'look-ups/s':>11} {'paper':>7}"
    )
    slowdowns = []
    with tempfile.TemporaryDirectory(prefix="weft-java-") as directory:
        folder = Path(directory)
        run("javac", "-d", folder, *SOURCES.glob("*.java"))
        for kernel in KERNELS:
            if kernel.name not in (options.only or [kernel.name]):
                continue
            size = max(1, round(kernel.size * options.scale))
            command = ["java", "-Xmx512m", "-cp", str(folder), kernel.name, str(size)]
            try:
                natives = [timed(command) for _ in range(options.rounds)]
                native = min(seconds for _, seconds in natives)
                best, counted = math.inf, dict[str, Any]()
                for number in range(options.rounds):
                    file = folder / f"stats-{kernel.name}-{number}"
                    prefix = cloned("--stats", "--stats-file", str(file))
                    if options.prefix is not None:
                        prefix = shlex.split(options.prefix)
                    output, seconds = timed([*prefix, *command], 60 + 50 * native)
                    if output != natives[0][0]:
                        raise RuntimeError(f"printed {output!r} instead of {natives[0][0]!r}")
                    if seconds < best:
                        best = seconds
                        counted = json.loads(file.read_text()) if file.exists() else {}
            except RuntimeError as error:
                print(f"{kernel.name:14} {error}", flush=True)
                continue
            slowdowns.append(best / native)
            faults = per_second(counted, "protection_faults", best)
            lookups = per_second(counted, "lookups", best)
            print(
                f"{kernel.name:14} {native:7.2f} s {best:7.2f} s {best / native:8.2f}x "
                f"{faults:>9} {lookups:>11} {kernel.paper:6.2f}x",
                flush=True,
            )
    if slowdowns:
        mean = math.exp(sum(map(math.log, slowdowns)) / len(slowdowns))
        print(f"geometric mean {mean:.2f}x, worst {max(slowdowns):.2f}x, of {len(slowdowns)}")


if __name__ == "__main__":
    main()
