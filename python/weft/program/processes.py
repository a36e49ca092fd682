"""The processes of this machine, by the names that people know them by.

Nothing is attached to: this reads ``/proc``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from weft.base.names import did_you_mean, program_name
from weft.base.numbers import printable, shortened
from weft.errors import InvalidArgument, NoSuchProcess

__all__ = ["RunningProcess", "find_process", "processes", "processes_named"]

_MOST_LISTED = 10
_WIDEST = 80
"""How much of a command line is shown."""
_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process, as ``/proc`` has it."""

    pid: int
    name: str
    """What it was started as."""
    names: frozenset[str]
    """All that it goes by: what it was started as, the kernel's name for it, and its file's."""
    words: tuple[str, ...]
    user: str
    started: float
    """In seconds since 1970."""

    @property
    def command(self) -> str:
        """Its command line, on one line."""
        return shortened(" ".join(self.words) or self.name, _WIDEST)


def processes() -> Iterator[RunningProcess]:
    """The processes that run programs, but for this one: neither the kernel's threads nor zombies.

    One that ends while it is looked at is left out.
    """
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    own = os.getpid()
    with os.scandir("/proc") as entries:
        pids = sorted(int(entry.name) for entry in entries if entry.name.isdecimal())
    for pid in pids:
        if pid == own:
            continue
        with suppress(OSError, ValueError, IndexError):
            yield _process(pid, booted)


def _process(pid: int, booted: float) -> RunningProcess:
    folder = Path(f"/proc/{pid}")
    text = (folder / "stat").read_text(errors="surrogateescape")
    # The name in parentheses may hold parentheses itself.
    comm, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    words = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    command = tuple(os.fsdecode(word) for word in words if word)
    if fields[0] in "ZX" or not command:
        raise ValueError("it runs no program")
    file = ""
    with suppress(OSError):  # others' are not for everybody
        file = (folder / "exe").readlink().name.removesuffix(" (deleted)")
    name = program_name(command, file or comm)
    return RunningProcess(
        pid=pid,
        name=name,
        names=frozenset(filter(None, (name, comm, file))),
        words=command,
        user=_user(folder.stat().st_uid),
        started=booted + int(fields[19]) / os.sysconf("SC_CLK_TCK"),
    )


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def processes_named(name: str) -> list[RunningProcess]:
    """The processes that go by a name."""
    return [process for process in processes() if name in process.names]


def find_process(name: str, what: str = "process") -> RunningProcess:
    """The only process of a name. Raises an error that lists all, or those of similar names.

    ``what`` is what else there could have been.
    """
    everybody = list(processes())
    found = [process for process in everybody if name in process.names]
    if len(found) == 1:
        return found[0]
    if found:
        raise several(name, found)
    names = {one for process in everybody for one in process.names}
    meant = did_you_mean(name, names)
    raise NoSuchProcess(
        f"there is no {what} {printable(name)}",
        "no program that runs was started by this name",
        f"{meant} `weft ps` lists the processes".strip(),
    )


def several(name: str, found: list[RunningProcess]) -> InvalidArgument:
    """Say that a name is that of several processes, and which."""
    rows = [(str(one.pid), one.user, _moment(one.started), one.command) for one in found]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"    {pid:>{widths[0]}}  {user:{widths[1]}}  {began:{widths[2]}}  {command}"
        for pid, user, began, command in rows[:_MOST_LISTED]
    ]
    if len(rows) > _MOST_LISTED:
        lines.append(f"    ... and {len(rows) - _MOST_LISTED} more: see `weft ps`")
    return InvalidArgument(
        f"{name} is the name of {len(found)} processes",
        "\n" + "\n".join(lines),
        f"name one by its number: {found[-1].pid}",
    )


def _moment(seconds: float) -> str:
    """When something was, in local time: the time of day, or the date if it was long ago."""
    is_recent = time.time() - seconds < _DAY
    return time.strftime("%H:%M:%S" if is_recent else "%Y-%m-%d", time.localtime(seconds))
