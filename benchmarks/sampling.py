"""What programs under load lose while they are sampled: the throughput beside that without.

    python benchmarks/sampling.py [--pairs N] [--seconds S]

Redis serves redis-benchmark, a C program computes with four threads, and CPython runs a loop of
calls, dictionaries and numbers. Each is sampled 99 times a second within a budget of 1%, as `weft
profile` does it by default; CPython by py-spy as well, where that is installed (`pip install
py-spy`). Short windows with and without samples alternate, and each is compared with the two around
it, so that what else the machine does falls on both. A window begins when symbols have been read.
Nothing is pinned: where there are fewer processors than threads that run, the profiler's own work
is part of the loss.

Printed are the medians of two ratios, and the quartiles around them: of what is done in a second,
and of what is done in a second of the program's own on a processor. The second does not depend on
who else wants the processors; that threads stand still while they are looked at is not in it. Last
comes the share of time for which threads stood still, as weft says it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, quantiles
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.metrics_servers import busy_redis
from weft.export.sampled.kinds import KINDS
from weft.program.sampler import ThreadSampler

Running: TypeAlias = tuple[int, Callable[[], int]]
"""A process, and what says how much it has done."""

WARM = 1.5
"""How many seconds py-spy has to get ready."""

THREADS = r"""
#include <pthread.h>
#include <stdio.h>
static volatile long done[4][16];
static void *work(void *own)
{
    for (volatile long *count = own;; (*count)++)
        for (volatile int i = 0; i < 1000; i++)
            ;
}
int main(void)
{
    pthread_t thread;
    for (int i = 0; i < 4; i++)
        pthread_create(&thread, NULL, work, (void *)done[i]);
    for (char line[8]; fgets(line, sizeof line, stdin);) {
        printf("%ld\n", done[0][0] + done[1][0] + done[2][0] + done[3][0]);
        fflush(stdout);
    }
}
"""
PYTHON = """
import os, sys, threading
done = 0
def step(number):
    words = {str(i): i * number for i in range(20)}
    return sum(value for key, value in sorted(words.items()) if key != "7")
def work():
    global done
    while True:
        step(done)
        done += 1
threading.Thread(target=work, daemon=True).start()
for line in sys.stdin:
    print(done, flush=True)
os._exit(0)
"""


@contextmanager
def counting(command: list[str]) -> Iterator[Running]:
    """Run a program that works, and says how much it has done when it is asked."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def ask() -> int:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        try:
            yield process.pid, ask
        finally:
            process.kill()


@contextmanager
def redis(folder: Path) -> Iterator[Running]:
    with busy_redis(folder) as (pid, server):
        yield pid, server.commands


@dataclass(frozen=True, slots=True)
class Window:
    """What a program has done in some seconds."""

    throughput: float
    """A second."""
    per_processor: float
    """In a second of its own on a processor."""

    def over(self, *others: Window) -> Window:
        return Window(
            self.throughput / mean(one.throughput for one in others),
            self.per_processor / mean(one.per_processor for one in others),
        )


def window(pid: int, ask: Callable[[], int], spend: Callable[[], object]) -> Window:
    began, ran, before = time.monotonic(), processor_time(pid), ask()
    spend()
    done = ask() - before
    ran, ended = processor_time(pid) - ran, time.monotonic()
    return Window(done / (ended - began), done / ran)


def processor_time(pid: int) -> float:
    """For how long a process has run; the clock of another has this number in Linux."""
    return time.clock_gettime(~pid << 3 | 2)


def sampled(
    pid: int, ask: Callable[[], int], kind: str, pairs: int, seconds: float
) -> tuple[list[Window], float]:
    """What there was while weft sampled, over what there was before and after."""
    found = []
    sampler = ThreadSampler(pid, waits=kind != "cpu")
    before = window(pid, ask, lambda: time.sleep(seconds))
    still = 0.0
    for _ in range(pairs):
        still -= sampler.stood_still
        one = window(pid, ask, lambda: sampler.watch(seconds))
        still += sampler.stood_still
        after = window(pid, ask, lambda: time.sleep(seconds))
        found.append(one.over(before, after))
        before = after
    return found, still / (pairs * seconds)


def spied(
    pid: int, ask: Callable[[], int], py_spy: str, pairs: int, seconds: float
) -> list[Window]:
    """The same of py-spy, which has to be started each time."""
    record = [py_spy, "record", "-r", "99", "-d", "600", "-o", os.devnull, "-p", str(pid)]
    found = []
    before = window(pid, ask, lambda: time.sleep(seconds))
    for _ in range(pairs):
        with subprocess.Popen(
            record, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            time.sleep(WARM)
            one = window(pid, ask, lambda: time.sleep(seconds))
            process.send_signal(signal.SIGINT)
        after = window(pid, ask, lambda: time.sleep(seconds))
        found.append(one.over(before, after))
        before = after
    return found


def shown(values: list[Window]) -> str:
    texts = []
    for one in ([value.throughput for value in values], [value.per_processor for value in values]):
        low, middle, high = quantiles(one, n=4)
        texts.append(f"{middle:6.3f} ({low:.3f} to {high:.3f})")
    return "   ".join(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--py-spy", default=shutil.which("py-spy"), help="where py-spy is")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "threads.c").write_text(THREADS)
        threads = str(folder / "threads")
        subprocess.run(
            ["gcc", "-O2", "-g", "-pthread", str(folder / "threads.c"), "-o", threads], check=True
        )
        python = shutil.which("python3", path="/usr/bin") or sys.executable
        programs: dict[str, Callable[[], AbstractContextManager[Running]]] = {
            "4 threads of C": lambda: counting([threads]),
            "CPython": lambda: counting([python, "-c", PYTHON]),
        }
        if shutil.which("redis-server") and shutil.which("redis-benchmark"):
            programs["redis"] = lambda: redis(folder)
        print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; over native:")
        print(f"{'':31} {'in a second':25}   {'in a second of its own':25} stood still")
        for title, start in programs.items():
            with start() as (pid, ask):
                time.sleep(1)
                for kind in KINDS:
                    values, still = sampled(pid, ask, kind, options.pairs, options.seconds)
                    print(f"{title:16} {f'weft --{kind}':14} {shown(values)} {still:7.2%}")
                if title == "CPython" and options.py_spy:
                    pairs = options.pairs // 4
                    values = spied(pid, ask, options.py_spy, pairs, options.seconds)
                    print(f"{title:16} {'py-spy':14} {shown(values)}")
        print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
