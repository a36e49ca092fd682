"""What the descriptors of processes are of, and who has the other ends of pipes and sockets."""

from __future__ import annotations

import os
import re
import stat
from collections import defaultdict
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

from weft.base.numbers import printable
from weft.model.waits import Descriptor, DescriptorKind, Holder
from weft.program import tasks
from weft.program.sockets import Sockets

__all__ = ["Descriptors", "Direction", "Ends", "Places", "flags", "info"]

Direction: TypeAlias = Literal["read", "write", "both"]
Places: TypeAlias = "list[tuple[int, int]]"
"""Processes, each with the number of a descriptor."""

_ANONYMOUS: dict[str, DescriptorKind] = {
    "eventfd": "eventfd",
    "eventpoll": "epoll",
    "timerfd": "timerfd",
    "signalfd": "signalfd",
    "inotify": "inotify",
    "fanotify": "fanotify",
    "pidfd": "pidfd",
    "io_uring": "io_uring",
    "userfaultfd": "userfaultfd",
}
_MOST_WATCHED = 256
_DISTANT = ("nfs", "cifs", "smb", "fuse", "9p", "ceph", "afs", "gfs", "lustre")
"""File systems that may never answer."""
_ACCESS = 3


class Ends:
    """Who has which pipes, sockets and files open, on the whole machine, as far as may be known."""

    def __init__(self) -> None:
        self.hidden = 0
        """How many processes could not be looked into."""

    @cached_property
    def _open(self) -> dict[str, Places]:
        found: defaultdict[str, Places] = defaultdict(list)
        for pid in tasks.pids():
            try:
                numbers = [int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()]
            except PermissionError:
                self.hidden += not tasks.is_kernel(pid)
                continue
            except OSError:
                continue
            at = pid
            if not numbers and (at := tasks.reachable(pid)) != pid:
                with suppress(OSError):
                    numbers = [int(path.name) for path in Path(f"/proc/{at}/fd").iterdir()]
            for number in numbers:
                found[tasks.link(f"/proc/{at}/fd/{number}")].append((pid, number))
        return dict(found)

    def places(self, link: str) -> Places:
        """Where something is open, by what ``/proc/PID/fd`` calls it."""
        return self._open.get(link, [])

    def holders(self, link: str, direction: Direction) -> list[Holder]:
        """The processes that have it open for what a thread waits for: to read, or to write."""
        wanted = {"read": (os.O_RDONLY, os.O_RDWR), "write": (os.O_WRONLY, os.O_RDWR)}.get(
            direction, (os.O_RDONLY, os.O_WRONLY, os.O_RDWR)
        )
        found = {
            pid
            for pid, number in self.places(link)
            if (found := flags(info(pid, pid, number))) is not None and found & _ACCESS in wanted
        }
        sure: Literal["sure", "possible"] = "sure" if len(found) == 1 else "possible"
        return [Holder(pid, None, tasks.name(pid), sure) for pid in sorted(found)]


