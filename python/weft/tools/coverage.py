"""Coverage: which functions, lines and branches of a program were executed, and which were not.

Everything is told from the machine code that was executed and the debug information. A line counts
as gcov counts it: how often control came to it from another line, or went round in a loop on it.
"""

from __future__ import annotations

import os
import shutil
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import TypeAlias

from weft import _native
from weft.errors import BadFile, InvalidArgument
from weft.model.flow import NO_FILE, Block, CodeModule, Edge, Flow
from weft.tools.lines import ModuleEdges, edges_of, line_counts, line_rows

__all__ = [
    "Branch",
    "Change",
    "Coverage",
    "FileCoverage",
    "FunctionCoverage",
    "ModuleCoverage",
    "Share",
    "cover",
    "diff",
    "functions_only",
    "merge",
]

_CONDITIONAL, _INDIRECT_JUMP, _RETURN = 1, 4, 6
"""Transfers of :meth:`weft._native.ModuleSymbols.instructions`."""
_GOING_ON = {0, 3, 5}
"""What goes on with the next instruction: all that is no transfer, and calls."""
_MOST_COMMANDS = 3
"""How many different commands of a merged coverage are named."""
_STARTUP = {
    "__do_global_dtors_aux",
    "__libc_csu_fini",
    "__libc_csu_init",
    "_dl_relocate_static_pie",
    "_fini",
    "_init",
    "_start",
    "deregister_tm_clones",
    "frame_dummy",
    "register_tm_clones",
}


@dataclass(frozen=True, slots=True)
class Share:
    """How many of all."""

    hit: int
    total: int

    def __add__(self, other: Share) -> Share:
        return Share(self.hit + other.hit, self.total + other.total)

    @property
    def ratio(self) -> float:
        """Between 0 and 1; of nothing, all is hit."""
        return self.hit / self.total if self.total else 1.0

    @classmethod
    def of(cls, counts: Iterable[int]) -> Share:
        """How many of the counts are not 0."""
        all_counts = list(counts)
        return cls(sum(count > 0 for count in all_counts), len(all_counts))


@dataclass(frozen=True, slots=True)
class FunctionCoverage:
    """A function, and how often it was entered."""

    name: str
    """Its name, demangled."""
    offset: int
    """Where it begins, as the file states it."""
    size: int
    """Its bytes."""
    count: int
    """How often it was entered; 1 for one that was, if that was not counted."""
    file: str | None = None
    """The source file, if it is known."""
    line: int | None = None
    """The line where it is declared."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A conditional branch, and how often it was taken and passed."""

    offset: int
    """The instruction."""
    line: int
    """Its line."""
    taken: int
    """How often control went elsewhere."""
    passed: int
    """How often control went on behind it."""

    @property
    def outcomes(self) -> tuple[int, int]:
        """The counts of both ways."""
        return self.taken, self.passed


@dataclass(frozen=True)
class FileCoverage:
    """A source file: each of its lines that has code, and its branches."""

    path: str
    lines: Mapping[int, int]
    """How often each line was executed, in the order of the lines."""
    branches: tuple[Branch, ...]
    """In the order of their lines and offsets."""

    @property
    def line_share(self) -> Share:
        """How many of its lines were executed."""
        return Share.of(self.lines.values())

    @property
    def branch_share(self) -> Share:
        """How many of the ways from its branches were taken."""
        return Share.of(count for branch in self.branches for count in branch.outcomes)


@dataclass(frozen=True)
class ModuleCoverage:
    """What was executed of a program or library, and what was not."""

    path: str
    is_detailed: bool
    """Whether its lines and branches were looked at, and its functions that were not executed."""
    function_total: int
    """How many functions it has."""
    functions: tuple[FunctionCoverage, ...]
    """All of them, or only those that were executed if it is not looked at in detail."""
    files: tuple[FileCoverage, ...]
    """Its source files, as far as the debug information knows."""

    @property
    def name(self) -> str:
        """The name of its file."""
        return PurePath(self.path).name

    @property
    def function_share(self) -> Share:
        """How many of its functions were executed."""
        return Share(sum(function.count > 0 for function in self.functions), self.function_total)

    @property
    def line_share(self) -> Share:
        """How many of its lines were executed."""
        return sum((file.line_share for file in self.files), Share(0, 0))

    @property
    def branch_share(self) -> Share:
        """How many of the ways from its branches were taken."""
        return sum((file.branch_share for file in self.files), Share(0, 0))


