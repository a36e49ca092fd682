"""What a server loses while all that it allocates is added up by stacks.

    python benchmarks/stack_servers.py [--pairs N] [--seconds S]

Redis serves redis-benchmark, which sets values of several sizes. Meanwhile weft adds up the bytes
that malloc is asked for, by the stacks of the calls: `entry malloc { bytes[stack()] += $arg[0] }`.
bpftrace does the same with a uprobe, where the kernel lets it; it follows frame pointers, which
redis and its libraries mostly do not have, so its stacks are short. Each tool comes and goes for
every window, and each window is compared with the two around it, so that what else the machine does
falls on both.

Printed are the medians of two ratios, and the quartiles around them: of what is done in a second,
and of what is done in a second of the server's own on a processor. Then come the commands a second
without a tool, how often malloc is called for each, and whether the bytes of all stacks are those
that the metric `alloc_bytes` says for the same time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias, cast

sys.path.insert(0, str(Path(__file__).parents[1]))

import weft
from benchmarks.metrics_servers import Redis, busy_redis
from benchmarks.probes import bpftrace_script
from benchmarks.sampling import Window, shown, window

KEYS = ("-t", "set", "-r", "10000")
LOADS = {
    "SET, 16 B": (*KEYS, "-d", "16"),
    "SET, 1 KiB": (*KEYS, "-d", "1024"),
    "SET, 16 KiB": (*KEYS, "-d", "16384"),
    "SET, 16 B, 16 at once": (*KEYS, "-d", "16", "-P", "16"),
}
"""What redis-benchmark asks for; without more it waits for each answer."""
ALLOCATIONS = {
    "malloc": "$arg[0]",
    "calloc": "$arg[0] * $arg[1]",
    "realloc": "$arg[1]",
}
"""What is asked of each function, as alloc_bytes counts it; redis reallocs nothing that is none."""

Tool: TypeAlias = Callable[[int], AbstractContextManager[object]]


def allocator(pid: int) -> Path:
    """The library whose malloc a server uses."""
    words = [line.split()[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    files = {Path(word) for word in words if word.startswith("/")}
    return max(files, key=lambda file: ("jemalloc" in file.name, file.name.startswith("libc.so")))


@contextmanager
def by_weft(pid: int) -> Iterator[object]:
    with weft.attach(pid) as session:
        probe = session.insert(f"/Code/{allocator(pid).name}/malloc", "bytes[stack()] += $arg[0]")
        assert not probe.refused, probe.refused
        yield probe
        value = probe.value()
        assert isinstance(value, dict) and value


@contextmanager
def by_bpftrace(pid: int) -> Iterator[object]:
    text = f"uprobe:{allocator(pid)}:malloc {{ @bytes[ustack] = sum(arg0); }}"
    with bpftrace_script(pid, text) as printed:
        yield None
        if "@bytes[" not in printed():
            raise RuntimeError("bpftrace has seen nothing")


def beside(
    tool: Tool, pid: int, ask: Callable[[], int], pairs: int, seconds: float
) -> list[Window]:
    """What there was while a tool was there, over what there was before and after."""
    found = []
    before = window(pid, ask, lambda: time.sleep(seconds))
    for _ in range(pairs):
        with tool(pid):
            one = window(pid, ask, lambda: time.sleep(seconds))
        after = window(pid, ask, lambda: time.sleep(seconds))
        found.append(one.over(before, after))
        before = after
    return found


def mallocs(pid: int, redis: Redis) -> float:
    """How often malloc is called for a command."""
    with weft.attach(pid) as session:
        probe = session.insert(f"/Code/{allocator(pid).name}/malloc", "calls++")
        done, calls = redis.commands(), probe.value()
        time.sleep(1)
        done, now = redis.commands() - done, probe.value()
    assert isinstance(calls, int) and isinstance(now, int)
    return (now - calls) / done


def agree(pid: int, seconds: float) -> tuple[int, int, int]:
    """The bytes of all stacks, those of the metric, and how many stacks there were."""
    with weft.attach(pid) as session:
        name = allocator(pid).name
        # Both begin and end while the server stands still.
        with session.stopped():
            metric = session.metric("alloc_bytes")
            probes = [
                session.insert(f"/Code/{name}/{function}", f"bytes[stack()] += {size}")
                for function, size in ALLOCATIONS.items()
            ]
        time.sleep(seconds)
        with session.stopped():
            said = metric.value
            values = [cast(dict[weft.Stack, int], probe.value()) for probe in probes]
    assert isinstance(said, int)
    return sum(sum(value.values()) for value in values), said, sum(map(len, values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    if not (shutil.which("redis-server") and shutil.which("redis-benchmark")):
        sys.exit("this needs redis-server and redis-benchmark")
    tools: dict[str, Tool] = {"weft": by_weft}
    if shutil.which("bpftrace"):
        tools["bpftrace"] = by_bpftrace
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; over native:")
    print(f"{'':32} {'in a second':25}   {'in a second of its own':25}")
    for title, load in LOADS.items():
        with tempfile.TemporaryDirectory() as folder, busy_redis(Path(folder), load) as running:
            pid, redis = running
            time.sleep(1)
            for name, tool in tools.items():
                try:
                    found = beside(tool, pid, redis.commands, options.pairs, options.seconds)
                except (RuntimeError, weft.errors.WeftError, OSError) as error:
                    print(f"{title:22} {name:9} {error}")
                    continue
                print(f"{title:22} {name:9} {shown(found)}", flush=True)
            alone = window(pid, redis.commands, lambda: time.sleep(options.seconds))
            stacks, said, number = agree(pid, options.seconds)
            same = "the same" if stacks == said else f"not {said}"
            print(
                f"{title:22} {alone.throughput:.0f} commands a second, "
                f"{mallocs(pid, redis):.1f} mallocs each; "
                f"{stacks} bytes by {number} stacks, by alloc_bytes {same}",
                flush=True,
            )
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
