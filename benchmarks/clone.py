"""What running everything translated costs: native, weft's clone engine, and its peers.

    python benchmarks/clone.py [--rounds N] [--only NAME...] [--steady] [--no-peers] [--json FILE]

Seconds of a whole run, start-up included, best of several rounds, and the other tools' best as a
factor over native's in the same run. `--steady` makes every workload last ten seconds natively, so
that start-up and translation no longer count. What a tool prints must be what native prints. Beside
weft: Valgrind's tool that does nothing, Frida's Stalker (the first thread only, `pip install
frida`), DynamoRIO without a client when DRRUN names its `drrun`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.clone import cloned
from tests.toolchain import PROGRAMS, run
from tests.zoo.inputs import functions, noise, statements, text

SOURCES = PROGRAMS / "clone" / "bench"
ROUNDS = 3
STEADY = 10.0
PATIENCE = 100.0
"""How many times native's time a tool may take, with a minute to start."""

SQL = "script.sql"


@dataclass(frozen=True)
class Workload:
    """Something to do, as often as a factor says."""

    name: str
    command: Callable[[int], str]
    """The command for a factor; its words are split as by a shell, {bench} is the sources."""
    prepare: Callable[[Path, int], object] = lambda folder, factor: None
    factor: int = 1
    dynamorio: float | None = None
    """What DynamoRIO 11.91 took on another machine, over native there."""
    unfit: dict[str, str] = field(default_factory=dict)
    """Which tools cannot do it for a reason that is no crash."""


@dataclass(frozen=True)
class Tool:
    """Something that runs programs."""

    name: str
    prefix: list[str]


@dataclass
class Measured:
    """What a tool took for a workload: its best time, or why there is none."""

    seconds: float = math.inf
    failure: str = ""


def compiled(source: str, *options: str) -> Callable[[Path, int], object]:
    compiler = {"c": "gcc", "cpp": "g++"}[source.rpartition(".")[2]]

    def prepare(folder: Path, factor: int) -> object:
        out = folder / source.partition(".")[0]
        return run(compiler, "-O2", *options, SOURCES / source, "-o", out)

    return prepare


def script(folder: Path, factor: int) -> None:
    """The same statements again and again, each time in a base of its own."""
    statements(SQL, 18000)(folder)
    once = (folder / SQL).read_text()
    (folder / SQL).write_text("".join(f".open :memory:\n{once}" for _ in range(factor)))


STALKERS = ("Stalker", "Frida cov", "Frida exec")
CHILDREN = dict.fromkeys(STALKERS, "its children are not followed")
THREADS = dict.fromkeys(STALKERS, "only the first of its threads would be followed")

TABLE = [
    Workload(
        "100M calls of a tiny function", lambda n: f"./calls {n}", compiled("calls.c"), 100, 3.05
    ),
    Workload(
        "C++ virtual calls and a map",
        lambda n: f"./objects {n}",
        compiled("objects.cpp"),
        500,
        2.17,
    ),
    Workload(
        "4 threads, arithmetic and a mutex",
        lambda n: f"./threads {n}",
        compiled("threads.c", "-pthread"),
        80,
        1.14,
        THREADS,
    ),
    Workload(
        "bzip2, 3.7 MB of text",
        lambda n: "bzip2 -k -c" + " text.txt" * n,
        lambda folder, factor: text("text.txt", 56000)(folder),
        dynamorio=1.47,
    ),
    Workload(
        "CPython 3.11: fib, json, re, sort",
        lambda n: f"/usr/bin/python3 {{bench}}/work.py {n}",
        factor=7,
        dynamorio=4.84,
    ),
    Workload(
        "sqlite3: inserts, index, joins", lambda n: f"sqlite3 < {SQL}", script, dynamorio=2.02
    ),
    Workload(
        "gcc -O2 of 200 generated functions",
        lambda n: "gcc -O2 -c -o out.o work.c",
        lambda folder, factor: functions("work.c", 200 * factor)(folder),
        dynamorio=4.24,
        unfit=CHILDREN,
    ),
    Workload(
        "java 17: heap sort",
        lambda n: f"java -cp classes Sorting {n}",
        lambda folder, factor: run("javac", "-d", folder / "classes", SOURCES / "Sorting.java"),
        5,
        4.41,
        THREADS,
    ),
    Workload(
        "node 20: sort, Map, fib, JSON",
        lambda n: f"node {{bench}}/work.js {n}",
        factor=8,
        dynamorio=4.64,
    ),
]
MORE = [
    Workload(
        "xz -6, 1 MB of text",
        lambda n: "xz -6 -T1 -k -c" + " text.txt" * n,
        lambda folder, factor: text("text.txt", 15000)(folder),
    ),
    Workload(
        "gzip -9, 2.6 MB of text",
        lambda n: "gzip -9 -n -k -c" + " text.txt" * n,
        lambda folder, factor: text("text.txt", 40000)(folder),
    ),
    Workload("perl: hashes, expressions, sort", lambda n: f"perl {{bench}}/work.pl {n}", factor=12),
    Workload("lua: tables, strings, fib", lambda n: f"lua5.4 {{bench}}/work.lua {n}", factor=12),
    Workload(
        "openssl: SHA-256 of 400 MB",
        lambda n: "openssl dgst -sha256" + " noise" * (20 * n),
        lambda folder, factor: noise("noise", 20_000_000)(folder),
    ),
    Workload(
        "awk: words and primes",
        lambda n: "mawk -f {bench}/work.awk" + " text.txt" * n,
        lambda folder, factor: text("text.txt", 40000)(folder),
        4,
    ),
]

