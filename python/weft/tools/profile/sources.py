"""What is read of a module for its profile: code, source lines, and all its functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from weft.model.flow import Block
from weft.model.program import Module
from weft.tools.profile.result import SourceLine

if TYPE_CHECKING:
    from weft._native import _FunctionRow

__all__ = ["Table", "written"]


def written(
    module: Module | None, blocks: Sequence[Block]
) -> list[tuple[bytes, tuple[SourceLine, ...]]]:
    """The bytes of blocks, of those that are what was executed, and where they are written."""
    if module is None:
        return [(b"", ())] * len(blocks)
    found = module.symbols.written([block[:3] for block in blocks])
    return [(code, tuple(map(SourceLine._make, lines))) for code, lines in found]


class Table:
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
