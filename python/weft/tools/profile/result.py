"""A profile: how often every block, function and call was executed."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import NamedTuple

from weft import _native
from weft._native import disassemble
from weft.base.rows import Rows
from weft.model.flow import Edge
from weft.model.program import Module
from weft.tools.callgraph import INDIRECT, SMALL, CallGraph

__all__ = [
    "NOTE",
    "CallSite",
    "Profile",
    "ProfiledBlock",
    "ProfiledFunction",
    "ProfiledModule",
    "SourceLine",
    "profiled_blocks",
]

NOTE = (
    "self counts and calls are exact; inclusive counts are attributed by how often each function "
    "was called from where"
)
"""What of a profile is exact, for people."""


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


class SourceLine(NamedTuple):
    """Where the code from an offset on is written."""

    offset: int
    file: str
    """Empty where that is not known."""
    line: int


class ProfiledBlock(NamedTuple):
    """Instructions that are executed one after the other, all of them or none."""

    function: int
    """The place of its function, whether that is part of another or not."""
    offset: int
    size: int
    instructions: int
    count: int  # type: ignore[assignment] # not the method of tuples
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
    blocks: Sequence[ProfiledBlock]
    """In the order of modules and offsets."""
    edges: Sequence[Edge]
    """The ways between blocks that are not indirect."""
    problems: tuple[str, ...]
    """What could not be read, in words."""

    @cached_property
    def rows(self) -> _native.ProfileRows:
        """Its blocks and edges as the compiled core has them."""
        core = self.blocks.core if isinstance(self.blocks, Rows) else None
        if isinstance(core, _native.ProfileRows) and (
            isinstance(self.edges, Rows) and self.edges.core is core
        ):
            return core
        return _native.ProfileRows.of(
            [(self.module_of(block), block) for block in self.blocks], self.edges
        )

    @cached_property
    def total(self) -> int:
        """All instructions that were executed."""
        return sum(self._costs)

    @cached_property
    def _costs(self) -> list[int]:
        """The instructions of each function, whatever it is part of."""
        return self.rows.costs(len(self.functions))

    @cached_property
    def self_counts(self) -> tuple[int, ...]:
        """The instructions that each function executed itself; exact."""
        counts = [0] * len(self.functions)
        for place, cost in enumerate(self._costs):
            counts[self.owner(place)] += cost
        return tuple(counts)

    @cached_property
    def module_counts(self) -> tuple[int, ...]:
        """The instructions that were executed in each module; exact."""
        counts = [0] * len(self.modules)
        for function, cost in zip(self.functions, self._costs, strict=True):
            counts[function.module] += cost
        return tuple(counts)

    @cached_property
    def line_counts(self) -> Counter[tuple[int, str, int]]:
        """The instructions of each function by source file and line; exact.

        What has no known line is at line 0 of no file.
        """
        counts: Counter[tuple[int, str, int]] = Counter()
        for function, file, line, cost in self.rows.line_costs():
            counts[self.owner(function), file, line] += cost
        return counts

    @cached_property
    def call_sites(self) -> tuple[CallSite, ...]:
        """The instructions by which functions go to others, or call themselves."""
        sites = []
        for edge, (source, target) in zip(self.edges, self.rows.ends(), strict=True):
            if source is None or target is None:
                continue
            caller, callee = (self.owner(self.blocks[place].function) for place in (source, target))
            if edge.kind == "call" or caller != callee:
                sites.append(CallSite(caller, edge.module, edge.source, callee, edge.count))
        return tuple(sites)

    @cached_property
    def indirect_calls(self) -> dict[int, int]:
        """How often functions were entered by branches whose source is not known.

        That is how often the function was entered, less the calls that are known.
        """
        return self._calls[1]

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
        calls = Counter(self._calls[0])
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

    def hottest_blocks(self, most: int | None = None) -> list[ProfiledBlock]:
        """The blocks, or so many of them, those first in which most instructions were executed."""
        places = self.rows.hottest(len(self.blocks) if most is None else most)
        blocks = self.blocks if most is not None else tuple(self.blocks)
        return [blocks[place] for place in places]

    def ways_on(self, block: ProfiledBlock) -> list[Edge]:
        """The edges that leave a block, or an instruction in it."""
        end = block.offset + block.size
        places = self.rows.leaving(self.module_of(block), block.offset, end)
        return [self.edges[place] for place in places]

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
        place = self.rows.block_at(module, offset)
        return None if place is None else self.blocks[place]

    def folded(self, wholes: Mapping[int, int]) -> Profile:
        """The same with functions that count to others: the places of both."""
        functions = tuple(
            replace(function, part_of=wholes[place]) if place in wholes else function
            for place, function in enumerate(self.functions)
        )
        return replace(self, functions=functions)

    def only(self, pattern: str) -> Profile:
        """The same, of the modules whose name or path matches a pattern.

        Calls from elsewhere count as indirect ones then.
        """
        matching = [
            place
            for place, module in enumerate(self.modules)
            if fnmatchcase(module.path, pattern) or Module(module.path).is_called(pattern)
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
                block._replace(function=new[block.function])
                for block in self.blocks
                if block.function in new
            ),
            edges=tuple(
                edge._replace(module=modules[edge.module], to_module=modules[edge.to_module])
                for edge in self.edges
                if edge.module in modules and edge.to_module in modules
            ),
        )

    @cached_property
    def _calls(self) -> tuple[Counter[tuple[int, int]], dict[int, int]]:
        """How often each function called each, and was entered by ways that are not known."""
        offsets = [function.offset for function in self.functions]
        # How often the first instruction of a function is reached: all of it, less what is known.
        unknown = Counter(
            {
                place: count
                for place, count in enumerate(self.rows.entries(offsets))
                if self.functions[place].part_of is None
            }
        )
        calls: Counter[tuple[int, int]] = Counter()
        for source, entered, is_entry, is_call, count in self.rows.ways(offsets):
            caller, callee = self.owner(source), self.owner(entered)
            if is_entry and (entered == callee or caller != callee or is_call):
                unknown[callee] -= count
            if is_call or caller != callee:
                calls[caller, callee] += count
        # A program that runs on while it is looked at may not add up by a few.
        return calls, {place: count for place, count in unknown.items() if count > 0}


def profiled_blocks(core: _native.ProfileRows) -> Rows[ProfiledBlock]:
    """The blocks that the compiled core has."""

    def read(start: int, end: int) -> list[ProfiledBlock]:
        return [
            ProfiledBlock(*row[:6], tuple(map(SourceLine._make, row[6])))
            for row in core.blocks(start, end)
        ]

    return Rows(core, 0, core.block_count(), read)
