"""What of a program was executed: its blocks, the ways between them, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = ["NO_FILE", "Block", "CodeModule", "Edge", "EdgeKind", "Flow"]

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
    blocks: tuple[Block, ...]
    """What was executed, in the order of its offsets. No two overlap, but for code that was
    executed both from the beginning and from the middle of an instruction."""


@dataclass(frozen=True)
class Flow:
    """What of a program was executed."""

    modules: tuple[CodeModule, ...]
    """Where its code is from."""
    edges: tuple[Edge, ...]
    """The ways that were taken."""
    is_counted: bool
    """Whether the counts say how often; if not, they say that."""
    command: tuple[str, ...]
    """The program, with its arguments."""
    lost: tuple[str, ...] = ()
    """What could not be kept, in words."""
    counters_executed: int = 0
    """How often a counter was executed to learn all this."""
