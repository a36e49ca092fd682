"""What runs on this machine, as selectors ask of it and as a host reports it."""

from __future__ import annotations

import os
import re
import struct
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from weft.base.names import program_name
from weft.fleet.plan import Process
from weft.fleet.protocol import Program
from weft.fleet.selectors import EVERYTHING, Selector

__all__ = ["Inventory", "programs"]

_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)")
"""The ids that Docker, containerd, CRI-O and Podman give."""
_MOST_PROGRAMS = 500
_REFRESH = 30.0
"""How often what is known of a process is read anew, in seconds."""
_MOST_NOTES = 64 << 10
_NOTE, _BUILD_ID = 4, 3
_PAIR = struct.Struct("<HH")
_MOST_KNOWN = 10_000


class _Seen(NamedTuple):
    """What tells that a process is still the same, and the same program."""

    started: int
    parent: int
    is_over: bool
    name: bytes
    stack: bytes
    """Where its stack begins, which is elsewhere after each ``execve``."""

    @classmethod
    def of(cls, stat: bytes) -> _Seen:
        """Read ``/proc/PID/stat``; the name in parentheses may hold parentheses itself."""
        head, _, rest = stat.rpartition(b")")
        fields = rest.split()
        return cls(
            int(fields[19]), int(fields[1]), fields[0] in b"ZX", head.partition(b"(")[2], fields[25]
        )


class _Known(NamedTuple):
    """What was read of a process, and when."""

    seen: _Seen
    read: float
    process: Process | None


