"""Counts operations where others can read it."""

from __future__ import annotations

import mmap
import struct
import sys
from pathlib import Path


class Operations:
    """The number in the file that the first argument names; one thread counts at a time."""

    def __init__(self) -> None:
        with Path(sys.argv[1]).open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 8)
        self._number = 0

    def count(self) -> None:
        self._number += 1
        struct.pack_into("<Q", self._memory, 0, self._number)
