"""How often every function of a program is called, told by Valgrind's callgrind."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import TypeAlias

from tests.e2e.harness import need

Hits: TypeAlias = Counter[tuple[str, str]]
"""By the names of module and function."""


def hits(command: Sequence[str | Path]) -> Hits:
    """Run a program to its end under callgrind: how often each of its functions was called."""
    need("valgrind")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        plain = ["--compress-strings=no", "--compress-pos=no", f"--callgrind-out-file={out}"]
        subprocess.run(
            ["valgrind", "--quiet", "--tool=callgrind", *plain, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        return parse(out.read_text().splitlines())


def parse(lines: Iterable[str]) -> Hits:
    """Read callgrind's own format, as far as it tells of calls."""
    found: Hits = Counter()
    module = called_module = called = ""
    for line in lines:
        key, _, value = line.partition("=")
        if key == "ob":
            module = called_module = PurePath(value).name
        elif key == "fn":
            called_module = module
        elif key == "cob":
            called_module = PurePath(value).name
        elif key == "cfn":
            # Without the version that the linker puts behind it, and the depth that callgrind does.
            called = re.sub(r"(@.*|'\d+)$", "", value)
        elif key == "calls":
            found[called_module, called] += int(value.split()[0])
            # The next call is one within the same module, unless it is said to be another.
            called_module = module
    return found


def share(hits: Hits, functions: Iterable[tuple[str, str]], modules: set[str]) -> float:
    """Return how much of all calls in some modules goes to some functions, between 0 and 1."""
    chosen = set(functions)
    whole = sum(number for place, number in hits.items() if place[0] in modules)
    return sum(number for place, number in hits.items() if place in chosen) / max(whole, 1)
