"""From what was recorded to a profile: names for modules, functions and lines."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

from weft import _native
from weft.errors import BadFile
from weft.model.flow import NO_FILE, CodeModule, Flow, edges_of
from weft.model.program import Function, Module
from weft.tools.profile.result import (
    Profile,
    ProfiledFunction,
    ProfiledModule,
    profiled_blocks,
)

__all__ = ["profile"]

_UNKNOWN = "[unknown]"


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
        self.found: dict[int, Function] = {}
        """What is known of functions, by their places."""
        self.entries: Sequence[int] = ()
        """How often each function's first instruction was executed."""
        self.wholes: dict[int, int] = {}
        """To which function each counts that is part of another."""
        self.parts: dict[int, list[int]] = defaultdict(list)
        """What counted to each function, at least for a while."""
        self.files: dict[int, Module] = {}
        """The files of modules."""

    def read(self) -> Profile:
        parts = [self._module(place, module) for place, module in enumerate(self.flow.modules)]
        rows = self.flow.rows.profile(parts)
        offsets = [function.offset for function in self.functions]
        self.entries = rows.entries(offsets)
        found = Profile(
            command=self.flow.command,
            modules=tuple(
                ProfiledModule(module.path, module.build_id, module.bias)
                for module in self.flow.modules
            ),
            functions=tuple(self.functions),
            blocks=profiled_blocks(rows),
            edges=edges_of(rows),
            problems=tuple(self.problems),
        )
        self._fold_cold_parts()
        self._fold_fragments(rows.ways(offsets))
        self._fold_stubs()
        return found.folded(self.wholes)

    def _module(
        self, place: int, recorded: CodeModule
    ) -> tuple[_native.ModuleSymbols | None, Sequence[int]]:
        """The file of a module, and the function of each of its blocks."""
        if not recorded.blocks:
            return None, ()
        module = self._opened(recorded)
        indexes: Sequence[int | None] = [None] * len(recorded.blocks)
        if module is not None:
            self.files[place] = module
            indexes = self._contained(place, module.symbols)
        numbers = self._functions(place, indexes, recorded.blocks[0].offset)
        symbols = module.symbols if module is not None else None
        return symbols, [numbers[index] for index in indexes]

    def _contained(self, place: int, symbols: _native.ModuleSymbols) -> Sequence[int | None]:
        """The function of each block, by its number in the module.

        Some symbols do not say how long their function is, such as those of the C runtime. To these
        belongs what follows them, if control has gone there from them without a call.
        """
        offsets, ends = self.flow.rows.extents(place)
        found = symbols.containing(offsets)
        missing = [number for number, index in enumerate(found) if index is None]
        sources: dict[int, set[int]] = {offsets[number]: set() for number in missing}
        for target, source in self.flow.rows.ways_to(place, set(sources)):
            sources[target].add(source)
        indexes = symbols.endless_before([offsets[number] for number in missing])
        for number, index in zip(missing, indexes, strict=True):
            if index is None:
                continue
            origins = {bisect_right(ends, source) for source in sources[offsets[number]]}
            if number and ends[number - 1] == offsets[number]:
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
        if place in self.files:
            module = self.files[place]
            symbols = module.symbols
            local_numbers = symbols.local_numbers(wanted)
            known = zip(
                wanted, symbols.rows(wanted), symbols.sources(wanted), local_numbers, strict=True
            )
            for index, row, source, local_number in known:
                name, demangled, offset, size, kind, binding, visibility, origin, aliases = row
                numbers[index] = len(self.functions)
                self.found[len(self.functions)] = Function(
                    *(module, name, offset, size, demangled, kind),
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
                        local_number=local_number,
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

    def _fold_fragments(self, ways: Iterable[tuple[int, int, bool, bool, int]]) -> None:
        """The same for parts that have no name any more, which tell by how they are reached.

        They are never called, they are jumped to from one function only, and they jump back into
        the midst of it.
        """
        entered = list(self.entries)
        reached_from: dict[int, set[int | None]] = defaultdict(set)
        back: set[tuple[int, int]] = set()
        for source, target, is_entry, is_call, count in ways:
            if is_entry:
                entered[target] -= count
            if is_call:
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
        choosing = {place for place, names in self.chosen_at_start.items() if name in names}
        candidates = [
            number
            for number, function in self.found.items()
            if self.functions[number].module in choosing
            and self.entries[number]
            and any(one.startswith(f"__{name}_") for one in (function.name, *function.aliases))
        ]
        return candidates if len(candidates) == 1 else []

    @cached_property
    def chosen_at_start(self) -> dict[int, set[str]]:
        """The names in each module that stand for a function which is chosen at start-up."""
        return {
            place: set(module.symbols.chosen_at_start()) for place, module in self.files.items()
        }

    def _fold(self, part: int, whole: int) -> None:
        """Let a function count to another, or to what that counts to."""
        root = self.wholes.get(whole, whole)
        if root == part:
            return
        moved = [part, *(one for one in self.parts.pop(part, ()) if self.wholes[one] == part)]
        self.wholes.update(dict.fromkeys(moved, root))
        self.parts[root] += moved