@dataclass(frozen=True)
class Coverage:
    """What was executed of a program, by blocks, functions, lines and branches."""

    flow: Flow
    """Its blocks and the ways between them."""
    modules: tuple[ModuleCoverage, ...]
    """In the order of the modules of the flow."""

    @property
    def is_counted(self) -> bool:
        """Whether counts say how often; if not, they are 0 or 1."""
        return self.flow.is_counted

    def shown_modules(self) -> list[ModuleCoverage]:
        """Return the modules that there is something to say of."""
        return [module for module in self.modules if module.function_share.hit or module.files]

    def files(self) -> list[tuple[FileCoverage, list[FunctionCoverage]]]:
        """Return the source files of all modules, each once, with the functions in it.

        What several modules have of one file is one: a function by its name and line, a branch by
        its place among those of its line.
        """
        by_path: dict[str, list[FileCoverage]] = defaultdict(list)
        functions: dict[str, list[FunctionCoverage]] = defaultdict(list)
        for module in self.modules:
            for file in module.files:
                by_path[file.path].append(file)
            for function in module.functions:
                if function.file is not None and module.is_detailed:
                    functions[function.file].append(function)
        add = _adder(self.is_counted)
        return [
            (_shared_file(path, by_path[path], add), _shared_functions(functions[path], add))
            for path in sorted({*by_path, *functions})
        ]

    def functions(self) -> list[tuple[ModuleCoverage, FunctionCoverage]]:
        """Return the functions of modules that are looked at in detail, each once.

        Each comes with one of the modules that have it.
        """
        found: list[tuple[ModuleCoverage, FunctionCoverage]] = []
        modules: dict[tuple[str, int | None, str], ModuleCoverage] = {}
        for module in self.modules:
            for function in module.functions if module.is_detailed else ():
                if function.file is None:
                    found.append((module, function))
                else:
                    modules.setdefault((function.file, function.line, function.name), module)
        return found + [
            (modules[path.path, function.line, function.name], function)
            for path, functions in self.files()
            for function in functions
        ]


# --- From blocks to lines ----------------------------------------------------------------------


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


