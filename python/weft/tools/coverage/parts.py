"""What coverage is made of: shares, functions, branches, files and modules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

__all__ = [
    "Branch",
    "Context",
    "Executed",
    "FileCoverage",
    "FunctionCoverage",
    "ModuleCoverage",
    "Share",
]

NO_CONTEXT = "(no context)"
"""What to call the context without a name."""


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
class Executed:
    """What one context has executed of a module."""

    functions: frozenset[int]
    """The offsets of its functions."""
    lines: Mapping[str, frozenset[int]]
    """The lines of each of its source files."""

    @classmethod
    def of(cls, module: ModuleCoverage) -> Executed:
        """Return all that was executed of a module."""
        lines = {
            file.path: frozenset(line for line, count in file.lines.items() if count)
            for file in module.files
        }
        return cls(
            frozenset(function.offset for function in module.functions if function.count),
            {path: found for path, found in lines.items() if found},
        )


@dataclass(frozen=True)
class Context:
    """A name for a part of what was executed, such as that of a test."""

    name: str
    """Empty for what was executed outside of all contexts that have a name."""
    modules: tuple[Executed, ...]
    """What it has executed of each module of the coverage, in their order."""
    lost: tuple[str, ...] = ()
    """What could not be kept, in words: then it may have executed more."""

    @property
    def shown_name(self) -> str:
        """What to call it."""
        return self.name or NO_CONTEXT
