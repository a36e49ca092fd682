"""What calls pass on to callers, worked out by hand."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.tools.callgraph import INDIRECT, SMALL, CallGraph, apportion

MAIN, PARSE, READ, SORT = range(4)


def graph() -> CallGraph:
    """A program that parses, sorts, and reads in both."""
    costs = [10, 100, 60, 40]
    calls = {
        (INDIRECT, MAIN): 1,
        (MAIN, PARSE): 2,
        (MAIN, SORT): 1,
        (PARSE, READ): 3,
        (SORT, READ): 1,
        (SORT, SORT): 7,
    }
    return CallGraph(costs, calls)


def test_a_call_costs_as_much_as_any_other_of_that_function() -> None:
    found = graph()
    assert found.inclusive == [210, 145, 60, 55]
    assert found.share(PARSE, READ) == 45
    assert found.share(SORT, READ) == 15


def test_a_function_that_calls_itself_passes_nothing_on_to_itself() -> None:
    found = graph()
    assert found.share(SORT, SORT) == 0
    assert found.cycles == []


def test_the_stacks_add_up() -> None:
    stacks = {stack.frames: stack.cost for stack in graph().stacks()}
    assert stacks == {
        (INDIRECT, MAIN): 10,
        (INDIRECT, MAIN, PARSE): 100,
        (INDIRECT, MAIN, PARSE, READ): 45,
        (INDIRECT, MAIN, SORT): 40,
        (INDIRECT, MAIN, SORT, READ): 15,
    }


def test_functions_that_call_each_other_count_as_one() -> None:
    # 0 calls 1; 1 and 2 call each other; 2 calls 3, and so does 0.
    calls = {(INDIRECT, 0): 1, (0, 1): 1, (1, 2): 5, (2, 1): 4, (2, 3): 3, (0, 3): 1}
    found = CallGraph([1, 20, 30, 40], calls)
    assert found.cycles == [(1, 2)]
    assert found.cycle_number(1) == found.cycle_number(2) == 0
    assert found.cycle_number(0) is None
    assert found.inclusive_of_cycle(0) == 80
    assert found.inclusive == [91, 20, 60, 40]
    stacks = {stack.frames: stack.cost for stack in found.stacks()}
    [cycle] = {frame for frames in stacks for frame in frames if found.cycle_of(frame)}
    assert found.cycle_of(cycle) == (1, 2)
    assert stacks == {
        (INDIRECT, 0): 1,
        (INDIRECT, 0, 3): 10,
        (INDIRECT, 0, cycle, 1): 20,
        (INDIRECT, 0, cycle, 2): 30,
        (INDIRECT, 0, cycle, 2, 3): 30,
    }


def test_what_ran_before_anybody_looked_has_no_caller() -> None:
    found = CallGraph([10, 20], {(0, 1): 2})
    assert found.inclusive == [30, 20]
    assert {stack.frames: stack.cost for stack in found.stacks()} == {(0,): 10, (0, 1): 20}


def test_stacks_that_are_too_many_are_put_together() -> None:
    # A ladder has as many ways as there are numbers of so many bits.
    costs = [1000] * 41
    calls = {(INDIRECT, 0): 1}
    for step in range(0, 40, 2):
        calls |= {(step, step + 1): 1, (step, step + 2): 1, (step + 1, step + 2): 1}
    found = CallGraph(costs, calls)
    stacks = found.stacks(most=50)
    assert 50 <= len(stacks) <= 50 + 41
    assert sum(stack.cost for stack in stacks) == sum(costs)
    assert any(stack.frames[0] == SMALL for stack in stacks)


def test_calls_may_go_very_deep() -> None:
    depth = 5000
    calls = {(INDIRECT, 0): 1} | {(place, place + 1): 1 for place in range(depth - 1)}
    assert CallGraph([1] * depth, calls).inclusive[0] == depth


@given(st.integers(0, 2**60), st.lists(st.floats(0, 1e12), min_size=1, max_size=20))
def test_whole_parts_add_up(whole: int, weights: list[float]) -> None:
    parts = apportion(whole, weights)
    assert sum(parts) == (whole if sum(weights) else 0)
    assert all(part >= 0 for part in parts)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost(seed: int) -> None:
    """However functions call each other, stacks say the same as what calls pass on."""
    chance = random.Random(seed)
    count = chance.randrange(1, 30)
    costs = [chance.randrange(0, 10_000) for _ in range(count)]
    calls = {
        (chance.randrange(-1, count), chance.randrange(count)): chance.randrange(1, 50)
        for _ in range(chance.randrange(60))
    }
    found = CallGraph(costs, calls)
    stacks = found.stacks()
    by_function = [0] * count
    for stack in stacks:
        by_function[stack.frames[-1]] += stack.cost
    assert by_function == costs
    for place in range(count):
        if found.cycle_number(place) is None:
            whole = sum(stack.cost for stack in stacks if place in stack.frames)
            assert whole == pytest.approx(found.inclusive[place], abs=len(stacks))
