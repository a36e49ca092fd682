"""What was executed between two moments, from what had been counted at each."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from weft.model.flow import Block, CodeModule, Edge, Flow

__all__ = ["between"]


def between(before: Flow, after: Flow) -> Flow:
    """Return what was executed after the first of two flows of a program, and until the second.

    Both must be counted. The result says whether, not how often: each count is 1.
    """
    known = {(module.path, module.build_id): module for module in before.modules}
    numbers = {(module.path, module.build_id): place for place, module in enumerate(before.modules)}
    counts = {edge._replace(count=0): edge.count for edge in before.edges}
    pieces = [
        _Counted(known.get((module.path, module.build_id), replace(module, blocks=())))
        for module in after.modules
    ]
    modules = tuple(
        replace(module, blocks=tuple(_executed(module, piece)))
        for module, piece in zip(after.modules, pieces, strict=True)
    )
    old = [numbers.get((module.path, module.build_id)) for module in after.modules]

    def count_before(edge: Edge) -> int:
        source, target = old[edge.module], old[edge.to_module]
        if source is None or target is None:
            return 0
        key = edge._replace(module=source, to_module=target, count=0)
        if key in counts:
            return counts[key]
        # A block that is cut now: control went on within it as often as it was executed.
        if edge.kind == "fall" and edge.module == edge.to_module:
            return pieces[edge.module].within(edge.source, edge.target)
        return 0

    edges = tuple(edge._replace(count=1) for edge in after.edges if edge.count > count_before(edge))
    return replace(after, modules=modules, edges=edges, is_counted=False)


def _executed(module: CodeModule, before: _Counted) -> list[Block]:
    return [
        block._replace(count=1) for block in module.blocks if block.count > before.at(block.offset)
    ]


class _Counted:
    """How often the code of a module had been executed, by its offsets."""

    def __init__(self, module: CodeModule) -> None:
        self._blocks = module.blocks
        self._starts = [block.offset for block in module.blocks]

    def _covering(self, offset: int) -> Block | None:
        place = bisect_right(self._starts, offset) - 1
        if place < 0:
            return None
        block = self._blocks[place]
        return block if offset < block.offset + block.size else None

    def at(self, offset: int) -> int:
        block = self._covering(offset)
        return block.count if block else 0

    def within(self, source: int, target: int) -> int:
        """How often control went on from one instruction to another within a block."""
        block = self._covering(source)
        return block.count if block and block is self._covering(target) else 0
