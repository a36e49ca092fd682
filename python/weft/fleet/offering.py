"""The files that a host offers: those of one folder, if they are its user's own.

Whoever can change the folder decides what is in it, so it has to be the user's, or root's. A link
is never followed, and what was opened is looked at, not what had its name before.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from weft.base.numbers import printable
from weft.errors import BadFile, WeftError
from weft.fleet.protocol import LARGEST_FILE, LATEST, MOST_FILES, FileEntry, is_file_name

__all__ = ["Offer", "Opened", "Unavailable"]


class Unavailable(WeftError):
    """A file that cannot be had, or not any more."""

    exit_code = 4


class Opened:
    """A file that is read; who reads it finds out at the end whether it was changed meanwhile."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self._name = name
        self._before = os.fstat(descriptor)

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self._before.st_size

    @property
    def modified(self) -> float:
        """When it was last written to."""
        return _modified(self._before)

    def read(self, length: int) -> bytes:
        """The next bytes; none at its end."""
        try:
            return os.read(self._descriptor, length)
        except OSError as error:
            raise Unavailable(f"cannot read {self._name}", str(error.strerror)) from error

    def check_unchanged(self) -> None:
        """Raise an error if it is not what it was when it was opened."""
        if _state(os.fstat(self._descriptor)) != _state(self._before):
            raise Unavailable(
                f"{self._name} has changed while it was read",
                "something still writes to it",
                "fetch it when that has ended",
            )

    def close(self) -> None:
        """Leave it."""
        os.close(self._descriptor)


class Offer:
    """A folder whose files can be fetched."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise BadFile(f"cannot offer files of {folder}", str(error.strerror)) from error
        if why := self._trouble():
            advice = f"give it a folder of its own: mkdir -m 700 {folder}/weft"
            raise BadFile(f"cannot offer files of {folder}", why, advice)

    def close(self) -> None:
        """Leave it."""
        os.close(self._descriptor)

    def entries(self) -> tuple[list[FileEntry], int]:
        """The files that there are, the newest first, and how many others are not offered."""
        self._check()
        found: list[FileEntry] = []
        others = 0
        with os.scandir(self._descriptor) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # it is no more
                    continue
                if is_file_name(entry.name) and not _refusal(status):
                    found.append(FileEntry(entry.name, status.st_size, _modified(status)))
                else:
                    others += 1
        found.sort(key=lambda one: (-one.modified, one.name))
        return found[:MOST_FILES], others + len(found[MOST_FILES:])

    def open(self, name: str) -> Opened:
        """Open a file, if it is one that is offered."""
        self._check()
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        shown = printable(name)
        if not is_file_name(name):
            raise Unavailable(f"{shown} is no name of a file", "it is one in a folder, or none")
        try:
            opened = Opened(os.open(name, flags, dir_fd=self._descriptor), shown)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise Unavailable(f"{shown} is not offered", "it is a link") from None
            raise Unavailable(f"there is no file {shown}", str(error.strerror)) from error
        if why := _refusal(opened._before):
            opened.close()
            raise Unavailable(f"{shown} is not offered", why)
        return opened

    def _check(self) -> None:
        if why := self._trouble():
            raise Unavailable("the folder is not offered any more", why)

    def _trouble(self) -> str:
        """Why nothing of the folder can be offered; empty if it can."""
        status = os.fstat(self._descriptor)
        if status.st_uid not in (0, os.geteuid()):
            return "it belongs to another user"
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return "others may change what is in it"
        return ""


def _refusal(status: os.stat_result) -> str:
    """Why a file is not offered; empty if it is."""
    if not stat.S_ISREG(status.st_mode):
        return "it is no regular file"
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    if status.st_size > LARGEST_FILE:
        return f"it has {status.st_size:,} bytes, more than {LARGEST_FILE:,}"
    return ""


def _modified(status: os.stat_result) -> float:
    return min(max(status.st_mtime, 0.0), LATEST)


def _state(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns
