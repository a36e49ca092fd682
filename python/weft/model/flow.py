"""What of a program was executed: its blocks, the ways between them, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from weft import _native
from weft.base.rows import Rows

__all__ = ["NO_FILE", "Block", "CodeModule", "Edge", "EdgeKind", "Flow", "blocks_of", "edges_of"]

EdgeKind = Literal["fall", "taken", "jump", "call"]
"""How control goes on: past a conditional branch (or simply to the next instruction), by a
conditional branch that is taken, by a direct jump, by a direct call."""

NO_FILE = "[generated]"
"""The path of the module that holds code which no file has: what a program has made itself."""


class Block(NamedTuple):
    """Instructions that are executed one after the other, all of them or none."""

    offset: int
    """Its address as the file states it, as for functions; the address in the process for code that
    no file has."""
    size: int
    """Its bytes."""
    instructions: int
    """How many instructions that are."""
    count: int  # type: ignore[assignment] # not the method of tuples
    """How often it was executed; 1 for one that was, if that was not counted."""


class Edge(NamedTuple):
    """A way from one block to another that was taken.

    Where an indirect branch or a return leads is not kept: there are no edges for them.
    """

    module: int
    """The module that it leaves: its place among the modules."""
    source: int
    """The instruction that it leaves: the last one of its block."""
    to_module: int
    """The module that it leads to."""
    target: int
    """The instruction that it leads to: the first one of a block."""
    kind: EdgeKind
    """How control goes this way."""
    count: int  # type: ignore[assignment] # not the method of tuples
    """How often; 1 for one that was taken, if that was not counted."""


@dataclass(frozen=True)
class CodeModule:
    """A file with code, and what was executed of it."""

    path: str
    """The file, as the program has it; :data:`NO_FILE` for code that no file has."""
    build_id: str | None
    """What tells it from others of the same name."""
    bias: int
    """What to add to an offset for the address in the process; the first one, if there were
    several."""
    start: int
    """The lowest offset that was mapped."""
    size: int
    """From there to its end in memory."""
    blocks: Sequence[Block]
    """What was executed, in the order of its offsets. No two overlap, but for code that was
    executed both from the beginning and from the middle of an instruction."""


@dataclass(frozen=True)
class Flow:
    """What of a program was executed."""

    modules: tuple[CodeModule, ...]
    """Where its code is from."""
    edges: Sequence[Edge]
    """The ways that were taken."""
    is_counted: bool
    """Whether the counts say how often; if not, they say that."""
    command: tuple[str, ...]
    """The program, with its arguments."""
    lost: tuple[str, ...] = ()
    """What could not be kept, in words."""
    counters_executed: int = 0
    """How often a counter was executed to learn all this."""

    @cached_property
    def rows(self) -> _native.FlowRows:
        """Its blocks and edges as the compiled core has them."""
        core = self.edges.core if isinstance(self.edges, Rows) else None
        if isinstance(core, _native.FlowRows) and all(
            isinstance(module.blocks, Rows)
            and (module.blocks.core, module.blocks.place) == (core, place)
            for place, module in enumerate(self.modules)
        ):
            return core
        return _native.FlowRows.of([module.blocks for module in self.modules], self.edges)


def blocks_of(core: _native.FlowRows, module: int) -> Rows[Block]:
    """The blocks of a module that the compiled core has."""

    def read(start: int, end: int) -> list[Block]:
        return list(map(Block._make, core.blocks(module, start, end)))

    return Rows(core, module, core.block_count(module), read)


def edges_of(core: _native.FlowRows | _native.ProfileRows) -> Rows[Edge]:
    """The edges that the compiled core has."""

    def read(start: int, end: int) -> list[Edge]:
        return list(map(Edge._make, core.edges(start, end)))

    return Rows(core, 0, core.edge_count(), read)
