"""What was executed between two moments."""

from __future__ import annotations

from weft.model.flow import Block, CodeModule, Edge, Flow
from weft.tools.coverage.between import between


def module(path: str, *blocks: tuple[int, int, int]) -> CodeModule:
    """A module whose blocks are given by offset, size and count."""
    found = tuple(Block(offset, size, 1, count) for offset, size, count in blocks)
    return CodeModule(path, None, 0, 0, 0x1000, found)


def flow(modules: list[CodeModule], edges: list[Edge] | None = None) -> Flow:
    return Flow(tuple(modules), tuple(edges or ()), True, ("x",))


def executed(what: Flow) -> list[tuple[str, int]]:
    return [(one.path, block.offset) for one in what.modules for block in one.blocks]


def test_only_what_counts_more_was_executed() -> None:
    before = flow([module("/a", (0, 4, 3), (4, 4, 1))], [Edge(0, 3, 0, 4, "fall", 1)])
    after = flow(
        [module("/a", (0, 4, 3), (4, 4, 2), (8, 4, 1))],
        [Edge(0, 3, 0, 4, "fall", 1), Edge(0, 7, 0, 8, "taken", 1)],
    )
    found = between(before, after)
    assert executed(found) == [("/a", 4), ("/a", 8)]
    assert found.edges == (Edge(0, 7, 0, 8, "taken", 1),)
    assert not found.is_counted
    assert {block.count for one in found.modules for block in one.blocks} == {1}


def test_nothing_is_executed_while_nothing_runs() -> None:
    same = flow([module("/a", (0, 4, 3))], [Edge(0, 3, 0, 0, "taken", 2)])
    assert executed(between(same, same)) == [] and between(same, same).edges == ()


def test_everything_is_new_at_first() -> None:
    after = flow([module("/a", (0, 4, 3))], [Edge(0, 3, 0, 0, "taken", 2)])
    found = between(flow([]), after)
    assert executed(found) == [("/a", 0)] and len(found.edges) == 1


def test_modules_that_are_loaded_between_others_are_told_apart() -> None:
    before = flow([module("/b", (0, 4, 3))], [Edge(0, 3, 0, 0, "taken", 2)])
    after = flow(
        [module("/a", (0, 4, 3)), module("/b", (0, 4, 4))],
        [Edge(0, 3, 0, 0, "taken", 2), Edge(1, 3, 1, 0, "taken", 2)],
    )
    found = between(before, after)
    assert executed(found) == [("/a", 0), ("/b", 0)]
    assert found.edges == (Edge(0, 3, 0, 0, "taken", 1),)


def test_a_block_that_is_cut_is_compared_with_what_it_was_part_of() -> None:
    """Something has jumped into the middle of a block that had been executed five times."""
    before = flow([module("/a", (0, 8, 5), (20, 4, 1))])
    after = flow(
        [module("/a", (0, 4, 5), (4, 4, 6), (20, 4, 2))],
        [Edge(0, 3, 0, 4, "fall", 5), Edge(0, 23, 0, 4, "jump", 1)],
    )
    found = between(before, after)
    assert executed(found) == [("/a", 4), ("/a", 20)]
    # It did not come from the first half.
    assert found.edges == (Edge(0, 23, 0, 4, "jump", 1),)
    ran_through = flow(
        [module("/a", (0, 4, 6), (4, 4, 7), (20, 4, 2))],
        [Edge(0, 3, 0, 4, "fall", 6), Edge(0, 23, 0, 4, "jump", 1)],
    )
    assert len(between(before, ran_through).edges) == 2
