"""What `stack()` costs each time, by the depth of the stack, in both weavers.

    python benchmarks/stacks.py [--calls 200000] [--depths 10,30,100]

A program calls a function at a depth, first without a probe and then with one, and takes its own
processor time. What the probe costs is the difference; beside it stands the same probe with a
number for a key.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import weft

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
__attribute__((noinline)) long look(long n) { __asm__ volatile("" ::: "memory"); return n; }
__attribute__((noinline)) long calls(long n) {
    long sum = 0;
    for (long i = 0; i < n; i++) sum += look(i);
    return sum;
}
__attribute__((noinline)) long down(long depth, long n) {
    if (depth == 0) { long sum = calls(n); __asm__ volatile("" ::: "memory"); return sum; }
    long sum = down(depth - 1, n);
    __asm__ volatile("" ::: "memory");
    return sum + 1;
}
int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 1, depth;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (scanf("%ld", &depth) == 1) {
        struct timespec a, b;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        down(depth, n);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        printf("%f\n", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / n);
    }
}
"""
BESIDE = 6
"""How many frames there are beside those of the recursion: start, main, and the innermost ones."""
ROUNDS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--depths", default="10,30,100")
    options = parser.parse_args()
    depths = [int(depth) for depth in options.depths.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "look.c"), Path(folder, "look")
        source.write_text(SOURCE)
        flags = ["-O2", "-fno-optimize-sibling-calls"]
        subprocess.run(["gcc", *flags, str(source), "-o", str(program)], check=True)
        print(
            f"{'weaver':8}{'depth':>6}{'native':>10}{'n[1]++':>10}{'n[stack()]++':>14}  ns a call"
        )
        for weaver in ("patch", "clone"):
            for depth in depths:
                row = measure(program, options.calls, weaver, depth)
                print(f"{weaver:8}{depth:6}" + "{:10.1f}{:10.1f}{:14.1f}".format(*row))


def measure(program: Path, calls: int, weaver: str, depth: int) -> tuple[float, float, float]:
    with subprocess.Popen(
        [program, str(calls)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:

        def took() -> float:
            assert process.stdin is not None
            assert process.stdout is not None
            times = []
            for _ in range(ROUNDS):
                process.stdin.write(f"{max(depth - BESIDE, 0)}\n")
                times.append(float(process.stdout.readline()))
            return min(times)

        attach: Any = weft.attach
        with attach(process.pid, weaver=weaver) as attached:
            session = attached if isinstance(attached, weft.Session) else attached.session
            native = took()
            found = []
            for snippet in ("n[1]++", "n[stack()]++"):
                probe = session.insert("/Code/look/look", snippet)
                found.append(took() - native)
                value = probe.value()
                assert isinstance(value, dict)
                assert sum(value.values()) == ROUNDS * calls
                probe.remove()
        process.kill()
    return native, found[0], found[1]


if __name__ == "__main__":
    main()
