"""What only one of two runs has executed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from weft.tools.coverage.parts import FunctionCoverage
from weft.tools.coverage.result import Coverage

__all__ = ["Change", "diff"]


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