class Descriptors:
    """What the descriptors of a process are of."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.sockets = Sockets(pid)

    def link(self, tid: int, number: int) -> str:
        """What the kernel calls it; empty if it is closed."""
        return tasks.link(f"/proc/{self._pid}/task/{tid}/fd/{number}")

    def describe(self, tid: int, number: int, direction: Direction | None) -> Descriptor:
        """Say what a descriptor of a thread is of."""
        return self._describe(tid, number, direction, watched=True)

    def _describe(
        self, tid: int, number: int, direction: Direction | None, *, watched: bool
    ) -> Descriptor:
        link = self.link(tid, number)
        shown = printable(link)
        if not link:
            return Descriptor(number, "closed", "closed", direction=direction)
        inode = _inode(link)
        if link.startswith("socket:") and inode is not None:
            return self._socket(number, inode, direction)
        if link.startswith("pipe:"):
            return Descriptor(number, "pipe", f"pipe {inode}", inode, direction=direction)
        kind = _kind(link)
        if kind is None:
            return self._path(tid, number, link, direction)
        watches: tuple[Descriptor, ...] = ()
        text = shown.removeprefix("anon_inode:").strip("[]") if kind == "other" else kind
        lines = info(self._pid, tid, number)
        if kind == "epoll" and watched:
            numbers = [int(words[1]) for words in lines if words[0] == "tfd:"][:_MOST_WATCHED]
            watches = tuple(
                self._describe(tid, one, None, watched=False) for one in sorted(set(numbers))
            )
            text = f"epoll of {len(watches)} descriptors"
        elif kind == "pidfd":
            pid = next((words[1] for words in lines if words[0] == "Pid:"), "-1")
            text = f"pidfd of process {pid}" if pid != "-1" else "pidfd of an ended process"
        return Descriptor(number, kind, text, inode, direction=direction, watches=watches)

    def _socket(self, number: int, inode: int, direction: Direction | None) -> Descriptor:
        one = self.sockets.find(inode)
        if one is None:
            return Descriptor(number, "socket", f"socket {inode}", inode, direction=direction)
        words = [f"{one.protocol} socket"]
        if one.listens:
            words.append(f"that listens at {one.local or inode}")
        elif one.peer:
            words.append(f"{one.local} to {one.peer}")
        else:
            words.append(one.local or str(inode))
        return Descriptor(
            number, "socket", " ".join(words), inode, one.protocol, one.local, one.peer, direction
        )

    def _path(self, tid: int, number: int, link: str, direction: Direction | None) -> Descriptor:
        kind: DescriptorKind = "file"
        inode = None
        shown = printable(link)
        if link.startswith("/") and not self._is_distant(tid, number):
            with suppress(OSError):
                found = Path(f"/proc/{self._pid}/task/{tid}/fd/{number}").stat()
                inode = found.st_ino
                if stat.S_ISFIFO(found.st_mode):
                    kind, shown = "pipe", f"pipe {shown}"
                elif stat.S_ISDIR(found.st_mode):
                    kind = "directory"
                elif stat.S_ISCHR(found.st_mode):
                    is_terminal = re.match(r"/dev/(pts/|tty|console)", link)
                    kind = "terminal" if is_terminal else "device"
                elif stat.S_ISBLK(found.st_mode):
                    kind = "device"
        return Descriptor(number, kind, shown, inode, direction=direction)

    def _is_distant(self, tid: int, number: int) -> bool:
        """Whether it is on a file system on which looking at a file may take for ever."""
        mount = next(
            (words[1] for words in info(self._pid, tid, number) if words[0] == "mnt_id:"), None
        )
        return self._mounts.get(mount or "", "").startswith(_DISTANT)

    @cached_property
    def _mounts(self) -> dict[str, str]:
        rows = (line.split() for line in tasks.read(f"/proc/{self._pid}/mountinfo").splitlines())
        return {row[0]: row[row.index("-") + 1] for row in rows if "-" in row[:-1]}


def info(pid: int, tid: int, number: int) -> list[list[str]]:
    """The words of the lines that the kernel has on a descriptor."""
    lines = tasks.read(f"/proc/{pid}/task/{tid}/fdinfo/{number}").splitlines()
    return [words for line in lines if len(words := line.split()) > 1]


def flags(lines: list[list[str]]) -> int | None:
    """The flags of a descriptor, from what the kernel has on it."""
    for words in lines:
        if words[0] == "flags:":
            with suppress(ValueError):
                return int(words[1], 8)
    return None


def _inode(link: str) -> int | None:
    found = re.fullmatch(r"[a-z_]+:\[(\d+)\]", link)
    return int(found[1]) if found else None


def _kind(link: str) -> DescriptorKind | None:
    """The kind of what has no path."""
    if link.startswith("pidfd:"):
        return "pidfd"
    if not link.startswith("anon_inode:"):
        return None
    return _ANONYMOUS.get(link.removeprefix("anon_inode:").strip("[]"), "other")
