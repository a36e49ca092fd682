"""Where the instructions go: exact counts of blocks, lines, functions and calls.

What a function executed itself, and how often it was called from where, is exact. What it cost
with all that it called is attributed by these calls: see :mod:`weft.tools.callgraph`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING

from weft._native import disassemble
from weft.errors import BadFile
from weft.model.flow import NO_FILE, Block, CodeModule, Edge, Flow
from weft.model.program import Function, Module
from weft.program.binary import Code
from weft.tools.callgraph import INDIRECT, SMALL, CallGraph

if TYPE_CHECKING:
    from weft._native import _FunctionRow

__all__ = [
    "CallSite",
    "Change",
    "Profile",
    "ProfiledBlock",
    "ProfiledFunction",
    "ProfiledModule",
    "SourceLine",
    "diff",
    "profile",
]

_UNKNOWN = "[unknown]"


@dataclass(frozen=True, slots=True)
class ProfiledModule:
    """A file with code."""

    path: str
    """The file, as the program has it; :data:`weft.model.flow.NO_FILE` for code without one."""
    build_id: str | None
    """What tells it from others of the same name."""
    bias: int
    """What to add to an offset for the address in the process."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2] or self.path


@dataclass(frozen=True, slots=True)
class ProfiledFunction:
    """A function of which something was executed."""

    module: int
    """Its module's place among the modules."""
    name: str
    """The linker's name for it."""
    demangled: str | None
    """Its C++ or Rust name where that differs."""
    offset: int
    """Its address as the file states it."""
    size: int
    """Its bytes, 0 where nothing tells."""
    local_number: int
    """Which it is, from 1, of the functions with this name that only their own source file sees; 0
    if others see it, too."""
    file: str | None
    """Where it is written; needs debug information."""
    line: int | None
    part_of: int | None
    """The place of the function that it counts to: a stub of the linker counts to the function that
    it leads to, and what a compiler has moved away as rarely executed to where it was."""

    @property
    def display_name(self) -> str:
        """The name to show to people."""
        return self.demangled or self.name


@dataclass(frozen=True, slots=True)
class SourceLine:
    """Where the code from an offset on is written."""

    offset: int
    file: str
    """Empty where that is not known."""
    line: int


@dataclass(frozen=True, slots=True)
class ProfiledBlock:
    """Instructions that are executed one after the other, all of them or none."""

    function: int
    """The place of its function, whether that is part of another or not."""
    offset: int
    size: int
    instructions: int
    count: int
    """How often it was executed."""
    code: bytes
    """Its bytes; none where they could not be read."""
    lines: tuple[SourceLine, ...]
    """Where it is written, each until the next; none without debug information."""

    @property
    def cost(self) -> int:
        """The instructions that were executed here."""
        return self.instructions * self.count

    def listing(self) -> list[tuple[int, int, str]]:
        """Its instructions: of each its offset, its length and its text."""
        return disassemble(self.code, self.offset)

    def line_at(self, offset: int) -> SourceLine | None:
        """Where the instruction at an offset is written."""
        place = bisect_right(self.lines, offset, key=lambda line: line.offset) - 1
        return self.lines[place] if place >= 0 and self.lines[place].file else None


@dataclass(frozen=True, slots=True)
class CallSite:
    """An instruction by which functions go to another, and how often."""

    caller: int
    """The place of the function."""
    module: int
    offset: int
    """The instruction: a direct call, or a jump out of the function."""
    callee: int
    count: int


