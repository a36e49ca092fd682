"""A coverage to show: of a test of a small server. And what is shown while it is made."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from weft.model.flow import Block, CodeModule, Flow
from weft.tools.coverage import (
    Branch,
    Coverage,
    FileCoverage,
    FunctionCoverage,
    ModuleCoverage,
)

FILES = {"src/store.c": (412, 371), "src/wire.c": (260, 148), "src/main.c": (95, 88)}
"""How many lines each has, and how many of them are executed."""
MISSED = {"store_compact": ("src/store.c", 214, 903), "wire_error": ("src/wire.c", 121, 388)}
"""Functions that are not executed: file, line and size."""


def covered() -> Coverage:
    """The coverage."""
    files = [_file(path, *counts) for path, counts in FILES.items()]
    functions = [
        FunctionCoverage(name, 16 * number, size, 0, file, line)
        for number, (name, (file, line, size)) in enumerate(MISSED.items())
    ]
    functions += [
        FunctionCoverage(f"store_{number}", 4096 + 16 * number, 16, 1, "src/store.c", number)
        for number in range(61)
    ]
    server = ModuleCoverage("/srv/store", True, len(functions), tuple(functions), tuple(files))
    used = tuple(FunctionCoverage(f"libc_{number}", number, 1, 1) for number in range(188))
    libc = ModuleCoverage("/lib/libc.so.6", False, 3707, used, ())
    blocks = tuple(Block(16 * number, 16, 4, 1) for number in range(2910))
    modules = [CodeModule(module.path, None, 0, 0, 1 << 16, ()) for module in (server, libc)]
    first = CodeModule(server.path, None, 0, 0, 1 << 16, blocks)
    flow = Flow((first, modules[1]), (), is_counted=False, command=("./store", "--self-test"))
    return Coverage(flow, (server, libc))


def _file(path: str, lines: int, hit: int) -> FileCoverage:
    missed = range(lines // 2, lines // 2 + lines - hit)
    counts = {line: int(line not in missed) for line in range(1, lines + 1)}
    ways = [Branch(line, line, counts[line], int(line % 3 > 0)) for line in range(1, lines, 5)]
    return FileCoverage(path, counts, tuple(ways))


_SLOW = """
import importlib, sys, time
module, _, name = sys.argv[1].partition(":")
home = importlib.import_module(module)
slow = getattr(home, name)
def slower(*words, **options):
    time.sleep(1.2)
    return slow(*words, **options)
setattr(home, name, slower)
from weft.cli import main
main(["cov", *sys.argv[2:]])
"""


def while_slow(function: str, words: Sequence[str], folder: Path) -> str:
    """What `weft cov` shows on a terminal if a function, ``MODULE:NAME``, takes more than a second.

    It must succeed.
    """
    master, terminal = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", _SLOW, function, *words],
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        cwd=folder,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
        timeout=60,
    )
    os.close(terminal)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    assert done.returncode == 0, shown
    return shown
