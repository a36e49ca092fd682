"""Locks on files: who holds the one that a process waits for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from weft.model.waits import Holder
from weft.program import tasks
from weft.program.descriptors import Ends, info

__all__ = ["holders"]


@dataclass(frozen=True, slots=True)
class _Lock:
    number: str
    is_waiting: bool
    kind: str
    pid: int
    file: str


def _locks(text: str) -> list[_Lock]:
    """The rows of ``/proc/locks``, and of what ``fdinfo`` has of them."""
    found = []
    for line in text.splitlines():
        words = line.split()
        # "1: -> FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF"; the arrow is of one who waits.
        is_waiting = words[1:2] == ["->"]
        fields = words[2 if is_waiting else 1 :]
        with suppress(IndexError, ValueError):
            found.append(_Lock(words[0], is_waiting, fields[0], int(fields[3]), fields[4]))
    return found


def holders(pid: int, inode: int, link: str, kind: str, ends: Ends) -> tuple[list[Holder], bool]:
    """Who holds a lock on a file that a process waits for, and whether these are all.

    ``kind`` is that of the lock: ``FLOCK``, ``POSIX`` or ``OFDLCK``. The first and the last belong
    to an open file, which processes may share: any of them can let it go.
    """
    rows = _locks(tasks.read("/proc/locks"))
    ours = [
        row
        for row in rows
        if row.is_waiting
        and row.kind == kind
        and row.file.rpartition(":")[2] == str(inode)
        and (row.pid == pid or kind == "OFDLCK")
    ]
    numbers = {row.number for row in ours}
    held = [row for row in rows if not row.is_waiting and row.number in numbers]
    if not held:
        return [], False
    if kind == "POSIX":
        # Of those in its way the kernel lists one; another may hold another part of the file.
        found = {row.pid for row in held if row.pid > 0}
        return [_holder(one, len(found)) for one in sorted(found)], len(found) == len(held)
    files = {row.file for row in held}
    found = {
        place
        for place, number in ends.places(link)
        if any(
            row.kind == kind and row.file in files
            for words in info(place, place, number)
            if words[0] == "lock:"
            for row in _locks(" ".join(words[1:]))
        )
    }
    return [_holder(one, len(found)) for one in sorted(found)], bool(found)


def _holder(pid: int, count: int) -> Holder:
    return Holder(pid, None, tasks.name(pid), "sure" if count == 1 else "possible")