@dataclass(frozen=True)
class Profile:
    """How often everything was executed.

    Functions and modules are named by their places in these sequences.
    """

    command: tuple[str, ...]
    """The program, with its arguments."""
    modules: tuple[ProfiledModule, ...]
    functions: tuple[ProfiledFunction, ...]
    blocks: tuple[ProfiledBlock, ...]
    """In the order of modules and offsets."""
    edges: tuple[Edge, ...]
    """The ways between blocks that are not indirect."""
    problems: tuple[str, ...]
    """What could not be read, in words."""

    @cached_property
    def total(self) -> int:
        """All instructions that were executed."""
        return sum(block.cost for block in self.blocks)

    @cached_property
    def self_counts(self) -> tuple[int, ...]:
        """The instructions that each function executed itself; exact."""
        counts = [0] * len(self.functions)
        for block in self.blocks:
            counts[self.owner(block.function)] += block.cost
        return tuple(counts)

    @cached_property
    def module_counts(self) -> tuple[int, ...]:
        """The instructions that were executed in each module; exact."""
        counts = [0] * len(self.modules)
        for block in self.blocks:
            counts[self.functions[block.function].module] += block.cost
        return tuple(counts)

    @cached_property
    def line_counts(self) -> Counter[tuple[int, str, int]]:
        """The instructions of each function by source file and line; exact.

        What has no known line is at line 0 of no file.
        """
        counts: Counter[tuple[int, str, int]] = Counter()
        for block in self.blocks:
            for file, line, instructions in _lines_of(block):
                counts[self.owner(block.function), file, line] += instructions * block.count
        return counts

    @cached_property
    def call_sites(self) -> tuple[CallSite, ...]:
        """The instructions by which functions go to others, or call themselves."""
        return self._found_calls[0]

    @cached_property
    def indirect_calls(self) -> dict[int, int]:
        """How often functions were entered by branches whose source is not known.

        That is how often the function was entered, less the calls that are known.
        """
        return self._found_calls[1]

    @cached_property
    def calls(self) -> tuple[int, ...]:
        """How often each function was called; exact."""
        counts = [0] * len(self.functions)
        for (_, callee), count in self.graph.calls.items():
            counts[callee] += count
        return tuple(counts)

    @cached_property
    def graph(self) -> CallGraph:
        """Who called whom, and what of the cost is due to whom."""
        calls: Counter[tuple[int, int]] = Counter()
        for site in self.call_sites:
            calls[site.caller, site.callee] += site.count
        for callee, count in self.indirect_calls.items():
            calls[INDIRECT, callee] += count
        return CallGraph(self.self_counts, calls)

    @property
    def inclusive_counts(self) -> list[float]:
        """What each function cost with all that it called; attributed by the calls."""
        return self.graph.inclusive

    def owner(self, function: int) -> int:
        """The function that a function counts to: itself, or the one that it is part of."""
        whole = self.functions[function].part_of
        return function if whole is None else whole

    def hottest_functions(self) -> list[int]:
        """The functions that count, those first that executed most themselves."""
        counts = self.self_counts
        shown = (place for place, one in enumerate(self.functions) if one.part_of is None)
        return sorted(shown, key=lambda place: (-counts[place], self.functions[place].name))

    def hottest_blocks(self) -> list[ProfiledBlock]:
        """The blocks, those first in which most instructions were executed."""
        return sorted(self.blocks, key=lambda block: -block.cost)

    def frame_name(self, frame: int) -> str:
        """What to call a frame of a stack."""
        if frame == INDIRECT:
            return "[indirect]"
        if frame == SMALL:
            return "[small]"
        if self.graph.cycle_of(frame) is not None:
            number = self.graph.cycles.index(self.graph.cycle_of(frame) or ()) + 1
            return f"<cycle {number}>"
        return self.functions[frame].display_name

    def module_of(self, block: ProfiledBlock) -> int:
        """The place of a block's module."""
        return self.functions[block.function].module

    def block_at(self, module: int, offset: int) -> ProfiledBlock | None:
        """The block that has the instruction at an offset."""
        starts, blocks = self._blocks_by_module.get(module, ([], []))
        place = bisect_right(starts, offset) - 1
        if place < 0 or offset >= blocks[place].offset + blocks[place].size:
            return None
        return blocks[place]

    def only(self, pattern: str) -> Profile:
        """The same, of the modules whose name or path matches a pattern.

        Calls from elsewhere count as indirect ones then.
        """
        matching = [
            place
            for place, module in enumerate(self.modules)
            if fnmatchcase(module.name, pattern) or fnmatchcase(module.path, pattern)
        ]
        modules = {old: place for place, old in enumerate(matching)}
        kept = [place for place, one in enumerate(self.functions) if one.module in modules]
        new = {old: place for place, old in enumerate(kept)}
        functions = (self.functions[old] for old in kept)
        return replace(
            self,
            modules=tuple(self.modules[old] for old in matching),
            functions=tuple(
                replace(
                    one,
                    module=modules[one.module],
                    part_of=None if one.part_of is None else new.get(one.part_of),
                )
                for one in functions
            ),
            blocks=tuple(
                replace(block, function=new[block.function])
                for block in self.blocks
                if block.function in new
            ),
            edges=tuple(
                replace(edge, module=modules[edge.module], to_module=modules[edge.to_module])
                for edge in self.edges
                if edge.module in modules and edge.to_module in modules
            ),
        )

    @cached_property
    def _blocks_by_module(self) -> dict[int, tuple[list[int], list[ProfiledBlock]]]:
        blocks: dict[int, list[ProfiledBlock]] = defaultdict(list)
        for block in self.blocks:
            blocks[self.module_of(block)].append(block)
        return {
            module: ([block.offset for block in inside], inside)
            for module, inside in blocks.items()
        }

    @cached_property
    def _found_calls(self) -> tuple[tuple[CallSite, ...], dict[int, int]]:
        sites = []
        # How often the first instruction of a function is reached: all of it, less what is known.
        unknown: Counter[int] = Counter()
        for block in self.blocks:
            function = self.functions[block.function]
            if function.part_of is None and block.offset == function.offset:
                unknown[block.function] += block.count
        for edge in self.edges:
            source = self.block_at(edge.module, edge.source)
            target = self.block_at(edge.to_module, edge.target)
            if source is None or target is None:
                continue
            caller, callee = self.owner(source.function), self.owner(target.function)
            if edge.target == self.functions[target.function].offset and (
                target.function == callee or caller != callee or edge.kind == "call"
            ):
                unknown[callee] -= edge.count
            if edge.kind == "call" or caller != callee:
                sites.append(CallSite(caller, edge.module, edge.source, callee, edge.count))
        # A program that runs on while it is looked at may not add up by a few.
        return tuple(sites), {place: count for place, count in unknown.items() if count > 0}