def chooser(
    paths: Iterable[str],
    patterns: Sequence[str],
    program: str | None,
    directory: str | os.PathLike[str] | None = None,
) -> Callable[[str], bool]:
    """Return the function that says whether a module is to be looked at in detail.

    ``paths`` are those of the modules that are known; see :func:`cover`.
    """
    if patterns:
        return lambda path: path != NO_FILE and matches(path, patterns)
    root = Path(directory or Path.cwd()).resolve()
    # What somebody works on is where they are; if nothing is, they want to know of the program.
    is_here = any(root in Path(path).parents for path in paths)
    other = None if is_here else program
    return lambda path: root in Path(path).parents or path == other


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether the path of a module, or its name, is like one of the patterns."""
    name = PurePath(path).name
    return any(fnmatchcase(name, pattern) or fnmatchcase(path, pattern) for pattern in patterns)


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


def open_symbols(
    module: CodeModule, root: str | None = None, open_path: str | None = None
) -> _native.ModuleSymbols:
    """Read the functions of a module, if its file is still the one that was executed."""
    if open_path is None and root is not None:
        open_path = f"{root}{module.path}"
    symbols = _native.ModuleSymbols.open(module.path, open_path=open_path, root=root)
    if module.build_id is not None and symbols.build_id != module.build_id:
        raise BadFile(f"{module.path} has changed since it was executed")
    return symbols


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


def is_startup(name: str) -> bool:
    """Whether a function is one that compilers add to every program, and nobody has written."""
    return name in _STARTUP


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


# --- Several coverages -------------------------------------------------------------------------


def functions_only(
    modules: Sequence[ModuleCoverage], command: Sequence[str], *, is_counted: bool
) -> Coverage:
    """Return the coverage of functions of which no blocks are known."""
    places = tuple(CodeModule(module.path, None, 0, 0, 0, ()) for module in modules)
    return Coverage(Flow(places, (), is_counted, tuple(command)), tuple(modules))


def merge(coverages: Sequence[Coverage]) -> Coverage:
    """Return what several runs have executed together; of modules that are the same, counts add up.

    If one of them is not counted, neither is the result.
    """
    if not coverages:
        raise InvalidArgument("there is nothing to merge", advice="name the files of two runs")
    is_counted = all(coverage.is_counted for coverage in coverages)
    add = _adder(is_counted)
    parts: dict[tuple[str, str | None], list[tuple[int, int]]] = {}
    for run, coverage in enumerate(coverages):
        for place, module in enumerate(coverage.flow.modules):
            parts.setdefault((module.path, module.build_id), []).append((run, place))
    modules, details = [], []
    numbers: dict[tuple[int, int], int] = {}
    falls: list[Edge] = []
    for number, places in enumerate(parts.values()):
        numbers.update((place, number) for place in places)
        merged, splits = _merged_module(
            [coverages[run].flow.modules[place] for run, place in places], add
        )
        modules.append(merged)
        falls += [Edge(number, source, number, target, "fall", n) for source, target, n in splits]
        all_details = [coverages[run].modules[place] for run, place in places]
        details.append(_merged_details(all_details, add))
    edges = falls + [
        replace(edge, module=numbers[run, edge.module], to_module=numbers[run, edge.to_module])
        for run, coverage in enumerate(coverages)
        for edge in coverage.flow.edges
    ]
    lost = dict.fromkeys(text for coverage in coverages for text in coverage.flow.lost)
    command = _common_command([coverage.flow.command for coverage in coverages])
    flow = Flow(tuple(modules), _summed(edges, add), is_counted, command, tuple(lost))
    return Coverage(flow, tuple(details))


def _common_command(commands: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """What to call several runs: by their command if it is one, or else by all of them."""
    different = list(dict.fromkeys(commands))
    if len(different) == 1:
        return different[0]
    shown = [" ".join(command) for command in different[:_MOST_COMMANDS]]
    if len(different) > _MOST_COMMANDS:
        shown.append(f"{len(different) - _MOST_COMMANDS} more")
    return (f"{', '.join(shown[:-1])} and {shown[-1]}",)


def _summed(edges: Iterable[Edge], add: Callable[[Iterable[int]], int]) -> tuple[Edge, ...]:
    same: dict[Edge, list[int]] = defaultdict(list)
    for edge in edges:
        same[replace(edge, count=0)].append(edge.count)
    return tuple(replace(edge, count=add(counts)) for edge, counts in same.items())


def _adder(is_counted: bool) -> Callable[[Iterable[int]], int]:
    return sum if is_counted else lambda counts: int(any(counts))


def _merged_module(
    modules: Sequence[CodeModule], add: Callable[[Iterable[int]], int]
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


def _merged_details(
    modules: Sequence[ModuleCoverage], add: Callable[[Iterable[int]], int]
) -> ModuleCoverage:
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
        tuple(_merged_file(path, each, add) for path, each in sorted(files.items())),
    )


def _merged_file(
    path: str, files: Sequence[FileCoverage], add: Callable[[Iterable[int]], int]
) -> FileCoverage:
    if len(files) == 1:
        return files[0]
    lines: dict[int, list[int]] = defaultdict(list)
    branches: dict[tuple[int, int], list[Branch]] = defaultdict(list)
    for file in files:
        for line, count in file.lines.items():
            lines[line].append(count)
        for branch in file.branches:
            branches[branch.line, branch.offset].append(branch)
    return FileCoverage(
        path,
        {line: add(counts) for line, counts in sorted(lines.items())},
        tuple(
            Branch(at, line, add(b.taken for b in each), add(b.passed for b in each))
            for (line, at), each in sorted(branches.items())
        ),
    )


def _shared_file(
    path: str, files: Sequence[FileCoverage], add: Callable[[Iterable[int]], int]
) -> FileCoverage:
    """A file that is compiled into several modules, where its branches are at other offsets."""
    alike = []
    for file in files:
        places: Counter[int] = Counter()
        branches = []
        for branch in file.branches:
            places[branch.line] += 1
            branches.append(replace(branch, offset=places[branch.line]))
        alike.append(replace(file, branches=tuple(branches)))
    return files[0] if len(files) == 1 else _merged_file(path, alike, add)


def _shared_functions(
    functions: Iterable[FunctionCoverage], add: Callable[[Iterable[int]], int]
) -> list[FunctionCoverage]:
    """Each function once: instances of a template, and copies in several modules, are one."""
    same: dict[tuple[int, str], list[FunctionCoverage]] = defaultdict(list)
    for function in functions:
        same[function.line or 0, function.name].append(function)
    return [
        replace(each[0], count=add(function.count for function in each))
        for _, each in sorted(same.items())
    ]


@dataclass(frozen=True)
class Change:
    """A function or a line that only one of two runs has executed."""

    is_gained: bool
    """Whether it is the new run that has."""
    file: str
    """The source file, or the module of a function that has none."""
    line: int | None
    """The line, or where the function is declared."""
    function: str | None = None
    """The function, if it is not about a line."""


def diff(old: Coverage, new: Coverage) -> list[Change]:
    """Return what only one of two runs has executed: functions, then lines.

    What is not in both programs is left out: it is another program's, not another run's.
    """
    changes: list[Change] = []
    functions = [dict(_functions(old)), dict(_functions(new))]
    for key in sorted(functions[0].keys() & functions[1].keys(), key=str):
        before, after = functions[0][key], functions[1][key]
        if bool(before.count) != bool(after.count):
            where = after.file or key[0]
            changes.append(Change(bool(after.count), where, after.line, after.name))
    lines = [{file.path: file.lines for file, _ in run.files()} for run in (old, new)]
    for path in sorted(lines[0].keys() & lines[1].keys()):
        before_lines, after_lines = lines[0][path], lines[1][path]
        for line in sorted(before_lines.keys() & after_lines.keys()):
            if bool(before_lines[line]) != bool(after_lines[line]):
                changes.append(Change(bool(after_lines[line]), path, line))
    return changes


_Identity: TypeAlias = tuple[str, str, str | None]
"""What makes two functions the same: module, name and source file."""


def _functions(coverage: Coverage) -> Iterator[tuple[_Identity, FunctionCoverage]]:
    for module in coverage.modules:
        if module.is_detailed:
            for function in module.functions:
                yield (module.path, function.name, function.file), function
