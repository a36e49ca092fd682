"""What `stack()` costs each time, by the depth of the stack, in both weavers and in other tools.

    python benchmarks/stack_keys.py [--depths 10,30,100]

A program calls a function at a depth, first without a probe and then with one, and takes its own
processor time: the best of several rounds. What the probe costs is the difference; beside it stands
the same probe with a number for a key. Beside weft: Frida when it is installed (`pip install
frida`), with both of its backtracers, and bpftrace where the kernel lets it. Each counts calls by
their stacks, and has to have counted them all. The last column is how many frames were found: what
a tool leaves out costs it nothing. bpftrace, and Frida's accurate backtracer here, need frame
pointers: the peers get a program that keeps them, weft one that does not. Frida takes 16 frames at
most, without the function itself; bpftrace misses the caller of the function, which has no frame
yet, and ends at code without frame pointers.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

sys.path.insert(0, str(Path(__file__).parents[1]))

import weft
from benchmarks.probes import bpftrace_script, frida_script

SOURCE = r"""
#include <stdio.h>
#include <time.h>
/* Long enough for a jump of five bytes, which Frida needs. */
__attribute__((noinline)) long look(long n) {
    __asm__ volatile("" ::: "memory");
    return n + 1000;
}
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
int main(void) {
    long depth, n;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (scanf("%ld %ld", &depth, &n) == 2) {
        struct timespec a, b;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        down(depth, n);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        printf("%f\n", (b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec));
    }
}
"""
FLAGS = ("-O2", "-fno-optimize-sibling-calls")
BESIDE = 7
"""How many frames there are beside those of the recursion: start, main, and the innermost ones."""
ROUNDS = 7
BRIEF = 0.05
"""How many seconds one round should take at least, for the clock not to matter."""


class Looking:
    """The program, which calls a function at a depth."""

    def __init__(self, process: subprocess.Popen[str], path: Path, depth: int) -> None:
        self._process = process
        self._down = max(depth - BESIDE, 0)
        self.pid = process.pid
        self.path = path
        self.depth = depth
        self.calls = 0

    def best(self) -> float:
        """Return the nanoseconds per call in the best of several rounds."""
        calls = 100
        while self._time(calls) < BRIEF * 1e9:
            calls *= 2
        return min(self._time(calls) for _ in range(ROUNDS)) / calls

    def _time(self, calls: int) -> float:
        assert self._process.stdin and self._process.stdout
        self.calls += calls
        self._process.stdin.write(f"{self._down} {calls}\n")
        return float(self._process.stdout.readline())


@contextmanager
def looking(path: Path, depth: int) -> Iterator[Looking]:
    with subprocess.Popen(
        [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        try:
            yield Looking(process, path, depth)
        finally:
            process.kill()


Counted: TypeAlias = Callable[[], "tuple[int, int]"]
"""Says how many calls were counted, and how many frames the stack has that most of them had."""

Insert: TypeAlias = Callable[[Looking, bool], AbstractContextManager[Counted]]
"""Brings a probe into the program, with a number for a key or with a stack."""


@dataclass(frozen=True)
class Tool:
    """A way to count calls by stacks."""

    name: str
    insert: Insert
    flags: tuple[str, ...] = ()
    """What the program is compiled with for it."""


def by_weft(weaver: str) -> Insert:
    @contextmanager
    def insert(program: Looking, by_stack: bool) -> Iterator[Counted]:
        attach: Any = weft.attach
        with attach(program.pid, weaver=weaver) as attached:
            session = attached if isinstance(attached, weft.Session) else attached.session
            snippet = "n[stack()]++" if by_stack else "n[1]++"
            probe = session.insert(f"/Code/{program.path.name}/look", snippet)

            def counted() -> tuple[int, int]:
                value = cast(dict[Any, int], probe.value())
                most = max(value, key=lambda key: value[key])
                return sum(value.values()), len(most.frames) if by_stack else 0

            yield counted

    return insert


FRIDA = """
const n = new Map();
rpc.exports = { keys: () => Array.from(n) };
Interceptor.attach(Process.mainModule.getSymbolByName('look'), function () {
    const key = KEY;
    n.set(key, (n.get(key) || 0) + 1);
});
"""


def by_frida(backtracer: str) -> Insert:
    @contextmanager
    def insert(program: Looking, by_stack: bool) -> Iterator[Counted]:
        stack = f"Thread.backtrace(this.context, Backtracer.{backtracer}).join()"
        text = FRIDA.replace("KEY", stack if by_stack else "'1'")
        with frida_script(program.pid, text) as script:

            def counted() -> tuple[int, int]:
                keys: list[tuple[str, int]] = script.exports_sync.keys()
                most = max(keys, key=lambda item: item[1])
                # The function itself is not among them.
                return sum(count for _, count in keys), most[0].count(",") + 2

            yield counted

    return insert


@contextmanager
def by_bpftrace(program: Looking, by_stack: bool) -> Iterator[Counted]:
    key = f"ustack({program.depth})" if by_stack else "1"
    text = f"uprobe:{program.path}:look {{ @n[{key}] = count(); }}"
    with bpftrace_script(program.pid, text) as printed:

        def counted() -> tuple[int, int]:
            found = re.findall(r"@n\[([^]]*)\]: (\d+)", printed())
            most = max(found, key=lambda item: int(item[1]), default=("", "0"))
            return sum(int(count) for _, count in found), len(most[0].split("\n")) - 2

        yield counted


def tools() -> list[Tool]:
    found = [Tool(f"weft, {weaver}", by_weft(weaver)) for weaver in ("patch", "clone")]
    kept = ("-fno-omit-frame-pointer",)
    if importlib.util.find_spec("frida"):
        found += [Tool(f"Frida, {one}", by_frida(one), kept) for one in ("ACCURATE", "FUZZY")]
    if shutil.which("bpftrace"):
        found.append(Tool("bpftrace, ustack", by_bpftrace, kept))
    return found


def measure(tool: Tool, path: Path, depth: int) -> tuple[float, float, float, int]:
    """Return nanoseconds a call without a probe, what probes add to it, and the frames found."""
    native, added, frames = float("inf"), [], 0
    for by_stack in (False, True):
        with looking(path, depth) as program:
            native = program.best()
            with tool.insert(program, by_stack) as counted:
                program.calls = 0
                added.append(program.best() - native)
                count, frames = counted()
        if count != program.calls:
            print(f"! {tool.name} counted {count} of {program.calls} calls")
    return native, added[0], added[1], frames


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--depths", default="10,30,100")
    options = parser.parse_args()
    depths = [int(depth) for depth in options.depths.split(",")]
    print(f"nanoseconds added to a call, best of {ROUNDS} rounds")
    print(f"{'tool':18}{'depth':>6}{'native':>8}{'n[1]++':>10}{'n[stack()]++':>14}{'frames':>8}")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "look.c")
        source.write_text(SOURCE)
        for tool in tools():
            program = Path(folder, "look")
            subprocess.run(["gcc", *FLAGS, *tool.flags, source, "-o", program], check=True)
            for depth in depths:
                try:
                    native, number, stack, frames = measure(tool, program, depth)
                except (RuntimeError, weft.errors.WeftError, OSError) as error:
                    print(f"{tool.name:18}{depth:6} {error}")
                    continue
                row = f"{native:8.2f}{number:10.1f}{stack:14.1f}{frames:8}"
                print(f"{tool.name:18}{depth:6}{row}", flush=True)


if __name__ == "__main__":
    main()
