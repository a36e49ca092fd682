"""Which contexts, such as tests, have executed a line or a function."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias

from weft.errors import InvalidArgument
from weft.tools.coverage.parts import Context, Executed, FunctionCoverage, ModuleCoverage
from weft.tools.coverage.result import Coverage

__all__ = [
    "Place",
    "contexts_at",
    "extent",
    "function_contexts",
    "function_key",
    "in_context",
    "line_contexts",
    "merged_contexts",
    "only_in",
]

FunctionKey: TypeAlias = tuple[str, int | None, str]
"""A function, whichever modules have it."""

_NEAR = 3
"""How many names are suggested."""


def in_context(coverage: Coverage, name: str) -> Coverage:
    """Put a name on all that was executed; what had a name loses it."""
    executed = tuple(Executed.of(module) for module in coverage.modules)
    return replace(coverage, contexts=(Context(name, executed, coverage.flow.lost),))


def merged_contexts(
    runs: Sequence[Coverage], places: Sequence[Sequence[int]], modules: int
) -> tuple[Context, ...]:
    """Return the contexts of several runs, those of the same name as one.

    ``places`` has for each run the numbers that its modules have among all ``modules``. A run
    without contexts is part of the one without a name.
    """
    if not any(run.contexts for run in runs):
        return ()
    functions: dict[str, list[set[int]]] = defaultdict(lambda: [set() for _ in range(modules)])
    lines: dict[str, list[dict[str, set[int]]]] = defaultdict(
        lambda: [defaultdict(set) for _ in range(modules)]
    )
    lost: dict[str, dict[str, None]] = defaultdict(dict)
    for run, numbers in zip(runs, places, strict=True):
        for context in (run if run.contexts else in_context(run, "")).contexts:
            lost[context.name].update(dict.fromkeys(context.lost))
            for number, executed in zip(numbers, context.modules, strict=True):
                functions[context.name][number] |= executed.functions
                for path, found in executed.lines.items():
                    lines[context.name][number][path] |= found
    return tuple(
        Context(
            name,
            tuple(
                Executed(
                    frozenset(functions[name][number]),
                    {path: frozenset(found) for path, found in lines[name][number].items()},
                )
                for number in range(modules)
            ),
            tuple(lost[name]),
        )
        for name in lost
    )


def line_contexts(coverage: Coverage) -> dict[str, dict[int, list[str]]]:
    """Return for each line of each source file the contexts that have executed it."""
    found: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for context in coverage.contexts:
        for path, lines in _lines(context).items():
            for line in lines:
                found[path][line].append(context.shown_name)
    return found


def function_contexts(coverage: Coverage) -> dict[FunctionKey, list[str]]:
    """Return for each function that is looked at in detail the contexts that have executed it."""
    found: dict[FunctionKey, list[str]] = defaultdict(list)
    for context in coverage.contexts:
        keys = {
            function_key(module, function)
            for module, executed in zip(coverage.modules, context.modules, strict=True)
            if module.is_detailed
            for function in module.functions
            if function.offset in executed.functions
        }
        for key in keys:
            found[key].append(context.shown_name)
    return found


def function_key(module: ModuleCoverage, function: FunctionCoverage) -> FunctionKey:
    """Return what makes functions of several modules the same."""
    if function.file is None:
        return module.path, function.offset, function.name
    return function.file, function.line, function.name


def only_in(coverage: Coverage) -> dict[str, int]:
    """Return how many lines each context has executed that no other has.

    If no lines are known, it is functions.
    """
    counts = {context.shown_name: 0 for context in coverage.contexts}
    by_line = [names for lines in line_contexts(coverage).values() for names in lines.values()]
    for names in by_line or function_contexts(coverage).values():
        if len(names) == 1:
            counts[names[0]] += 1
    return counts


def extent(coverage: Coverage, context: Context) -> tuple[int, int]:
    """Return how many functions and lines of what is looked at in detail a context has executed."""
    functions = sum(
        len(executed.functions)
        for module, executed in zip(coverage.modules, context.modules, strict=True)
        if module.is_detailed
    )
    return functions, sum(map(len, _lines(context).values()))


def _lines(context: Context) -> dict[str, set[int]]:
    """The lines of each file, whichever modules they are in."""
    found: dict[str, set[int]] = defaultdict(set)
    for executed in context.modules:
        for path, lines in executed.lines.items():
            found[path] |= lines
    return found


@dataclass(frozen=True)
class Place:
    """A line or a function, and who has executed it."""

    file: str
    """The source file, or the module of a function that has none."""
    line: int | None
    """The line, or where the function is declared."""
    function: str | None
    """The function, if it is not about a line."""
    count: int
    """How often it was executed; 1 if it was, and that was not counted."""
    contexts: tuple[Context, ...]
    """Those that have executed it."""


def contexts_at(coverage: Coverage, where: str) -> list[Place]:
    """Return which contexts have executed a line ``FILE:LINE``, or a function.

    FILE may be the end of a path, and a function a pattern such as ``parse_*``. If there are
    several, all are returned.
    """
    if not coverage.contexts:
        raise InvalidArgument(
            "there are no contexts in this coverage",
            "no name was put on what was executed",
            "record with `weft cov --context NAME`, or with `pytest --weft-cov`",
        )
    file, _, line = where.rpartition(":")
    if file and line.isascii() and line.isdigit():
        return _at_line(coverage, file, int(line))
    return _at_functions(coverage, where)


def _at_line(coverage: Coverage, name: str, line: int) -> list[Place]:
    files = {file.path: file for file, _ in coverage.files() if file.lines}
    full = str(Path(name).resolve())
    inside = "/" + name.removeprefix("./")
    chosen = [path for path in files if path in (name, full)]
    chosen = chosen or [path for path in files if f"/{path}".endswith(inside)]
    if not chosen:
        near = get_close_matches(Path(name).name, [Path(path).name for path in files], _NEAR)
        raise InvalidArgument(
            f"no lines of {name} are known",
            "it is not a source of the modules that were looked at, or they have no debug "
            "information",
            f"did you mean {' or '.join(near)}?" if near else "choose modules with --module",
        )
    with_code = [path for path in chosen if line in files[path].lines]
    if not with_code:
        lines = files[chosen[0]].lines
        nearest = min(lines, key=lambda other: (abs(other - line), other))
        raise InvalidArgument(
            f"line {line} of {chosen[0]} has no code",
            advice=f"the nearest that has is line {nearest}",
        )
    return [
        Place(
            path,
            line,
            None,
            files[path].lines[line],
            tuple(one for one in coverage.contexts if line in _lines(one).get(path, ())),
        )
        for path in with_code
    ]


def _at_functions(coverage: Coverage, name: str) -> list[Place]:
    found: dict[tuple[str, int | None, str], Place] = {}
    for number, path, function in _functions(coverage):
        if not _is_called(function.name, name):
            continue
        key = function.file or path, function.line, function.name
        before = found.get(key)
        known = {context.name for context in before.contexts} if before else set()
        both = tuple(
            context
            for context in coverage.contexts
            if context.name in known or function.offset in context.modules[number].functions
        )
        counts = [function.count, before.count if before else 0]
        count = sum(counts) if coverage.is_counted else max(counts)
        found[key] = Place(*key, count, both)
    if not found:
        names = {_short(function.name) for _, _, function in _functions(coverage)}
        near = get_close_matches(name, sorted(names), _NEAR)
        raise InvalidArgument(
            f"no function is called {name}",
            "of modules that were not looked at in detail only what was executed is known",
            f"did you mean {' or '.join(near)}?" if near else "name a line as FILE:LINE",
        )
    return list(found.values())


def _functions(coverage: Coverage) -> Iterator[tuple[int, str, FunctionCoverage]]:
    for number, module in enumerate(coverage.modules):
        for function in module.functions:
            yield number, module.path, function


def _is_called(name: str, wanted: str) -> bool:
    return wanted in (name, _short(name)) or fnmatchcase(_short(name), wanted)


def _short(name: str) -> str:
    """The name without its parameters: ``parse(char const*)`` is ``parse``."""
    head, parenthesis, _ = name.partition("(")
    return head if parenthesis and head else name