NATIVE = Tool("native", [])


def tools(prefix: list[str], peers: bool) -> list[Tool]:
    """Return native and all that is installed."""
    found = [NATIVE, Tool("weft", prefix)]
    if peers and shutil.which("valgrind"):
        found.append(Tool("Valgrind", ["valgrind", "-q", "--tool=none", "--trace-children=yes"]))
    if peers and importlib.util.find_spec("frida"):
        found.append(Tool("Stalker", [sys.executable, "-m", "tests.stalker"]))
    if peers and (drrun := os.environ.get("DRRUN")):
        found.append(Tool("DynamoRIO", [drrun, "--"]))
    return found


def measure(workload: Workload, with_tools: list[Tool], rounds: int, steady: bool) -> Row:
    """Run a workload by all tools in turn, as often as asked."""
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        folder = Path(directory)
        factor = workload.factor
        workload.prepare(folder, factor)
        expected, native = once(workload, factor, NATIVE, folder, math.inf)
        if steady:
            factor = math.ceil(factor * STEADY / native)
            workload.prepare(folder, factor)
            expected, native = once(workload, factor, NATIVE, folder, math.inf)
        row = Row(workload, {tool.name: Measured() for tool in with_tools})
        for _ in range(rounds):
            for tool in with_tools:
                measured = row.measured[tool.name]
                measured.failure = measured.failure or workload.unfit.get(tool.name, "")
                if measured.failure:
                    continue
                try:
                    output, seconds = once(workload, factor, tool, folder, 60 + PATIENCE * native)
                except RuntimeError as error:
                    measured.failure = str(error)
                    continue
                if output != expected:
                    measured.failure = "prints something else" if output else "prints nothing"
                measured.seconds = min(measured.seconds, seconds)
    return row


def once(
    workload: Workload, factor: int, tool: Tool, folder: Path, patience: float
) -> tuple[bytes, float]:
    """Run a workload: what it printed, and the seconds that it took."""
    words = shlex.split(workload.command(factor).replace("{bench}", str(SOURCES)))
    source = os.devnull
    if "<" in words:
        at = words.index("<")
        source = words[at + 1]
        del words[at:]
    if words[0].startswith("./"):
        words[0] = str(folder / words[0])
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, map(absolute, paths)))}
    with (folder / source).open("rb") as stdin, tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            [*tool.prefix, *words],
            cwd=folder,
            env=environment,
            stdin=stdin,
            stdout=output,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            _, errors = process.communicate(timeout=None if patience == math.inf else patience)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"did not end in {patience:.0f} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        seconds = time.perf_counter() - start
        if process.returncode:
            raise RuntimeError(f"ended with {process.returncode}{last_line(errors)}")
        output.seek(0)
        return output.read(), seconds


