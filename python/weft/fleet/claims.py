"""Keeps several hosts of one machine apart: each process is measured by one of them.

A unit of systemd and a container of Kubernetes may both be there, or hosts in network namespaces of
their own. Who is to measure a process holds a lock that the kernel gives back when its holder ends,
however that happens. Of a network namespace in which a host is, processes are that host's.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from weft.errors import BadFile

__all__ = ["Claims"]


class Claims:
    """The locks that a host holds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.lstat()
        except OSError as error:
            raise BadFile(f"cannot use the folder {folder}", str(error.strerror)) from error
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            why = "it belongs to another user, or others may look into it"
            raise BadFile(f"cannot use the folder {folder}", why, f"chmod 700 {folder}")
        # Who was killed has left files behind that are no locks any more: looking removes them.
        for path in folder.iterdir():
            self.is_anothers(path.name)

    def take(self, name: str) -> bool:
        """Take a lock, if nobody else holds it."""
        if name in self._held:
            return True
        descriptor = self._locked(name)
        if descriptor is None:
            return False
        self._held[name] = descriptor
        return True

    def is_anothers(self, name: str) -> bool:
        """Whether somebody else holds a lock."""
        path = self._folder / name
        if name in self._held or not path.exists():
            return False
        descriptor = self._locked(name)
        if descriptor is None:
            return True
        self._give_back(name, descriptor)
        return False

    def release(self, name: str) -> None:
        """Give a lock back."""
        if name in self._held:
            self._give_back(name, self._held.pop(name))

    def close(self) -> None:
        """Give all back."""
        for name in [*self._held]:
            self.release(name)

    def _locked(self, name: str) -> int | None:
        path = self._folder / name
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            # Whoever gives a lock back removes its file, perhaps between opening and locking.
            with suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
            os.close(descriptor)

    def _give_back(self, name: str, descriptor: int) -> None:
        with suppress(FileNotFoundError):
            (self._folder / name).unlink()
        os.close(descriptor)
