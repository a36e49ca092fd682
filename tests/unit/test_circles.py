"""Who waits for whom: what can never go on, and what can."""

from __future__ import annotations

import json
import random

from weft.model.thread_stacks import Deadlock, StuckThread
from weft.model.waits import Descriptor, Holder, Wait
from weft.program.circles import Node, behind, circles, stuck


def lock(pid: int, tid: int, timeout: float | None = None) -> Wait:
    holder = Holder(pid, tid, f"thread {tid}")
    return Wait("lock", "a lock", holders=(holder,), only_holders=timeout is None, timeout=timeout)


def pipe(*pids: int, closed: bool = True) -> Wait:
    holders = tuple(Holder(pid, None, f"process {pid}") for pid in pids)
    return Wait("descriptor", "a pipe", holders=holders, only_holders=closed)


def members(waits: dict[Node, Wait | None]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for pid, tid in waits:
        found.setdefault(pid, []).append(tid)
    return found


def rings(waits: dict[Node, Wait | None]) -> list[list[Node]]:
    threads = members(waits)
    return circles(stuck(waits, threads), waits, threads)


def test_two_and_three_threads() -> None:
    assert rings({(1, 1): lock(1, 2), (1, 2): lock(1, 1)}) == [[(1, 1), (1, 2)]]
    waits: dict[Node, Wait | None] = {
        (1, 1): lock(1, 3),
        (1, 2): lock(1, 1),
        (1, 3): lock(1, 2),
        (1, 4): lock(1, 1),
        (1, 5): lock(1, 4),
        (1, 6): None,
    }
    (ring,) = rings(waits)
    assert ring == [(1, 1), (1, 3), (1, 2)]
    found = stuck(waits, members(waits))
    assert behind(ring, found, waits, members(waits)) == [(1, 4), (1, 5)]


def test_a_thread_and_its_own_lock() -> None:
    assert rings({(1, 1): lock(1, 1), (1, 2): None}) == [[(1, 1)]]


def test_a_chain_that_ends_at_one_that_runs_is_none() -> None:
    assert rings({(1, 1): lock(1, 2), (1, 2): lock(1, 3), (1, 3): None}) == []


def test_a_holder_that_is_not_known_may_go_on() -> None:
    assert rings({(1, 1): lock(2, 2)}) == []
    waits: dict[Node, Wait | None] = {(1, 1): pipe(2)}
    assert stuck(waits, {1: [1]}) == set()
    assert stuck(waits, {1: [1]}, unknown={2}) == {(1, 1)}


def test_a_lock_with_a_time_limit_is_still_a_circle() -> None:
    assert rings({(1, 1): lock(1, 2, 5.0), (1, 2): lock(1, 1)}) == [[(1, 1), (1, 2)]]


def test_processes_are_stuck_if_all_their_threads_are() -> None:
    waits: dict[Node, Wait | None] = {(1, 1): pipe(2), (2, 2): pipe(1)}
    assert rings(waits) == [[(1, 1), (2, 2)]]
    waits[2, 3] = None
    assert rings(waits) == []
    waits[2, 3] = lock(2, 2)
    assert rings(waits) == [[(1, 1), (2, 2), (2, 3)]]


def test_one_other_that_has_the_end_open_is_enough() -> None:
    waits: dict[Node, Wait | None] = {(1, 1): pipe(2, 3), (2, 2): pipe(1), (3, 3): None}
    assert rings(waits) == []


def test_what_others_too_can_end_is_no_part_of_it() -> None:
    assert rings({(1, 1): pipe(2), (2, 2): pipe(1, closed=False)}) == []


def test_two_circles_are_two() -> None:
    waits: dict[Node, Wait | None] = {
        (1, 1): lock(1, 2),
        (1, 2): lock(1, 1),
        (1, 3): lock(1, 4),
        (1, 4): lock(1, 3),
    }
    assert rings(waits) == [[(1, 1), (1, 2)], [(1, 3), (1, 4)]]


def test_locks_at_random_as_following_them_says() -> None:
    """Each thread waits for one other at most: then following it ends at one that runs, or not."""
    chance = random.Random(19)
    for _ in range(300):
        size = chance.randrange(1, 40)
        ways = [chance.choice([None, chance.randrange(size)]) for _ in range(size)]
        waits: dict[Node, Wait | None] = {
            (1, tid): None if other is None else lock(1, other) for tid, other in enumerate(ways)
        }

        def end(tid: int, ways: list[int | None] = ways) -> int | None:
            at: int | None = tid
            for _ in range(len(ways) + 1):
                if at is None:
                    return None
                at = ways[at]
            return at

        never = {(1, tid) for tid in range(size) if end(tid) is not None}
        assert stuck(waits, members(waits)) == never
        in_rings = {(1, at) for tid in range(size) if (at := end(tid)) is not None}
        found = {node for ring in rings(waits) for node in ring}
        assert in_rings <= found <= never
        for ring in rings(waits):
            assert [ways[tid] for _, tid in ring] == [tid for _, tid in (*ring[1:], ring[0])]


def test_a_long_chain_needs_no_deep_recursion() -> None:
    waits: dict[Node, Wait | None] = {(1, tid): lock(1, (tid + 1) % 5000) for tid in range(5000)}
    (ring,) = rings(waits)
    assert len(ring) == 5000


def test_as_json() -> None:
    watched = Descriptor(4, "pipe", "pipe 7", 7)
    wait = Wait(
        "descriptor", "x", descriptors=(Descriptor(3, "epoll", "epoll", watches=(watched,)),)
    )
    found = json.loads(json.dumps(wait.to_json()))
    assert list(found) == [
        *("kind", "text", "address", "symbol", "descriptors", "timeout", "holders"),
        *("only_holders", "doubt"),
    ]
    assert found["descriptors"][0]["watches"][0]["inode"] == 7
    thread = StuckThread(1, 1, "a", "b", lock(1, 1), None)
    deadlock = Deadlock("certain", (thread,), behind=((1, 2),))
    whole = json.loads(json.dumps(deadlock.to_json()))
    assert whole["threads"][0]["waits_for"]["holders"] == [
        {"pid": 1, "tid": 1, "name": "thread 1", "sure": "sure"}
    ]
    assert whole["behind"] == [{"pid": 1, "tid": 2}]
