"""What several runs have executed together."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from weft.errors import BadFile, InvalidArgument
from weft.model.flow import Block, CodeModule, Edge, Flow
from weft.tools.coverage.adding import Add, adder, merged_file
from weft.tools.coverage.choice import open_symbols
from weft.tools.coverage.contexts import merged_contexts
from weft.tools.coverage.parts import FileCoverage, FunctionCoverage, ModuleCoverage
from weft.tools.coverage.result import Coverage
from weft.tools.coverage.sameness import alike, same_modules

__all__ = ["functions_only", "merge"]

_MOST_COMMANDS = 3
"""How many different commands of a merged coverage are named."""


def functions_only(
    modules: Sequence[ModuleCoverage],
    command: Sequence[str],
    *,
    is_counted: bool,
    build_ids: Sequence[str | None] = (),
) -> Coverage:
    """Return the coverage of functions of which no blocks are known."""
    places = tuple(
        CodeModule(module.path, build_id, 0, 0, 0, ())
        for module, build_id in zip(modules, build_ids or [None] * len(modules), strict=True)
    )
    return Coverage(Flow(places, (), is_counted, tuple(command)), tuple(modules))


def merge(coverages: Sequence[Coverage]) -> Coverage:
    """Return what several runs have executed together; of modules that are the same, counts add up.

    The runs may be of different programs: a library that several use, of the same build, is one.
    If one of them is not counted, neither is the result.
    """
    if not coverages:
        raise InvalidArgument("there is nothing to merge", advice="name the files of two runs")
    is_counted = all(coverage.is_counted for coverage in coverages)
    add = adder(is_counted)
    parts = same_modules(coverages)
    coverages = alike(coverages, parts)
    modules, details = [], []
    numbers: dict[tuple[int, int], int] = {}
    falls: list[Edge] = []
    for number, places in enumerate(parts):
        numbers.update((place, number) for place in places)
        merged, splits = _merged_module(
            [coverages[run].flow.modules[place] for run, place in places], add
        )
        modules.append(merged)
        falls += [Edge(number, source, number, target, "fall", n) for source, target, n in splits]
        all_details = [coverages[run].modules[place] for run, place in places]
        details.append(_merged_details(all_details, add))
    edges = falls + [
        edge._replace(module=numbers[run, edge.module], to_module=numbers[run, edge.to_module])
        for run, coverage in enumerate(coverages)
        for edge in coverage.flow.edges
    ]
    lost = dict.fromkeys(text for coverage in coverages for text in coverage.flow.lost)
    commands = tuple(dict.fromkeys(one for coverage in coverages for one in coverage.runs))
    command = _common_command(commands)
    flow = Flow(tuple(modules), _summed(edges, add), is_counted, command, tuple(lost))
    places_of = [
        [numbers[run, place] for place in range(len(coverage.flow.modules))]
        for run, coverage in enumerate(coverages)
    ]
    contexts = merged_contexts(coverages, places_of, len(modules))
    return Coverage(flow, tuple(details), contexts, commands if len(commands) > 1 else ())


def _common_command(different: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """What to call several runs: by their command if it is one, or else by all of them."""
    if len(different) == 1:
        return different[0]
    shown = [" ".join(command) for command in different[:_MOST_COMMANDS]]
    if len(different) > _MOST_COMMANDS:
        shown.append(f"{len(different) - _MOST_COMMANDS} more")
    return (f"{', '.join(shown[:-1])} and {shown[-1]}",)


def _summed(edges: Iterable[Edge], add: Add) -> tuple[Edge, ...]:
    same: dict[Edge, list[int]] = defaultdict(list)
    for edge in edges:
        same[edge._replace(count=0)].append(edge.count)
    return tuple(edge._replace(count=add(counts)) for edge, counts in same.items())


def _merged_module(
    modules: Sequence[CodeModule], add: Add
) -> tuple[CodeModule, list[tuple[int, int, int]]]:
    """The blocks of all, cut where one of them begins or ends, and the ways across the cuts."""
    first = modules[0]
    ends = {at for one in modules for b in one.blocks for at in (b.offset, b.offset + b.size)}
    cuts = sorted(ends)
    counts: dict[tuple[int, int], list[int]] = defaultdict(list)
    known: dict[tuple[int, int], int] = {}
    inner: list[tuple[int, int]] = []
    """Where a block is cut, and how often it was executed."""
    for module in modules:
        for block in module.blocks:
            known[block.offset, block.size] = block.instructions
            begin, end = block.offset, block.offset + block.size
            at = bisect_right(cuts, begin)
            while begin < end:
                until = min(cuts[at], end)
                counts[begin, until - begin].append(block.count)
                if until < end:
                    inner.append((until, block.count))
                begin, at = until, at + 1
    cut_at = {at for at, _ in inner}
    unknown = [piece for piece in counts if piece not in known or sum(piece) in cut_at]
    shapes = _shapes(first, unknown)
    blocks = tuple(
        Block(*piece, known[piece] if piece in known else shapes[piece][0], add(each))
        for piece, each in sorted(counts.items())
    )
    lasts = {sum(piece): shapes[piece][1] for piece in unknown}
    splits = [(lasts[at], at, count) for at, count in inner]
    start = min(module.start for module in modules)
    end = max(module.start + module.size for module in modules)
    return replace(first, start=start, size=end - start, blocks=blocks), splits


def _shapes(
    module: CodeModule, pieces: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], tuple[int, int]]:
    """How many instructions pieces of blocks have, and where the last one is."""
    try:
        texts = open_symbols(module).disassemble(pieces) if pieces else []
    except BadFile:
        # The file is not here: one instruction, of which no more is known.
        texts = [[] for _ in pieces]
    return {
        piece: (len(found), found[-1][0]) if found else (1, piece[0] + piece[1] - 1)
        for piece, found in zip(pieces, texts, strict=True)
    }


def _merged_details(modules: Sequence[ModuleCoverage], add: Add) -> ModuleCoverage:
    counts: dict[tuple[int, str], list[FunctionCoverage]] = defaultdict(list)
    files: dict[str, list[FileCoverage]] = defaultdict(list)
    for module in modules:
        for function in module.functions:
            counts[function.offset, function.name].append(function)
        for file in module.files:
            files[file.path].append(file)
    functions = tuple(
        # The one that knows most, for a run may have looked at it more closely than another.
        replace(
            max(each, key=lambda function: function.file is not None),
            count=add(function.count for function in each),
        )
        for _, each in sorted(counts.items())
    )
    return ModuleCoverage(
        modules[0].path,
        any(module.is_detailed for module in modules),
        max(module.function_total for module in modules),
        functions,
        tuple(merged_file(path, each, add) for path, each in sorted(files.items())),
    )
