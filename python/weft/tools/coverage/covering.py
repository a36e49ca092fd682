"""From the blocks that were executed to functions, lines and branches."""

from __future__ import annotations

import os
import shutil
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from weft import _native
from weft.errors import BadFile
from weft.model.flow import CodeModule, Flow
from weft.tools.coverage.choice import chooser, is_startup, open_symbols
from weft.tools.coverage.parts import Branch, FileCoverage, FunctionCoverage, ModuleCoverage
from weft.tools.coverage.result import Coverage
from weft.tools.lines import ModuleEdges, edges_of, line_counts, line_rows

__all__ = ["cover"]

_CONDITIONAL, _INDIRECT_JUMP, _RETURN = 1, 4, 6
"""Transfers of :meth:`weft._native.ModuleSymbols.instructions`."""
_GOING_ON = {0, 3, 5}
"""What goes on with the next instruction: all that is no transfer, and calls."""


def cover(
    flow: Flow,
    *,
    patterns: Sequence[str] = (),
    program: str | None = None,
    directory: str | os.PathLike[str] | None = None,
    root: str | None = None,
    open_paths: Mapping[str, str] | None = None,
) -> Coverage:
    """Find the functions, lines and branches of what was executed.

    Modules whose path or name matches one of ``patterns`` are looked at in detail. Without patterns
    these are all below ``directory``, or else the working directory; if there are none, it is the
    program itself: ``program``, or else the flow's command. ``root`` leads to the files of a
    process in another mount namespace: ``/proc/PID/root``. ``open_paths`` says where files are that
    are no longer at their paths.
    """
    if program is None and flow.command:
        found = shutil.which(flow.command[0])
        program = os.path.realpath(found) if found else None
    paths = [module.path for module in flow.modules]
    is_wanted = chooser(paths, patterns, program, directory)
    edges = edges_of(flow)
    others = open_paths or {}

    def symbols_of(module: CodeModule) -> _native.ModuleSymbols | None:
        for open_path in (None, others.get(module.path)):
            with suppress(BadFile):
                return open_symbols(module, root, open_path)
        # Code that no file has, or whose file is gone.
        return None

    modules = [
        _cover_module(
            module, symbols_of(module), edges[index], is_wanted(module.path), flow.is_counted
        )
        for index, module in enumerate(flow.modules)
    ]
    return Coverage(flow, tuple(modules))


def _cover_module(
    module: CodeModule,
    symbols: _native.ModuleSymbols | None,
    edges: ModuleEdges,
    is_detailed: bool,
    is_counted: bool,
) -> ModuleCoverage:
    if symbols is None:
        return ModuleCoverage(module.path, is_detailed, 0, (), ())
    rows = [row for row in symbols.rows(symbols.select()) if _is_own(row[0], row[4])]
    offsets = [row[2] for row in rows]
    counts = _function_counts(module, edges, [(row[2], row[3]) for row in rows])
    sources: Sequence[tuple[str, int] | None] = [None] * len(rows)
    kept: Sequence[int] = range(len(rows))
    files: tuple[FileCoverage, ...] = ()
    if is_detailed:
        places = dict(zip(offsets, _sources(symbols), strict=False))
        sources = [places.get(offset) for offset in offsets]
        extents = _apart([(row[2], row[3]) for row in rows if row[3]])
        destructors = {row[2] for row in rows if "::~" in (row[1] or "")}
        files = _files(symbols, module, edges, extents, places, destructors, is_counted)
    else:
        kept = [place for place, count in enumerate(counts) if count]
    functions = [
        FunctionCoverage(
            rows[place][1] or rows[place][0],
            rows[place][2],
            rows[place][3],
            counts[place],
            *(sources[place] or (None, None)),
        )
        for place in kept
    ]
    return ModuleCoverage(module.path, is_detailed, len(rows), tuple(functions), files)


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


def _sources(symbols: _native.ModuleSymbols) -> list[tuple[str, int] | None]:
    """The source of each function of the program's own."""
    indexes = symbols.select()
    return [
        (os.path.normpath(source[0]), source[1]) if source else None
        for source, row in zip(symbols.sources(indexes), symbols.rows(indexes), strict=True)
        if _is_own(row[0], row[4])
    ]