def _lines_of(block: ProfiledBlock) -> Iterator[tuple[str, int, int]]:
    """The source lines of a block, and how many instructions are from each."""
    if not block.lines:
        yield "", 0, block.instructions
        return
    counts: Counter[tuple[str, int]] = Counter()
    for offset, _, _ in block.listing():
        line = block.line_at(offset)
        counts[(line.file, line.line) if line else ("", 0)] += 1
    for (file, number), count in counts.items():
        yield file, number, count


# --- From what was recorded --------------------------------------------------------------------


def profile(flow: Flow, modules: Iterable[Module] = ()) -> Profile:
    """Find out what was executed by name: functions, source lines, instructions.

    Files are opened by the paths that the program has for them. ``modules`` says where else they
    are, as for a process in a container, or what is in them, if they are no files.
    """
    return _Reader(flow, {module.path: module for module in modules}).read()


class _Reader:
    """Puts names to what was executed."""

    def __init__(self, flow: Flow, known: dict[str, Module]) -> None:
        self.flow = flow
        self.known = known
        self.problems = list(flow.lost)
        self.functions: list[ProfiledFunction] = []
        self.blocks: list[ProfiledBlock] = []
        self.found: dict[int, Function] = {}
        """What is known of functions, by their places."""
        self.entries: Counter[int] = Counter()
        """How often each function's first instruction was executed."""
        self.tables: dict[int, _Table] = {}

    def read(self) -> Profile:
        for place, module in enumerate(self.flow.modules):
            self._module(place, module)
        self._fold_cold_parts()
        self._fold_fragments()
        self._fold_stubs()
        return Profile(
            command=self.flow.command,
            modules=tuple(
                ProfiledModule(module.path, module.build_id, module.bias)
                for module in self.flow.modules
            ),
            functions=tuple(self.functions),
            blocks=tuple(self.blocks),
            edges=self.flow.edges,
            problems=tuple(self.problems),
        )

    def _module(self, place: int, recorded: CodeModule) -> None:
        if not recorded.blocks:
            return
        module = self._opened(recorded)
        indexes: Sequence[int | None] = [None] * len(recorded.blocks)
        if module is not None:
            self.tables[place] = _Table(module)
            indexes = self._contained(place, recorded)
        numbers = self._functions(place, indexes, recorded.blocks[0].offset)
        lines = _Lines(module)
        for block, index in zip(recorded.blocks, indexes, strict=True):
            number = numbers[index]
            code, written = lines.of(block)
            self.blocks.append(
                ProfiledBlock(
                    function=number,
                    offset=block.offset,
                    size=block.size,
                    instructions=block.instructions,
                    count=block.count,
                    code=code,
                    lines=written,
                )
            )
            if block.offset == self.functions[number].offset:
                self.entries[number] += block.count

    def _contained(self, place: int, recorded: CodeModule) -> Sequence[int | None]:
        """The function of each block, by its number in the module.

        Some symbols do not say how long their function is, such as those of the C runtime. To these
        belongs what follows them, if control has gone there from them without a call.
        """
        table, blocks = self.tables[place], recorded.blocks
        found = table.symbols.containing([block.offset for block in blocks])
        if None not in found:
            return found
        starts = [row[2] for row in table.rows]
        ends = [block.offset + block.size for block in blocks]
        sources: dict[int, set[int]] = defaultdict(set)
        for edge in self.flow.edges:
            if edge.module == edge.to_module == place and edge.kind != "call":
                sources[edge.target].add(edge.source)
        for number, block in enumerate(blocks):
            if found[number] is not None:
                continue
            index = bisect_right(starts, block.offset) - 1
            if index < 0 or table.rows[index][3]:
                continue
            origins = {bisect_right(ends, source) for source in sources[block.offset]}
            if number and ends[number - 1] == block.offset:
                origins.add(number - 1)
            if any(found[origin] == index for origin in origins if origin < number):
                found[number] = index
        return found

    def _opened(self, recorded: CodeModule) -> Module | None:
        if recorded.path == NO_FILE:
            return None
        problem = ""
        # The way by the process is good only as long as that is there.
        for module in (Module(recorded.path), self.known.get(recorded.path)):
            if module is None:
                continue
            try:
                build_id = module.symbols.build_id
            except BadFile as error:
                problem = problem or str(error)
                continue
            if recorded.build_id is None or build_id == recorded.build_id:
                return module
            problem = f"{recorded.path}: the file is another one than was executed"
        self.problems.append(problem)
        return None

    def _functions(
        self, place: int, indexes: Sequence[int | None], lowest: int
    ) -> dict[int | None, int]:
        """Add the functions of a module; their places, by their numbers in the module."""
        numbers: dict[int | None, int] = {}
        wanted = sorted({index for index in indexes if index is not None})
        if place in self.tables:
            table = self.tables[place]
            for index, source in zip(wanted, table.symbols.sources(wanted), strict=True):
                row = table.rows[index]
                name, demangled, offset, size, kind, binding, visibility, origin, aliases = row
                numbers[index] = len(self.functions)
                self.found[len(self.functions)] = Function(
                    *(table.module, name, offset, size, demangled, kind),
                    *(binding, visibility, origin),
                    aliases=tuple(aliases),
                    index=index,
                )
                self.functions.append(
                    ProfiledFunction(
                        module=place,
                        name=name,
                        demangled=demangled,
                        offset=offset,
                        size=size,
                        local_number=table.local_numbers.get(index, 0),
                        file=source[0] if source else None,
                        line=(source[1] or None) if source else None,
                        part_of=None,
                    )
                )
        if None in indexes:
            numbers[None] = len(self.functions)
            name = NO_FILE if self.flow.modules[place].path == NO_FILE else _UNKNOWN
            unknown = ProfiledFunction(place, name, None, lowest, 0, 0, None, None, None)
            self.functions.append(unknown)
        return numbers

    def _fold_cold_parts(self) -> None:
        """Let ``NAME.cold``, which compilers move out of ``NAME``, count to it."""
        named: dict[tuple[int, str], list[int]] = defaultdict(list)
        for number in self.found:
            function = self.functions[number]
            named[function.module, function.name].append(number)
        for number in self.found:
            function = self.functions[number]
            name, dot, _ = function.name.partition(".cold")
            wholes = named.get((function.module, name), [])
            if dot and len(wholes) == 1:
                self._fold(number, wholes[0])

    def _fold_fragments(self) -> None:
        """The same for parts that have no name any more, which tell by how they are reached.

        They are never called, they are jumped to from one function only, and they jump back into
        the midst of it.
        """
        starts, numbers = self._where()
        entered = Counter(self.entries)
        reached_from: dict[int, set[int | None]] = defaultdict(set)
        back: set[tuple[int, int]] = set()
        for edge in self.flow.edges:
            places = []
            for module, offset in ((edge.module, edge.source), (edge.to_module, edge.target)):
                inside = starts.get(module, [])
                place = bisect_right(inside, offset) - 1
                places.append(numbers[module][place] if place >= 0 else None)
            source, target = places
            if source is None or target is None:
                continue
            is_entry = edge.target == self.functions[target].offset
            if is_entry:
                entered[target] -= edge.count
            if edge.kind == "call":
                reached_from[target].add(None)
            elif source != target:
                reached_from[target].add(source)
                if not is_entry:
                    back.add((source, target))
        parts: dict[int, int] = {}
        for part, sources in reached_from.items():
            [whole, *others] = sources
            if whole is not None and not others and (part, whole) in back and entered[part] <= 0:
                parts[part] = whole
        for part, whole in parts.items():
            # Of two that were never entered, as far as is known, the larger one is the function.
            if parts.get(whole) != part or self.functions[part].size < self.functions[whole].size:
                self._fold(part, whole)

    def _where(self) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """Of each module the offsets of its blocks, and the functions that they are in."""
        starts: dict[int, list[int]] = defaultdict(list)
        numbers: dict[int, list[int]] = defaultdict(list)
        for block in self.blocks:
            module = self.functions[block.function].module
            starts[module].append(block.offset)
            numbers[module].append(block.function)
        return starts, numbers

    def _fold_stubs(self) -> None:
        """Let the linker's stubs count to the functions that they lead to, by their names."""
        exported: dict[str, list[int]] = defaultdict(list)
        for number, function in self.found.items():
            if function.kind != "plt" and function.binding != "local" and self.entries[number]:
                for name in (function.name, *function.aliases):
                    exported[name].append(number)
        for number, function in self.found.items():
            if function.kind != "plt":
                continue
            name = function.name.removesuffix("@plt")
            found = exported.get(name) or self._chosen_at_start(name)
            own = self.functions[number].module
            # A library's own function stands in for another of its name, if it comes first.
            found = sorted(found, key=lambda other: self.functions[other].module == own)
            enough = [other for other in found if self.entries[other] >= self.entries[number]]
            if enough:
                self._fold(number, enough[0])

    def _chosen_at_start(self, name: str) -> list[int]:
        """The function that a name stands for which is chosen at start-up, if there is no doubt.

        The C library names its ``strlen`` for AVX2 ``__strlen_avx2``.
        """
        choosing = {place for place, table in self.tables.items() if name in table.chosen_at_start}
        candidates = [
            number
            for number, function in self.found.items()
            if self.functions[number].module in choosing
            and self.entries[number]
            and any(one.startswith(f"__{name}_") for one in (function.name, *function.aliases))
        ]
        return candidates if len(candidates) == 1 else []

    def _fold(self, part: int, whole: int) -> None:
        """Let a function count to another, or to what that counts to."""
        further = self.functions[whole].part_of
        root = whole if further is None else further
        if root == part:
            return
        for number, function in enumerate(self.functions):
            if number == part or function.part_of == part:
                self.functions[number] = replace(function, part_of=root)