def absolute(paths: str) -> str:
    return os.pathsep.join(str(Path(path).absolute()) for path in paths.split(os.pathsep) if path)


def last_line(errors: bytes) -> str:
    lines = errors.decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:150]}" if lines else ""


@dataclass
class Row:
    """A workload, and what each tool took for it."""

    workload: Workload
    measured: dict[str, Measured]

    def ratio(self, tool: str) -> float | None:
        """Return the factor over native, if both did it."""
        measured = self.measured[tool]
        if measured.failure or self.measured["native"].failure:
            return None
        return measured.seconds / self.measured["native"].seconds


def mean(ratios: Sequence[float | None]) -> str:
    """Return the geometric mean of those that there are, and of how many."""
    known = [ratio for ratio in ratios if ratio]
    if not known:
        return ""
    found = math.exp(sum(map(math.log, known)) / len(known))
    left_out = f" ({len(known)} of {len(ratios)})" if len(known) < len(ratios) else ""
    return f"{found:.2f}x{left_out}"


def show(row: Row, names: list[str]) -> None:
    cells = []
    for name in names[1:]:
        ratio = row.ratio(name)
        cells.append(f"{ratio:.2f}x" if ratio else "fails")
    mark = f"{row.workload.dynamorio:.2f}x" if row.workload.dynamorio else ""
    native = row.measured["native"].seconds
    line = f"{row.workload.name:36} {native:7.2f} s " + " ".join(f"{cell:>10}" for cell in cells)
    print(f"{line} {mark:>10}", flush=True)


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return what reads the options that all benchmarks of workloads have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="the best of how many")
    parser.add_argument("--only", nargs="+", help="only workloads whose names begin so")
    parser.add_argument("--steady", action="store_true", help=f"{STEADY:.0f} s of each")
    parser.add_argument("--no-peers", action="store_true", help="only native and weft")
    parser.add_argument("--json", type=Path, help="write all times into a file, too")
    return parser


def measured(
    workloads: Sequence[Workload], with_tools: list[Tool], options: argparse.Namespace
) -> Iterator[Row]:
    """Measure one workload after the other, and say which do not work natively."""
    for workload in workloads:
        try:
            yield measure(workload, with_tools, options.rounds, options.steady)
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            print(f"{workload.name:36} does not work natively: {error}")


def tell(rows: list[Row], options: argparse.Namespace) -> None:
    """Say what has failed, and write all times into a file if that was asked for."""
    for row in rows:
        for name, found in row.measured.items():
            if found.failure:
                print(f"{name} fails at {row.workload.name}: {found.failure}")
    if options.json:
        options.json.write_text(json.dumps([as_json(row) for row in rows], indent=1) + "\n")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--prefix", help="what to put before a command, instead of weft")
    options = parser.parse_args()
    prefix = cloned() if options.prefix is None else shlex.split(options.prefix)
    with_tools = tools(prefix, not options.no_peers)
    names = [tool.name for tool in with_tools]
    what = f"of {STEADY:.0f} s" if options.steady else "with start-up"
    print(f"runs {what}, best of {options.rounds}, as factors over native")
    head = " ".join(f"{name:>10}" for name in [*names[1:], "(DR there)"])
    print(f"{'workload':36} {'native':>9} {head}")
    rows: list[Row] = []
    wanted = tuple(options.only or [""])
    workloads = [one for one in [*TABLE, *MORE] if one.name.startswith(wanted)]
    for row in measured(workloads, with_tools, options):
        rows.append(row)
        show(row, names)
    for title, part in (("geometric mean of the table", TABLE), ("of all", [*TABLE, *MORE])):
        chosen = [row for row in rows if row.workload in part]
        means = " ".join(f"{mean([row.ratio(name) for row in chosen]):>10}" for name in names[1:])
        mark = mean([row.workload.dynamorio for row in chosen]) if part is TABLE else ""
        print(f"{title:46} {means} {mark:>10}")
    tell(rows, options)


def as_json(row: Row) -> dict[str, object]:
    return {
        "workload": row.workload.name,
        **{
            name: {"failure": measured.failure}
            if measured.failure
            else {"seconds": measured.seconds, "ratio": row.ratio(name)}
            for name, measured in row.measured.items()
        },
    }


if __name__ == "__main__":
    main()
