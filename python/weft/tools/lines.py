"""From blocks of machine code to lines of source: how often each line was executed.

The rule is the one that gcov applies to the blocks of its compiler (`accumulate_line_info` in GCC's
`gcov.cc`), here applied to blocks of machine code.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from weft import _native
from weft.model.flow import Block, Edge, Flow

if TYPE_CHECKING:
    from weft._native import _LineColumns

__all__ = ["LineRows", "ModuleEdges", "Place", "edges_of", "line_counts", "line_rows"]

_LONGEST_EPILOGUE = 32
"""In bytes; what leaves a function without doing more is short."""
_EPILOGUE = (
    "add rsp,",
    "leave",
    "mov rax, [rbp-",
    "mov rbx, [rbp-",
    "movd xmm0, eax",
    "movq xmm0, rax",
    "pop ",
    "ret",
    "vzeroupper",
)
"""What leaves a function. A no-op is not among it: a compiler that does not optimise has one where
a statement ends, and the end of a function that returns nothing is one."""


class ModuleEdges:
    """The edges of a flow that concern one module."""

    def __init__(self, module: int) -> None:
        self.inward: list[Edge] = []
        self.inflow: Counter[int] = Counter()
        """How often known edges lead to an instruction."""
        self.fallen: Counter[int] = Counter()
        """How often they do so from right before it."""
        self.taken: Counter[int] = Counter()
        self.passed: Counter[int] = Counter()
        self._module = module

    def is_within(self, edge: Edge) -> bool:
        """Whether it does not leave the function: no call, and from the same module."""
        return edge.module == self._module and edge.kind != "call"


def edges_of(flow: Flow, modules: Collection[int]) -> dict[int, ModuleEdges]:
    """The edges of some modules."""
    found = {module: ModuleEdges(module) for module in modules}
    for edge in flow.edges if found else ():
        target, source = found.get(edge.to_module), found.get(edge.module)
        if target is not None:
            target.inward.append(edge)
            target.inflow[edge.target] += edge.count
            if edge.kind == "fall":
                target.fallen[edge.target] += edge.count
        if source is not None and edge.kind in ("taken", "fall"):
            counts = source.taken if edge.kind == "taken" else source.passed
            counts[edge.source] += edge.count
    return found


Place: TypeAlias = tuple[int, int]
"""A source file, by its number, and a line."""
_LocalPlace: TypeAlias = tuple[int, Place]
"""A line in one function, for one of a template is in many."""


@dataclass
class LineRows:
    """The rows of a line table that say something: code that only leaves a function is left out."""

    files: list[str]
    starts: list[int]
    ends: list[int]
    places: list[Place]
    statements: list[bool]

    def covering(self, offset: int) -> Place | None:
        """The line of an instruction."""
        at = bisect_right(self.starts, offset) - 1
        # Rows of one address: the last one has the instruction, but for rows without any.
        while at >= 0 and self.ends[at] == self.starts[at]:
            at -= 1
        return self.places[at] if at >= 0 and offset < self.ends[at] else None


def line_rows(
    symbols: _native.ModuleSymbols,
    table: _LineColumns,
    extents: Sequence[tuple[int, int]],
    declared: Mapping[int, tuple[str, int] | None],
    returns: Collection[int],
) -> LineRows:
    """Put the lines of a module's table in order.

    ``extents`` are the offsets and sizes of its functions, ``declared`` says where each of them is
    written, and ``returns`` are the instructions that leave them.
    """
    names, *columns = table
    starts = memoryview(columns[0]).cast("Q")
    sizes, files, lines = (memoryview(column).cast("I") for column in columns[1:4])
    statements = columns[5]
    # Several spellings of a path are one file.
    paths = [os.path.normpath(name) for name in names]
    numbers = {path: number for number, path in enumerate(paths)}
    numbers_of = [numbers[path] for path in paths]
    leaving, closing = _leaving(symbols, starts, sizes, returns)
    functions = {offset for offset, _ in extents}
    stated = {
        (numbers_of[file], line)
        for file, line, is_statement in zip(files, lines, statements, strict=True)
        if is_statement
    }
    firsts: dict[int, Place] = {}
    """What is said first of where a function begins: that it does."""
    found = LineRows(paths, [], [], [], [])
    for row, (start, size, line) in enumerate(zip(starts, sizes, lines, strict=True)):
        if not line or start in leaving:
            continue
        place = numbers_of[files[row]], line
        # A function begins where it is declared, not where its brace is.
        if start in functions and firsts.setdefault(start, place) == place:
            source = declared.get(start)
            if source and source[0] == paths[place[0]] and 0 < source[1] <= line:
                place = place[0], source[1]
        found.starts.append(start)
        found.ends.append(start + size)
        found.places.append(place)
        # A line of which the compiler has kept no statement begins with any of its instructions.
        found.statements.append(bool(statements[row]) or start in closing or place not in stated)
    return found


def _leaving(
    symbols: _native.ModuleSymbols,
    starts: Sequence[int],
    sizes: Sequence[int],
    returns: Collection[int],
) -> tuple[set[int], set[int]]:
    """The rows that only leave a function, and those that do so after a no-op.

    To compilers the former are no statements. The latter are the closing brace of a function that
    returns nothing: where a branch before it ends with a no-op of that line, too, the line table
    calls only the first of them a statement, and the other ways come to the second.
    """
    pieces = []
    for offset in returns:
        at = bisect_right(starts, offset) - 1
        if at >= 0 and sizes[at] <= _LONGEST_EPILOGUE and offset < starts[at] + sizes[at]:
            pieces.append((starts[at], sizes[at]))
    texts = symbols.disassemble(pieces)
    leaving: set[int] = set()
    closing: set[int] = set()
    for (start, _), instructions in zip(pieces, texts, strict=True):
        is_closing = bool(instructions) and instructions[0][1] == "nop"
        if all(text.startswith(_EPILOGUE) for _, text in instructions[is_closing:]):
            (closing if is_closing else leaving).add(start)
    return leaving, closing


def line_counts(
    blocks: Sequence[Block],
    edges: ModuleEdges,
    rows: LineRows,
    onward: Collection[int],
    functions: Sequence[int],
    jumps: Mapping[int, Collection[int]],
) -> dict[Place, int]:
    """How often each line was executed, as gcov would say.

    ``blocks`` are those of all functions with lines; of others they may be missing.
    ``onward`` is where instructions end that go on with the next one, now or when they return;
    ``jumps`` is where jumps through a table end, and where each of them may lead.

    A line that ends no block has been executed as often as the blocks that it is in. One that does
    is executed when control comes to the blocks that it ends from others, or goes round in a loop
    among them: the sum of both. Blocks in which no statement begins only carry on with a line, or
    have been moved away from it by the compiler.
    """
    sums: Counter[_LocalPlace] = Counter()
    ends: dict[int, Block] = {}
    last: dict[int, _LocalPlace] = {}
    stated: set[int] = set()
    """Blocks in which a statement begins."""
    for block in blocks:
        places, is_stated = _places(block, rows)
        function = bisect_right(functions, block.offset)
        if places:
            last[block.offset] = function, places[-1]
        ends[block.offset + block.size] = block
        if is_stated:
            stated.add(block.offset)
            for place in places:
                sums[function, place] += block.count
    block_ends = sorted(ends)

    entries: Counter[_LocalPlace] = Counter()
    loops: dict[_LocalPlace, Counter[tuple[int, int]]] = defaultdict(Counter)

    def come(target: int, count: int, source: Block | None) -> None:
        local = last.get(target)
        if local is None or count <= 0:
            return
        if source is not None and last.get(source.offset) == local:
            loops[local][source.offset, target] += count
        elif target in stated:
            entries[local] += count

    for edge in edges.inward:
        source = None
        if edges.is_within(edge):
            at = bisect_right(block_ends, edge.source)
            source = ends[block_ends[at]] if at < len(block_ends) else None
            if source is not None and edge.source < source.offset:
                source = None
        come(edge.target, edge.count, source)
    unknown: Counter[int] = Counter()
    """How often control comes to a block by a way that is not kept."""
    for block in blocks:
        # Where no edge is from, control comes from before, or by a way that is not kept.
        others = block.count - edges.inflow[block.offset]
        before = ends.get(block.offset) if block.offset in onward else None
        known = min(others, before.count - edges.fallen[block.offset]) if before else 0
        come(block.offset, known, before)
        unknown[block.offset] = others - known
    for jump, target, count in _jumped(ends, unknown, jumps):
        come(target, count, jump)
        unknown[target] -= count
    for target, count in unknown.items():
        come(target, count, None)

    ended = {last[offset] for offset in stated if offset in last}
    counts: Counter[Place] = Counter()
    for local, count in sums.items():
        if local in ended:
            count = entries[local] + _rounds(loops[local])
        # What was executed has a count, whatever became of the ways to it.
        counts[local[1]] += max(count, 1)
    return counts


def _jumped(
    ends: Mapping[int, Block],
    unknown: Mapping[int, int],
    jumps: Mapping[int, Collection[int]],
) -> list[tuple[Block, int, int]]:
    """How often jumps through a table have led where: their blocks, targets and counts.

    The ways are not kept, but both ends are counted: what comes to a target by no other way comes
    from the jumps that may lead there. A target of one jump only has its count from that one; what
    is left of jumps then goes to targets that they share.
    """
    left = {end: ends[end].count for end in jumps.keys() & ends.keys()}
    sources: dict[int, list[int]] = defaultdict(list)
    """The jumps that may lead to a target, by where they end."""
    for end in sorted(left):
        for target in set(jumps[end]):
            if unknown.get(target, 0) > 0:
                sources[target].append(end)
    found = []
    for target, from_ends in sorted(sources.items(), key=lambda item: (len(item[1]), item[0])):
        rest = unknown[target]
        for end in from_ends:
            count = min(rest, left[end])
            if count > 0:
                found.append((ends[end], target, count))
                left[end] -= count
                rest -= count
    return found


def _places(block: Block, rows: LineRows) -> tuple[list[Place], bool]:
    """The lines of a block in their order, and whether a statement begins in it.

    Without one it has the line that its last instruction belongs to.
    """
    end = block.offset + block.size
    places: list[Place] = []
    at = bisect_left(rows.starts, block.offset)
    last: Place | None = None
    while at < len(rows.starts) and rows.starts[at] < end:
        place = rows.places[at]
        if rows.statements[at] and (not places or places[-1] != place):
            places.append(place)
        if rows.ends[at] > rows.starts[at]:
            last = place
        at += 1
    if places:
        return places, True
    last = last or rows.covering(block.offset)
    return ([last] if last else []), False


def _rounds(ways: Mapping[tuple[int, int], int]) -> int:
    """How often control goes round among blocks, by how often it goes which way.

    Each round that is found is taken out, with all that went the same way.
    """
    left = dict(ways)
    total = 0
    while cycle := _cycle(left):
        rounds = min(left[way] for way in cycle)
        total += rounds
        for way in cycle:
            left[way] -= rounds
            if not left[way]:
                del left[way]
    return total


def _cycle(ways: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    """Some ways that lead round, or nothing."""
    onward: dict[int, list[int]] = defaultdict(list)
    for source, target in ways:
        onward[source].append(target)
    done: set[int] = set()
    for first in list(onward):
        path, rest = [first], [iter(onward[first])]
        on_path = {first}
        while path:
            target = next(rest[-1], -1)
            if target < 0:
                done.add(path[-1])
                on_path.discard(path.pop())
                rest.pop()
            elif target in on_path:
                round_ = [*path[path.index(target) :], target]
                return list(pairwise(round_))
            elif target not in done:
                path.append(target)
                on_path.add(target)
                rest.append(iter(onward.get(target, ())))
    return []
