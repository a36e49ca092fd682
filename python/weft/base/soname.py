"""The name that the linker gave to a shared library, by which programs ask for it."""

from __future__ import annotations

import os
import stat
import struct
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

__all__ = ["soname"]

_HEADER = struct.Struct("<4sBB26xQ14xHH")
"""The magic number, class and byte order; where program headers are, how long and how many."""
_SEGMENT = struct.Struct("<I4xQQ8xQ")
"""Its type, where it is in the file and in memory, and its size."""
_ENTRY = struct.Struct("<QQ")
_LOAD, _DYNAMIC = 1, 2
_STRINGS, _SONAME = 5, 14
_LONGEST = 1 << 16
"""How many bytes of a table, or of names, are read at most."""


def soname(path: str | os.PathLike[str]) -> str:
    """Return the soname of an ELF file; empty if it has none, or cannot be read."""
    with suppress(OSError):
        found = Path(path).stat()
        if stat.S_ISREG(found.st_mode):
            return _soname(Path(path), found.st_dev, found.st_ino, found.st_mtime_ns)
    return ""


@lru_cache(maxsize=1024)
def _soname(path: Path, _device: int, _inode: int, _changed: int) -> str:
    # Every number in the file is a claim.
    with suppress(OSError, OverflowError, ValueError, struct.error), path.open("rb") as file:
        return Path(_read(file)).name
    return ""


def _read(file: BinaryIO) -> str:
    magic, bits, order, start, size, count = _HEADER.unpack(file.read(_HEADER.size))
    if (magic, bits, order) != (b"\x7fELF", 2, 1) or size < _SEGMENT.size:
        return ""
    table = _at(file, start, size * count)
    segments = [_SEGMENT.unpack_from(table, size * number) for number in range(count)]
    dynamic = next((one for one in segments if one[0] == _DYNAMIC), None)
    if dynamic is None:
        return ""
    entries = _at(file, dynamic[1], dynamic[3])
    whole = entries[: len(entries) // _ENTRY.size * _ENTRY.size]
    values = dict(reversed(list(_ENTRY.iter_unpack(whole))))
    if _STRINGS not in values or _SONAME not in values:
        return ""
    at = values[_STRINGS] + values[_SONAME]
    for kind, offset, address, length in segments:
        if kind == _LOAD and address <= at < address + length:
            return _at(file, offset + at - address, _LONGEST).partition(b"\0")[0].decode()
    return ""


def _at(file: BinaryIO, offset: int, length: int) -> bytes:
    file.seek(offset)
    return file.read(min(length, _LONGEST))