def _is_own(name: str, kind: str) -> bool:
    return kind != "plt" and not is_startup(name)


def _function_counts(
    module: CodeModule, edges: ModuleEdges, extents: Sequence[tuple[int, int]]
) -> list[int]:
    """How often each function was entered; at least 1 for one of which something was executed."""
    blocks = module.blocks
    starts = [block.offset for block in blocks]
    back: Counter[int] = Counter()
    sizes = dict(extents)
    for edge in edges.inward:
        size = sizes.get(edge.target)
        if size and edges.is_within(edge) and edge.target <= edge.source < edge.target + size:
            back[edge.target] += edge.count
    counts = []
    for offset, size in extents:
        at = bisect_right(starts, offset) - 1
        count = 0
        if at >= 0 and offset < blocks[at].offset + blocks[at].size:
            count = max(blocks[at].count - back[offset], 1)
        elif size:
            after = at + 1
            count = int(after < len(blocks) and starts[after] < offset + size)
        counts.append(count)
    return counts


def _files(
    symbols: _native.ModuleSymbols,
    module: CodeModule,
    edges: ModuleEdges,
    extents: Sequence[tuple[int, int]],
    declared: Mapping[int, tuple[str, int] | None],
    destructors: Collection[int],
    is_counted: bool,
) -> tuple[FileCoverage, ...]:
    columns = symbols.instructions(extents)
    offsets, sizes, transfers = memoryview(columns[0]).cast("Q"), columns[1], columns[2]
    starts = [offset for offset, _ in extents]
    returns = [
        at
        for at, transfer in zip(offsets, transfers, strict=True)
        # The end of a destructor is a statement: its object ends there.
        if transfer == _RETURN and starts[bisect_right(starts, at) - 1] not in destructors
    ]
    rows = line_rows(symbols, extents, declared, returns)
    if not rows.starts:
        return ()
    onward = {
        at + size
        for at, size, transfer in zip(offsets, sizes, transfers, strict=True)
        if transfer in _GOING_ON
    }
    jumps = {
        at: at + size
        for at, size, transfer in zip(offsets, sizes, transfers, strict=True)
        if transfer == _INDIRECT_JUMP
    }
    leads = _leads(symbols, module, extents, jumps)
    counts = line_counts(module.blocks, edges, rows, onward, starts, leads)
    lines: dict[int, dict[int, int]] = defaultdict(dict)
    for place in sorted(set(rows.places)):
        count = counts.get(place, 0)
        lines[place[0]][place[1]] = count if is_counted else min(count, 1)
    branches: dict[int, list[Branch]] = defaultdict(list)
    for at, transfer in zip(offsets, transfers, strict=True):
        if transfer == _CONDITIONAL and (where := rows.covering(at)) is not None:
            branch = Branch(at, where[1], edges.taken[at], edges.passed[at])
            branches[where[0]].append(branch)
    return tuple(
        FileCoverage(
            rows.files[number],
            lines[number],
            tuple(sorted(branches[number], key=lambda branch: (branch.line, branch.offset))),
        )
        for number in sorted(lines, key=lambda number: rows.files[number])
    )


def _leads(
    symbols: _native.ModuleSymbols,
    module: CodeModule,
    extents: Sequence[tuple[int, int]],
    jumps: Mapping[int, int],
) -> dict[int, list[int]]:
    """Where jumps through a table that were executed may lead, by where they end.

    ``jumps`` has the ends of all indirect jumps. A computed ``goto`` is not among what is found: to
    gcov its targets are reached from no line, as those of whatever is not known.
    """
    executed = {block.offset + block.size for block in module.blocks}
    starts = [offset for offset, _ in extents]
    functions = {bisect_right(starts, at) - 1 for at, end in jumps.items() if end in executed}
    tables = symbols.jump_tables([extents[function] for function in sorted(functions)])
    return {jumps[jump]: targets for jump, targets in tables if jump in jumps}