class _Lines:
    """The code and the source lines of a module, as far as there are any."""

    def __init__(self, module: Module | None) -> None:
        self._symbols = module.symbols if module is not None else None
        self._code = Code(module) if module is not None else None

    def of(self, block: Block) -> tuple[bytes, tuple[SourceLine, ...]]:
        """The bytes of a block, if they are what was executed, and where it is written."""
        if self._code is None or self._symbols is None:
            return b"", ()
        try:
            code = self._code.read(block.offset, block.size)
        except BadFile:
            self._code = None
            return b"", ()
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


class _Table:
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


# --- What has changed --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """What one function cost in two profiles; 0 where it was not executed."""

    module: str
    """The name of its module."""
    name: str
    before: int
    """The instructions that it executed itself."""
    after: int
    calls_before: int
    calls_after: int
    inclusive_before: int
    inclusive_after: int


def diff(before: Profile, after: Profile) -> list[Change]:
    """Compare two profiles function by function; first what has changed most."""
    old, new = _by_name(before), _by_name(after)
    changes = []
    for module, name in old.keys() | new.keys():
        (own_old, calls_old, whole_old) = old.get((module, name), (0, 0, 0))
        (own_new, calls_new, whole_new) = new.get((module, name), (0, 0, 0))
        changes.append(
            Change(module, name, own_old, own_new, calls_old, calls_new, whole_old, whole_new)
        )
    return sorted(
        changes, key=lambda one: (-abs(one.after - one.before), -one.after, one.module, one.name)
    )


def _by_name(profile: Profile) -> dict[tuple[str, str], tuple[int, int, int]]:
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    for place, function in enumerate(profile.functions):
        if function.part_of is None:
            key = profile.modules[function.module].name, function.display_name
            own, calls, whole = found.get(key, (0, 0, 0))
            found[key] = (
                own + profile.self_counts[place],
                calls + profile.calls[place],
                whole + round(profile.inclusive_counts[place]),
            )
    return found
