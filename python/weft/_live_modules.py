"""The modules of a running process, from ``/proc``.

Nothing is attached to: this needs the permission to read ``/proc/PID/maps``, and for modules that
have no file any more ``/proc/PID/mem``.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from weft.errors import NoSuchProcess, PermissionDenied
from weft.model import Module

__all__ = ["live_modules"]

_PAGE = 4096
_PT_LOAD = 1

#: A segment larger than this is no code that anybody has mapped.
_LARGEST_IMAGE = 1 << 30


@dataclass(frozen=True)
class _Mapping:
    start: int
    end: int
    is_code: bool
    offset: int
    inode: int
    path: str


def live_modules(pid: int, *, use_cache: bool = True) -> list[Module]:
    """The modules that a process has mapped code from, in the order of their addresses."""
    by_path: dict[str, list[_Mapping]] = {}
    for mapping in _mappings(pid):
        by_path.setdefault(mapping.path, []).append(mapping)
    modules = []
    for path, mappings in by_path.items():
        if any(mapping.is_code for mapping in mappings):
            module = _module(pid, path, mappings, use_cache)
            if module is not None:
                modules.append(module)
    return modules


def _mappings(pid: int) -> list[_Mapping]:
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as lines:
            return [mapping for mapping in map(_parse, lines) if mapping is not None]
    except (FileNotFoundError, ProcessLookupError):
        raise NoSuchProcess(
            f"there is no process {pid}", advice="`ps` lists those there are"
        ) from None
    except PermissionError as error:
        raise PermissionDenied(
            f"the memory map of process {pid} cannot be read",
            why=str(error.strerror),
            advice="run weft as the user of that process, or as root",
        ) from None


def _parse(line: str) -> _Mapping | None:
    """A line of ``maps``; nothing when the mapping belongs to no module."""
    addresses, permissions, offset, _device, inode, *path = line.rstrip("\n").split(maxsplit=5)
    name = path[0].replace("\\012", "\n") if path else ""
    if not name.startswith("/") and name != "[vdso]":
        return None
    start, end = (int(address, 16) for address in addresses.split("-"))
    return _Mapping(start, end, "x" in permissions, int(offset, 16), int(inode), name)


def _module(pid: int, path: str, mappings: list[_Mapping], use_cache: bool) -> Module | None:
    root = f"/proc/{pid}/root"
    first = mappings[0]
    if path == "[vdso]":
        image = _read_memory(pid, first.start, first.end - first.start)
        if not image:
            return None
        return Module(path, root=root, bias=first.start, image=image, use_cache=use_cache)
    for candidate in (
        f"{root}{path}",
        f"/proc/{pid}/map_files/{first.start:x}-{first.end:x}",
        f"/proc/{pid}/exe",
    ):
        try:
            if os.stat(candidate).st_ino == first.inode:
                return Module(path, open_path=candidate, root=root, use_cache=use_cache)
        except OSError:
            continue
    return _image(pid, path, first.start, root, use_cache)


def _image(pid: int, path: str, start: int, root: str, use_cache: bool) -> Module | None:
    """A module whose file is gone, from its segments in memory."""
    header = _read_memory(pid, start, _PAGE)
    if header is None or len(header) < 64 or header[:4] != b"\x7fELF":
        return None
    (table,) = struct.unpack_from("<Q", header, 32)
    (count,) = struct.unpack_from("<H", header, 56)
    segments = []
    for index in range(count):
        at = table + index * 56
        if at + 56 > len(header):
            break
        kind, _flags, _offset, address, _physical, _size, size = struct.unpack_from(
            "<IIQQQQQ", header, at
        )
        if kind == _PT_LOAD:
            segments.append((address, size))
    if not segments:
        return None
    lowest = min(address for address, _ in segments) & -_PAGE
    length = max(address + size for address, size in segments) - lowest
    if not 0 < length <= _LARGEST_IMAGE:
        return None
    bias = start - lowest
    image = bytearray(length)
    for address, size in segments:
        contents = _read_memory(pid, bias + address, size) or b""
        image[address - lowest : address - lowest + len(contents)] = contents
    return Module(
        path, root=root, bias=bias, image=bytes(image), image_bias=bias, use_cache=use_cache
    )


def _read_memory(pid: int, address: int, size: int) -> bytes | None:
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            return os.pread(memory.fileno(), size, address)
    except (OSError, OverflowError):
        return None
