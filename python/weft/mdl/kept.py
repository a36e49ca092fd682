"""Files of the user's cache, in which is kept what takes long to make."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from weft.base.files import cache_folder

__all__ = ["place", "read", "write"]


def place(kind: str, name: str) -> Path:
    """Return where something of a kind is kept."""
    return cache_folder(kind) / name


def read(path: Path) -> bytes:
    """Read what was kept; raise an :class:`OSError` if there is nothing, or not one's own."""
    with path.open("rb") as file:
        owner = os.fstat(file.fileno())
        # With sudo, the folder may be another user's, whose files must not be executed as root.
        if owner.st_uid != os.geteuid() or owner.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(path)
        return file.read()


def write(path: Path, data: bytes) -> None:
    """Keep something; raise an :class:`OSError` if that is not possible."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another process that reads it meanwhile must find all of it, or nothing.
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_bytes(data)
    draft.replace(path)
