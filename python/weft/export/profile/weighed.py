"""A profile as stacks with weights, for the formats that have them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from weft.model.weighed import (
    CodeModule,
    WeighedFrame,
    WeighedFunction,
    WeighedStack,
    WeighedStacks,
)
from weft.tools.callgraph import Stack, apportion
from weft.tools.profile import Profile


def by_function(profile: Profile) -> WeighedStacks:
    """The stacks of calls, each with the instructions that its last function executed itself."""
    return _Reader(profile).by_function()


def by_line(profile: Profile) -> WeighedStacks:
    """The same with a stack for each line of the last function, exact for each line."""
    return _Reader(profile).by_line()


class _Reader:
    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._modules = [self._module(number) for number in range(len(profile.modules))]
        self._functions: dict[int, WeighedFunction] = {}

    def by_function(self) -> WeighedStacks:
        stacks = self._profile.graph.stacks()
        frames = ((tuple(map(self._frame, stack.frames)), stack.cost) for stack in stacks)
        return self._weighed(WeighedStack(*one) for one in frames)

    def by_line(self) -> WeighedStacks:
        stacks: dict[int, list[Stack]] = defaultdict(list)
        for stack in self._profile.graph.stacks():
            stacks[stack.frames[-1]].append(stack)
        lines: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
        for (function, file, line), count in self._profile.line_counts.items():
            lines[function].append((file, line, count))
        found = []
        for function, inside in stacks.items():
            for file, line, count in lines[function]:
                last = self._frame(function, file, line)
                parts = apportion(count, [stack.cost for stack in inside])
                for stack, part in zip(inside, parts, strict=True):
                    if part:
                        callers = map(self._frame, stack.frames[:-1])
                        found.append(WeighedStack((*callers, last), part))
        return self._weighed(iter(found))

    def _weighed(self, stacks: Iterator[WeighedStack]) -> WeighedStacks:
        problems = self._profile.problems
        return WeighedStacks(
            title=" ".join(self._profile.command),
            about="where the instructions go",
            kind="instructions",
            unit="instructions",
            meaning="the width of a box is exact for what a function executes itself, the rest is "
            "attributed by numbers of calls",
            stacks=tuple(stacks),
            modules=tuple(self._modules),
            status="incomplete" if problems else "exact",
            notes=problems,
        )

    def _frame(self, number: int, file: str = "", line: int = 0) -> WeighedFrame:
        function = self._functions.get(number) or self._function(number)
        address = 0
        if number >= 0:
            known = self._profile.functions[number]
            address = self._profile.modules[known.module].bias + known.offset
        return WeighedFrame(function, address, file, line)

    def _function(self, number: int) -> WeighedFunction:
        name = self._profile.frame_name(number)
        made = WeighedFunction(name)
        if number >= 0:
            known = self._profile.functions[number]
            module = self._modules[known.module]
            made = WeighedFunction(name, known.name, module, known.file or "", known.line or 0)
        self._functions[number] = made
        return made

    def _module(self, number: int) -> CodeModule:
        module = self._profile.modules[number]
        inside = [
            block
            for block in self._profile.blocks
            if self._profile.functions[block.function].module == number
        ]
        start = min((block.offset for block in inside), default=0)
        end = max((block.offset + block.size for block in inside), default=0)
        return CodeModule(
            module.name, module.path, module.bias + start, module.bias + end, module.build_id or ""
        )
