"""The code in a program's file, as the loader maps it."""

from __future__ import annotations

import struct
from bisect import bisect_right
from functools import cached_property
from pathlib import Path

from weft.errors import BadFile
from weft.model.program import Module

__all__ = ["Code"]

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_LOADED = 1
_EXECUTABLE = 1
_CLASS_64 = 2


class Code:
    """The code of one module, by its offsets: addresses as the file states them."""

    def __init__(self, module: Module) -> None:
        """Prepare to read it; nothing is read yet."""
        self._module = module

    def read(self, offset: int, size: int) -> bytes:
        """Return the bytes there, or none if they are not all code of the file.

        Raises :class:`weft.errors.BadFile` if there is no such file.
        """
        place = bisect_right(self._segments, (offset, 1 << 64, b"")) - 1
        if place < 0:
            return b""
        start, _, content = self._segments[place]
        found = content[offset - start : offset - start + size]
        return found if len(found) == size else b""

    @cached_property
    def _segments(self) -> list[tuple[int, int, bytes]]:
        """The segments with code: where they start and end, and what is in them."""
        module = self._module
        if module.image is not None and module.image_bias is not None:
            raise BadFile(f"{module.path} is no file", "only its memory is known")
        data = module.image if module.image is not None else self._content()
        try:
            magic, width, order, *_, headers_at, _, _, _, size, count, _, _, _ = (
                _HEADER.unpack_from(data)
            )
            if magic != b"\x7fELF" or width != _CLASS_64 or order != 1 or size < _SEGMENT.size:
                raise BadFile(f"{module.path} is no 64-bit ELF file")
            found = []
            for number in range(count):
                kind, flags, at, address, _, length, _, _ = _SEGMENT.unpack_from(
                    data, headers_at + number * size
                )
                if kind == _LOADED and flags & _EXECUTABLE:
                    content = data[at : at + length]
                    found.append((address, address + len(content), content))
        except struct.error as error:
            raise BadFile(f"{module.path} ends in the midst of its headers", str(error)) from None
        return sorted(found)

    def _content(self) -> bytes:
        path = self._module.open_path or self._module.path
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise BadFile(f"{path} cannot be read", error.strerror or "") from None
