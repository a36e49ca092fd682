"""How counts of the same file or function add up: of several runs, and of several modules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from weft.tools.coverage.parts import Branch, FileCoverage, FunctionCoverage

__all__ = ["Add", "adder", "merged_file", "shared_file", "shared_functions"]

Add: TypeAlias = Callable[[Iterable[int]], int]
"""What becomes of several counts of the same thing."""


def adder(is_counted: bool) -> Add:
    """Return what adds counts up, or says whether one of them is not 0."""
    return sum if is_counted else lambda counts: int(any(counts))


def merged_file(path: str, files: Sequence[FileCoverage], add: Add) -> FileCoverage:
    """Return a file of one module as several runs have executed it."""
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


def shared_file(path: str, files: Sequence[FileCoverage], add: Add) -> FileCoverage:
    """A file that is compiled into several modules, where its branches are at other offsets."""
    alike = []
    for file in files:
        places: Counter[int] = Counter()
        branches = []
        for branch in file.branches:
            places[branch.line] += 1
            branches.append(replace(branch, offset=places[branch.line]))
        alike.append(replace(file, branches=tuple(branches)))
    return files[0] if len(files) == 1 else merged_file(path, alike, add)


def shared_functions(functions: Iterable[FunctionCoverage], add: Add) -> list[FunctionCoverage]:
    """Each function once: instances of a template, and copies in several modules, are one."""
    same: dict[tuple[int, str], list[FunctionCoverage]] = defaultdict(list)
    for function in functions:
        same[function.line or 0, function.name].append(function)
    return [
        replace(each[0], count=add(function.count for function in each))
        for _, each in sorted(same.items())
    ]
