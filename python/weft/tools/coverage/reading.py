"""What a module has: its functions, lines and branches, and what blocks say of them.

All that does not depend on what was executed is read once, for any number of runs or tests.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from weft import _native
from weft.model.flow import Block, CodeModule, Flow
from weft.tools.coverage.choice import is_startup
from weft.tools.coverage.parts import Branch, FileCoverage, FunctionCoverage, ModuleCoverage
from weft.tools.lines import LineRows, ModuleEdges, line_counts, line_rows

if TYPE_CHECKING:
    from weft._native import _LineColumns

__all__ = ["ModuleReader"]

_CONDITIONAL, _INDIRECT_JUMP, _RETURN = 1, 4, 6
"""Transfers of :meth:`weft._native.ModuleSymbols.instructions`."""
_GOING_ON = {0, 3, 5}
"""What goes on with the next instruction: all that is no transfer, and calls."""


class ModuleReader:
    """The functions and lines of a module, to say what of them was executed."""

    def __init__(self, symbols: _native.ModuleSymbols) -> None:
        self._symbols = symbols
        self._functions = [row for row in symbols.rows(symbols.select()) if _is_own(row[0], row[4])]

    def cover(self, flow: Flow, place: int, edges: ModuleEdges | None) -> ModuleCoverage:
        """Return what was executed of a module of a flow: with its edges, in detail."""
        rows, module = self._functions, flow.modules[place]
        counts = flow.rows.function_counts(place, [(row[2], row[3]) for row in rows])
        sources: Sequence[tuple[str, int] | None] = [None] * len(rows)
        kept: Sequence[int] = range(len(rows))
        files: tuple[FileCoverage, ...] = ()
        if edges is not None:
            sources = [self._declared.get(row[2]) for row in rows]
            files = self._files(module, edges, flow.is_counted)
        else:
            kept = [number for number, count in enumerate(counts) if count]
        functions = [
            FunctionCoverage(
                rows[number][1] or rows[number][0],
                rows[number][2],
                rows[number][3],
                counts[number],
                *(sources[number] or (None, None)),
            )
            for number in kept
        ]
        is_detailed = edges is not None
        return ModuleCoverage(module.path, is_detailed, len(rows), tuple(functions), files)

    @cached_property
    def _declared(self) -> dict[int, tuple[str, int] | None]:
        """Where each function is declared, by its offset."""
        indexes = self._symbols.select()
        sources = [
            (os.path.normpath(source[0]), source[1]) if source else None
            for source, row in zip(
                self._symbols.sources(indexes), self._symbols.rows(indexes), strict=True
            )
            if _is_own(row[0], row[4])
        ]
        return dict(zip((row[2] for row in self._functions), sources, strict=True))

    @cached_property
    def _extents(self) -> list[tuple[int, int]]:
        return _apart([(row[2], row[3]) for row in self._functions if row[3]])

    @cached_property
    def _starts(self) -> list[int]:
        return [offset for offset, _ in self._extents]

    @cached_property
    def _line_table(self) -> _LineColumns:
        return self._symbols.line_table()

    @cached_property
    def _written_extents(self) -> list[tuple[int, int]]:
        """The functions with lines, and what is right before one: control may come from there.

        Of some programs only a library that is linked into them has debug information.
        """
        lines = memoryview(self._line_table[1]).cast("Q")
        is_written = [
            bisect_left(lines, offset) < bisect_left(lines, offset + size)
            for offset, size in self._extents
        ]
        leads_on = [
            following and offset + size == next_offset
            for (offset, size), (next_offset, _), following in zip(
                self._extents, self._extents[1:], is_written[1:], strict=False
            )
        ]
        wanted = zip(self._extents, is_written, [*leads_on, False], strict=False)
        return [extent for extent, *reasons in wanted if any(reasons)]

    def _written_blocks(self, blocks: Sequence[Block]) -> list[Block]:
        """The blocks of these functions."""
        ends = {offset: offset + size for offset, size in self._written_extents}
        starts = [0, *ends]
        return [
            block
            for block in blocks
            if block.offset < ends.get(starts[bisect_right(starts, block.offset) - 1], 0)
        ]

    @cached_property
    def _instructions(self) -> list[tuple[int, int, int]]:
        """The offset, the size and the transfer of each instruction of functions with lines."""
        columns = self._symbols.instructions(self._written_extents)
        offsets = memoryview(columns[0]).cast("Q")
        return list(zip(offsets, columns[1], columns[2], strict=True))

    @cached_property
    def _rows(self) -> LineRows:
        table = self._line_table
        if not table[1]:
            # Without debug information no instruction need be looked at.
            return LineRows([], [], [], [], [])
        destructors = {row[2] for row in self._functions if "::~" in (row[1] or "")}
        starts = self._starts
        returns = [
            at
            for at, _, transfer in self._instructions
            # The end of a destructor is a statement: its object ends there.
            if transfer == _RETURN and starts[bisect_right(starts, at) - 1] not in destructors
        ]
        return line_rows(self._symbols, table, self._extents, self._declared, returns)

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        """All lines, by the number of their file."""
        return sorted(set(self._rows.places))

    @cached_property
    def _branches(self) -> list[tuple[int, tuple[int, int]]]:
        """The conditional branches, and their lines."""
        found = []
        for at, _, transfer in self._instructions:
            if transfer == _CONDITIONAL and (where := self._rows.covering(at)) is not None:
                found.append((at, where))
        return found

    @cached_property
    def _onward(self) -> set[int]:
        """Where control comes to from right before."""
        return {at + size for at, size, transfer in self._instructions if transfer in _GOING_ON}

    @cached_property
    def _jumps(self) -> dict[int, int]:
        """The indirect jumps, and where each ends."""
        return {at: at + size for at, size, kind in self._instructions if kind == _INDIRECT_JUMP}

    def _files(
        self, module: CodeModule, edges: ModuleEdges, is_counted: bool
    ) -> tuple[FileCoverage, ...]:
        rows = self._rows
        if not rows.starts:
            return ()
        leads = self._leads(module)
        blocks = self._written_blocks(module.blocks)
        counts = line_counts(blocks, edges, rows, self._onward, self._starts, leads)
        lines: dict[int, dict[int, int]] = defaultdict(dict)
        for place in self._places:
            count = counts.get(place, 0)
            lines[place[0]][place[1]] = count if is_counted else min(count, 1)
        branches: dict[int, list[Branch]] = defaultdict(list)
        for at, (file, line) in self._branches:
            branches[file].append(Branch(at, line, edges.taken[at], edges.passed[at]))
        return tuple(
            FileCoverage(
                rows.files[number],
                lines[number],
                tuple(sorted(branches[number], key=lambda branch: (branch.line, branch.offset))),
            )
            for number in sorted(lines, key=lambda number: rows.files[number])
        )

    def _leads(self, module: CodeModule) -> Mapping[int, list[int]]:
        """Where jumps through a table that were executed may lead, by where they end.

        A computed ``goto`` is not among what is found: to gcov its targets are reached from no
        line, as those of whatever is not known.
        """
        executed = {block.offset + block.size for block in module.blocks}
        jumps, starts = self._jumps, self._starts
        functions = {bisect_right(starts, at) - 1 for at, end in jumps.items() if end in executed}
        extents = [self._extents[function] for function in sorted(functions)]
        tables = self._symbols.jump_tables(extents)
        return {jumps[jump]: targets for jump, targets in tables if jump in jumps}


def _apart(extents: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same code, none of it twice: some functions begin within others."""
    found: list[tuple[int, int]] = []
    end = 0
    for offset, size in extents:
        start = max(offset, end)
        end = max(end, offset + size)
        if start < end:
            found.append((start, end - start))
    return found


def _is_own(name: str, kind: str) -> bool:
    return kind != "plt" and not is_startup(name)
