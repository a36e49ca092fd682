"""What the kernel counts for a process: the metrics that say ``base is counter $process.NAME``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

__all__ = ["COUNTED", "count"]


Files: TypeAlias = Callable[[str], str]
"""Reads one of the files below ``/proc/PID``."""


def _of_stat(*fields: int) -> Callable[[Files], int]:
    def read(files: Files) -> int:
        text = files("stat")
        # The name of the program may hold anything, parentheses and spaces included.
        words = text[text.rindex(")") + 2 :].split()
        return sum(int(words[number - 3]) for number in fields)

    return read


def _of_lines(file: str, *names: str) -> Callable[[Files], int]:
    """The sum of lines of a file that say ``NAME: NUMBER``."""

    def read(files: Files) -> int:
        found = (line.partition(":") for line in files(file).splitlines())
        return sum(int(value) for name, _, value in found if name in names)

    return read


COUNTED: Mapping[str, Callable[[Files], int]] = {
    "page_faults": _of_stat(10, 12),
    "major_faults": _of_stat(12),
    "context_switches": _of_lines(
        "status", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"
    ),
    "io_bytes": _of_lines("io", "rchar", "wchar"),
}
"""By name. The numbers are those of fields in ``/proc/PID/stat``."""


def count(name: str, files: Files) -> int | None:
    """Return what the kernel has counted for a process so far; nothing when it is gone."""
    try:
        return COUNTED[name](files)
    except (FileNotFoundError, ProcessLookupError):
        return None
