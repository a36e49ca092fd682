"""Names of code that a program makes while it runs, from the map that it writes of it.

``perf`` has made the format: a line for each piece of code, with its address and size in
hexadecimal digits and its name. Node writes one with ``--perf-basic-prof``, the JVM when it is
asked to (``jcmd PID Compiler.perfmap``).
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path

from weft.program.tasks import own_id

__all__ = ["PerfMap"]

_LARGEST = 256 << 20
"""How many bytes of a map are read at most: its end, which has what was made last."""


class PerfMap:
    """The map of a process; empty if it has written none."""

    def __init__(self, pid: int) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._names: list[str] = []
        for line in _lines(pid):
            start, size, name = (*line.split(maxsplit=2), "", "", "")[:3]
            with suppress(ValueError):
                self._add(int(start, 16), int(size, 16), name.strip())
        order = sorted(range(len(self._starts)), key=self._starts.__getitem__)
        # Of pieces at the same address the last is the one that is there now.
        self._starts = [self._starts[at] for at in order]
        self._ends = [self._ends[at] for at in order]
        self._names = [self._names[at] for at in order]

    def _add(self, start: int, size: int, name: str) -> None:
        if name:
            self._starts.append(start)
            self._ends.append(start + size)
            self._names.append(name)

    def find(self, address: int) -> tuple[str, int] | None:
        """Return the name of the code at an address, and where that begins."""
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address >= self._ends[at]:
            return None
        return self._names[at], self._starts[at]


def _lines(pid: int) -> list[str]:
    """The lines of the map, wherever the process has its files."""
    # Where programs write it by convention, under the id that they know themselves by.
    path = f"/proc/{pid}/root/tmp/perf-{own_id(pid, pid)}.map"
    try:
        owner = Path(f"/proc/{pid}").stat().st_uid
        # A pipe of that name must not hold weft up, and whoever else can write there is not
        # believed.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    with os.fdopen(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode) or state.st_uid not in (0, owner):
            return []
        file.seek(max(state.st_size - _LARGEST, 0))
        return file.read(_LARGEST).decode(errors="replace").splitlines()
