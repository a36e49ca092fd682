"""What is read of a module for its profile: code, source lines, and all its functions."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from weft._native import disassemble
from weft.model.flow import Block
from weft.model.program import Module
from weft.tools.profile.result import SourceLine

if TYPE_CHECKING:
    from weft._native import _FunctionRow

__all__ = ["Lines", "Table"]


class Lines:
    """The code and the source lines of a module, as far as there are any."""

    def __init__(self, module: Module | None) -> None:
        self._symbols = module.symbols if module is not None else None

    def of(self, block: Block) -> tuple[bytes, tuple[SourceLine, ...]]:
        """The bytes of a block, if they are what was executed, and where it is written."""
        if self._symbols is None:
            return b"", ()
        (code,) = self._symbols.code([(block.offset, block.size)])
        listing = disassemble(code, block.offset)
        if len(listing) != block.instructions:
            return b"", ()
        lines: list[SourceLine] = []
        last: tuple[str, int] = ("", 0)
        for offset, _, _ in listing:
            written = self._written(offset)
            if written != last:
                lines.append(SourceLine(offset, *written))
                last = written
        return code, tuple(lines)

    def _written(self, offset: int) -> tuple[str, int]:
        """The file and the line of an instruction; no file if they are not known."""
        starts, ends, places = self._rows
        row = bisect_right(starts, offset) - 1
        return places[row] if row >= 0 and offset < ends[row] else ("", 0)

    @cached_property
    def _rows(self) -> tuple[list[int], list[int], list[tuple[str, int]]]:
        """Where pieces of code begin and end, and where each is written."""
        if self._symbols is None:
            return [], [], []
        names, *columns = self._symbols.line_table()
        offsets = memoryview(columns[0]).cast("Q")
        sizes, files, lines = (memoryview(column).cast("I") for column in columns[1:4])
        rows = [row for row, size in enumerate(sizes) if size and lines[row]]
        starts = [offsets[row] for row in rows]
        ends = [offsets[row] + sizes[row] for row in rows]
        return starts, ends, [(names[files[row]], lines[row]) for row in rows]


class Table:
    """What is known of all functions of a module; read as a whole when it is wanted."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.symbols = module.symbols

    @cached_property
    def rows(self) -> list[_FunctionRow]:
        """All functions, in the order of their offsets."""
        return self.symbols.rows(range(len(self.symbols)))

    @cached_property
    def local_numbers(self) -> dict[int, int]:
        """Which each is, from 1, of the functions of its name that only their own file sees."""
        counts: Counter[str] = Counter()
        numbers = {}
        for index, row in enumerate(self.rows):
            if row[5] == "local":
                counts[row[0]] += 1
                numbers[index] = counts[row[0]]
        return numbers

    @cached_property
    def chosen_at_start(self) -> set[str]:
        """The names that stand for a function which is chosen at start-up."""
        return {name for row in self.rows if row[4] == "ifunc" for name in (row[0], *row[8])}
