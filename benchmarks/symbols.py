"""How long the functions of large modules take, beside binutils and elfutils.

``python benchmarks/symbols.py [FILE ...]`` prints one table per module. Whole commands are timed,
from start to exit, with their output going to ``/dev/null``; the best of several runs counts,
since what else the machine does can only make a run slower. "cold" means that weft's cache is
empty; the files themselves are in the page cache for everybody.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

RUNS = 5

#: How a string type is written in mangled names.
STRING = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"

LIBRARY_ONLY = """
import sys, time
from weft._native import ModuleSymbols
path, runs = sys.argv[1], int(sys.argv[2])
def best(use_cache):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        symbols = ModuleSymbols.open(path, use_cache=use_cache)
        times.append(time.perf_counter() - start)
    return len(symbols), min(times)
count, cold = best(False)
print(count, cold, best(True)[1])
"""


def large_modules() -> list[Path]:
    """The large modules that are installed here."""
    found = [Path(node)] if (node := shutil.which("node")) else []
    found += sorted(Path("/usr/lib/jvm").glob("java-17-*/lib/server/libjvm.so"))
    found += sorted(Path("/usr/lib/x86_64-linux-gnu").glob("libLLVM-*.so.1"))
    return list(dict.fromkeys(path.resolve() for path in found))


def synthetic_module(directory: Path, count: int = 300_000) -> Path:
    """A library of that many C++ functions, more than any that is likely to be installed."""
    source, library = directory / "synthetic.s", directory / "synthetic.so"
    with source.open("w") as out:
        out.write(".text\n")
        for number in range(count):
            name = f"_ZN9synthetic6OrchidI{STRING}Li{number}EE5bloomEPKcm"
            out.write(f".globl {name}\n.type {name},@function\n{name}:\n.cfi_startproc\nret\n")
            out.write(f".cfi_endproc\n.size {name},.-{name}\n")
    subprocess.run(["gcc", "-shared", "-nostdlib", source, "-o", library], check=True)
    return library


def run(command: list[str], cache: Path) -> tuple[float, float, float]:
    """The seconds, the seconds of processor time and the peak memory in MiB of one run."""
    start = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.environ["XDG_CACHE_HOME"] = str(cache)
        os.execvp(command[0], command)
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - start
    if status != 0:
        raise SystemExit(f"{' '.join(command)} failed")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def best(command: list[str], cache: Path, before: Callable[[], None]) -> tuple[float, float, float]:
    """The shortest times, and the memory of the hungriest run."""
    runs = []
    for _ in range(RUNS):
        before()
        runs.append(run(command, cache))
    seconds, processor, memory = zip(*runs, strict=True)
    return min(seconds), min(processor), max(memory)


def library_only(path: Path, cache: Path) -> tuple[int, float, float]:
    """The number of functions, and the seconds to open a module without and with the cache.

    In a process of its own: the memory that a command is charged with includes that of its parent.
    """
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-c", LIBRARY_ONLY, str(path), str(RUNS)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    count, cold, cached = done.stdout.split()
    return int(count), float(cold), float(cached)


def report(path: Path, cache: Path) -> None:
    """Prints the table of one module."""

    def forget() -> None:
        shutil.rmtree(cache / "weft", ignore_errors=True)

    def keep() -> None:
        pass

    weft = str(Path(sys.executable).parent / "weft")
    points = [weft, "points", str(path), "--format", "json"]
    rows = [
        ("weft points --format json, cold", *best(points, cache, forget)),
        ("weft points --format json, cached", *best(points, cache, keep)),
        (
            "weft points --function malloc, cached",
            *best([*points, "--function", "malloc"], cache, keep),
        ),
        ("weft --version (start of Python)", *best([weft, "--version"], cache, keep)),
    ]
    for tool in (["nm", "-D"], ["nm", "-DC"], ["readelf", "-sW"], ["eu-readelf", "-s"]):
        if shutil.which(tool[0]):
            rows.append((" ".join(tool), *best([*tool, str(path)], cache, keep)))
    count, cold, cached = library_only(path, cache)
    print(f"\n{path}: {path.stat().st_size / 1e6:.0f} MB, {count} functions\n")
    print(
        f"| {'command':40} | seconds | processor | MiB |\n|{'-' * 42}|---------|-----------|-----|"
    )
    for name, seconds, processor, memory in rows:
        print(f"| {name:40} | {seconds:7.3f} | {processor:9.3f} | {memory:3.0f} |")
    print(f"| {'library only: open, cold':40} | {cold:7.3f} |           |     |")
    print(f"| {'library only: open, cached':40} | {cached:7.3f} |           |     |")


def main() -> None:
    """Reports on the files that are named, or on the large ones that are installed."""
    with tempfile.TemporaryDirectory() as directory:
        paths = [Path(argument) for argument in sys.argv[1:]]
        paths = paths or [*large_modules(), synthetic_module(Path(directory))]
        for path in paths:
            report(path, Path(directory) / "cache")


if __name__ == "__main__":
    main()
