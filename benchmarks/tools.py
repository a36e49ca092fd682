"""What weft's tools cost: coverage, exact profiles and traces, beside the bare clone and the peers.

    python benchmarks/tools.py [--rounds N] [--only NAME...] [--steady] [--no-peers] [--json FILE]

Seconds of a whole run with all that the tool writes, best of several rounds, as factors over native
in the same run; below, what the tools add to the bare clone. `--steady` makes every workload last
ten seconds natively, but for traces, which are left out then. What the program prints must be what
native prints. Beside weft: Valgrind's callgrind (a profile), cachegrind (every access is looked at)
and lackey (every access is printed), and DynamoRIO's drcov, bbcount and memtrace when DRRUN names
its `drrun`, of which the folder holds the clients. Of Frida (`pip install frida`), what its Stalker
can be asked for: which blocks are translated, and which are executed, of the first thread from
`main` on; what it tells is thrown away.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.clone import NATIVE, STEADY, TABLE, Row, Tool, mean, measured, parser_of, tell
from tests.clone import cloned

NAMES = ["bzip2", "sqlite3", "CPython", "gcc", "node", "java"]
"""How the workloads' names begin."""
CLONE = "clone"
OURS = ["coverage", "counts", "trace"]
"""What of weft's is shown over the bare clone."""
LONG = ["trace", "lackey", "memtrace"]
"""What writes too much for ten seconds."""


def weft(command: str, out: Path, output_format: str) -> list[str]:
    file = str(out / f"weft.{command}")
    return [sys.executable, "-m", "weft", command, "-o", file, "--format", output_format, "--"]


def tools(out: Path, peers: bool) -> Iterator[Tool]:
    """All that is installed."""
    yield NATIVE
    yield Tool(CLONE, cloned())
    yield Tool("coverage", weft("cov", out, "drcov"))
    yield Tool("counts", weft("profile", out, "json"))
    trace = [sys.executable, "-m", "weft", "trace", "-o", str(out / "weft.trace"), "--"]
    yield Tool("trace", trace)
    if peers and shutil.which("valgrind"):
        common = ["valgrind", "-q", "--trace-children=yes", f"--log-file={out}/valgrind"]
        yield Tool("callgrind", [*common, "--tool=callgrind", f"--callgrind-out-file={out}/calls"])
        yield Tool("cachegrind", [*common, "--tool=cachegrind", f"--cachegrind-out-file={out}/c"])
        yield Tool("lackey", [*common, "--tool=lackey", "--trace-mem=yes"])
    if peers and importlib.util.find_spec("frida"):
        stalker = [sys.executable, "-m", "tests.stalker", "--events"]
        yield Tool("Frida cov", [*stalker, "compile"])
        yield Tool("Frida exec", [*stalker, "block"])
    if peers and (drrun := os.environ.get("DRRUN")):
        yield Tool("drcov", [drrun, "-t", "drcov", "-logdir", str(out), "--"])
        for client in ("bbcount", "memtrace_x86_binary"):
            for library in Path(drrun).parents[1].rglob(f"lib{client}.so"):
                yield Tool(client.partition("_")[0], [drrun, "-c", str(library), "--"])
                break


def show(row: Row, names: list[str]) -> None:
    cells = [f"{ratio:.2f}x" if (ratio := row.ratio(name)) else "fails" for name in names[1:]]
    native = row.measured["native"].seconds
    line = " ".join(f"{cell:>10}" for cell in cells)
    print(f"{row.workload.name:36} {native:7.2f} s {line}", flush=True)


def over_clone(row: Row, name: str) -> float | None:
    """Return what a tool takes over the bare clone."""
    bare, with_tool = row.ratio(CLONE), row.ratio(name)
    return with_tool / bare if bare and with_tool else None


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--tools", nargs="+", help="only these, beside native and the bare clone")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="weft-tools-") as folder:
        with_tools = list(tools(Path(folder), not options.no_peers))
        if options.steady:
            with_tools = [tool for tool in with_tools if tool.name not in LONG]
        if options.tools:
            wanted = {NATIVE.name, CLONE, *options.tools}
            with_tools = [tool for tool in with_tools if tool.name in wanted]
        names = [tool.name for tool in with_tools]
        what = f"of {STEADY:.0f} s" if options.steady else "with start-up"
        print(f"runs {what}, best of {options.rounds}, as factors over native")
        print(f"{'workload':36} {'native':>9} " + " ".join(f"{name:>10}" for name in names[1:]))
        wanted_names = tuple(options.only or NAMES)
        workloads = [one for one in TABLE if one.name.startswith(wanted_names)]
        for row in measured(workloads, with_tools, options):
            rows.append(row)
            show(row, names)
    means = " ".join(f"{mean([row.ratio(name) for row in rows]):>10}" for name in names[1:])
    print(f"{'geometric mean':46} {means}")
    for name in filter(names.__contains__, OURS):
        factors = [over_clone(row, name) for row in rows]
        cells = "  ".join(f"{factor:.2f}x" if factor else "fails" for factor in factors)
        print(f"{name} over the bare clone: {mean(factors)} ({cells})")
    tell(rows, options)


if __name__ == "__main__":
    main()