class Inventory:
    """Looks at the processes of the machine, and remembers what does not change."""

    def __init__(self, host: str, labels: Mapping[str, str], only: Selector = EVERYTHING) -> None:
        self._only = only
        self._of_host: dict[str, tuple[str, ...]] = {"host": (host,)}
        self._of_host.update({f"label.{name}": (value,) for name, value in labels.items()})
        self._build_ids: dict[tuple[int, int, int], str] = {}
        self._users: dict[int, str] = {}
        self._known: dict[int, _Known] = {}
        self._netns = _namespace("self", "net")

    @property
    def netns(self) -> str:
        """The network namespace of this host."""
        return self._netns

    @property
    def of_host(self) -> Mapping[str, tuple[str, ...]]:
        """What is known of every process of this host."""
        return self._of_host

    def look(self) -> list[Process]:
        """The processes that are for this host, and run programs. None is disturbed.

        All of ``/proc`` is read, on and on: what is known of a process is read anew only if it has
        become another program, and now and then, for it may give itself another name.
        """
        known, self._known = self._known, {}
        now = time.monotonic()
        found = []
        for pid in _pids():
            # One may end while it is looked at; others' are not for everybody.
            with suppress(OSError, ValueError, IndexError):
                if pid == os.getpid():
                    continue
                with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  # ten times as fast
                    stat = file.read()
                seen = _Seen.of(stat)
                old = known.get(pid)
                if old is None or old.seen != seen or now - old.read > _REFRESH:
                    old = _Known(seen, now, self._process(pid, seen))
                self._known[pid] = old
                if old.process is not None:
                    found.append(old.process)
        return found

    def lock_name(self, process: Process) -> str:
        """The name of a process that no other on this machine has, in whichever namespace it is."""
        own = process.pid
        for line in Path(f"/proc/{process.pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                own = int(line.split()[-1])
        return f"process-{_namespace(str(process.pid), 'pid')}-{own}-{process.started}"

    def has_weft(self, pid: int) -> bool:
        """Whether there is anything of a weft in a process, also of one that is no more."""
        with suppress(OSError), Path(f"/proc/{pid}/maps").open("rb") as maps:
            return any(b"/memfd:weft" in line for line in maps)
        return False

    def _process(self, pid: int, seen: _Seen) -> Process | None:
        """What is known of a process; nothing if it is not for this host, or runs no program."""
        folder = Path(f"/proc/{pid}")
        words = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        command = tuple(os.fsdecode(word) for word in words if word)
        if seen.is_over or not command:
            return None
        try:
            exe = str((folder / "exe").readlink()).removesuffix(" (deleted)")
            build_id = {"build_id": (self._build_id(folder / "exe"),)}
            is_hidden = False
        except PermissionError:
            # What it calls itself is for everybody to read, and most often what it is.
            exe, build_id, is_hidden = command[0], {}, True
        name = program_name(command, exe)
        uid = folder.stat().st_uid
        cgroup = _cgroup(folder)
        container = _CONTAINER.search(cgroup)
        netns = _namespace(str(pid), "net")
        facts = {
            **self._of_host,
            "exe": tuple(dict.fromkeys((name, Path(exe).name, exe))),
            "pid": (str(pid),),
            "uid": (str(uid),),
            "user": (self._user(uid),),
            "cgroup": (cgroup,),
            "container": (container[1],) if container else ("",),
            **build_id,
            "netns": (netns, "own") if netns == self.netns else (netns,),
        }
        process = Process(pid, seen.started, facts, seen.parent, is_hidden)
        is_meant = self._only.may_match(facts) if is_hidden else self._only.matches(facts)
        return process if is_meant else None

    def _user(self, uid: int) -> str:
        import pwd

        if uid not in self._users:
            try:
                self._users[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:
                self._users[uid] = str(uid)
        return self._users[uid]

    def _build_id(self, file: Path) -> str:
        status = file.stat()
        key = status.st_dev, status.st_ino, status.st_mtime_ns
        if key not in self._build_ids:
            if len(self._build_ids) >= _MOST_KNOWN:
                self._build_ids.clear()
            self._build_ids[key] = _read_build_id(file)
        return self._build_ids[key]


def _pids() -> list[int]:
    with os.scandir("/proc") as entries:
        return sorted(int(entry.name) for entry in entries if entry.name.isdecimal())


def programs(processes: Iterable[Process]) -> tuple[Program, ...]:
    """What runs, for a report: the programs that most processes run come first."""

    def first(process: Process, field: str) -> str:
        return process.facts[field][0][:1024]

    counts = Counter(
        (
            first(one, "exe"),
            one.facts["exe"][-1][:1024],
            first(one, "build_id"),
            first(one, "user"),
            first(one, "cgroup"),
            first(one, "container"),
        )
        for one in processes
        if not one.is_hidden
    )
    listed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MOST_PROGRAMS]
    return tuple(Program(*key, processes=count) for key, count in listed)


def _namespace(pid: str, kind: str) -> str:
    """The number of a namespace; empty if it may not be looked at."""
    with suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/{kind}").readlink()).partition("[")[2].rstrip("]")
    return ""


def _cgroup(folder: Path) -> str:
    for line in (folder / "cgroup").read_text(errors="surrogateescape").splitlines():
        number, _, path = line.split(":", 2)
        if number == "0" or path != "/":
            return path
    return "/"


def _read_build_id(file: Path) -> str:
    """The build id of a program, if it says one in a note; nothing else of the file is read."""
    with suppress(OSError, struct.error), file.open("rb") as program:
        header = program.read(64)
        if header[:5] != b"\x7fELF\x02":
            return ""
        table, size, count = (*struct.unpack_from("<Q", header, 32), *_PAIR.unpack_from(header, 54))
        program.seek(table)
        headers = program.read(min(size * count, _MOST_NOTES))
        for at in range(0, len(headers) - 55, max(size, 56)):
            (kind,) = struct.unpack_from("<I", headers, at)
            offset, length = struct.unpack_from("<Q", headers, at + 8)[0], _length(headers, at)
            if kind == _NOTE:
                program.seek(offset)
                if found := _in_notes(program.read(min(length, _MOST_NOTES))):
                    return found
    return ""


def _length(headers: bytes, at: int) -> int:
    return int(struct.unpack_from("<Q", headers, at + 32)[0])


def _in_notes(notes: bytes) -> str:
    at = 0
    while at + 12 <= len(notes):
        name, length, kind = struct.unpack_from("<III", notes, at)
        value = at + 12 + (name + 3 & ~3)
        if kind == _BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0":
            return notes[value : value + length].hex()
        at = value + (length + 3 & ~3)
    return ""
