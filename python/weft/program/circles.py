"""Who waits for whom: the threads that can never go on, and the circles among them.

Nothing here looks at a process. A thread can never go on if it waits for something that only others
can do, and none of these can ever go on. That is found by assuming it of all threads that wait so,
and taking back what does not hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, TypeAlias

from weft.model.waits import Holder, Wait, WaitKind

__all__ = ["Members", "Node", "behind", "circles", "is_held", "stuck"]

Node: TypeAlias = "tuple[int, int]"
"""A process and a thread of it."""
Members: TypeAlias = "Mapping[int, Collection[int]]"
"""All threads of processes."""

_OWNED: Final[tuple[WaitKind, ...]] = ("lock", "read-write lock")
"""What one thread holds: that another waits for it for a limited time is no less of a circle."""


def is_held(wait: Wait | None) -> bool:
    """Whether a wait goes on until those that are known to hold something let it go.

    For a lock also until a time has passed: the threads then have still come to wait in a circle.
    """
    if wait is None or not wait.holders:
        return False
    return wait.only_holders or (wait.kind in _OWNED and wait.timeout is not None)


def stuck(
    waits: Mapping[Node, Wait | None], members: Members, unknown: Collection[int] = ()
) -> set[Node]:
    """The threads that none who can go on will ever wake.

    Of processes that are ``unknown``, it is assumed that they cannot go on.
    """
    found = {node for node, wait in waits.items() if is_held(wait)}

    def goes_on(holder: Holder) -> bool:
        if holder.pid in unknown:
            return False
        if holder.tid is not None:
            return (holder.pid, holder.tid) not in found
        threads = members.get(holder.pid, ())
        return not threads or any((holder.pid, tid) not in found for tid in threads)

    while True:
        free = {
            node
            for node in found
            if (wait := waits[node]) is not None and any(map(goes_on, wait.holders))
        }
        if not free:
            return found
        found -= free


def _next(node: Node, waits: Mapping[Node, Wait | None], members: Members) -> Iterator[Node]:
    wait = waits.get(node)
    for holder in wait.holders if wait is not None else ():
        if holder.tid is not None:
            yield holder.pid, holder.tid
        else:
            for tid in sorted(members.get(holder.pid, ())):
                yield holder.pid, tid


def circles(
    found: Collection[Node], waits: Mapping[Node, Wait | None], members: Members
) -> list[list[Node]]:
    """The circles among threads that are stuck.

    Where each waits for one other, it is for the next in the list, and the last for the first.
    """
    after = {
        node: [one for one in dict.fromkeys(_next(node, waits, members)) if one in found]
        for node in sorted(found)
    }
    rings = []
    for ring in _components(after):
        if len(ring) == 1 and ring[0] not in after[ring[0]]:
            continue
        rings.append(_in_order(sorted(ring), after))
    return sorted(rings)


def _in_order(ring: list[Node], after: Mapping[Node, list[Node]]) -> list[Node]:
    inside = {node: [one for one in after[node] if one in ring] for node in ring}
    if any(len(ones) != 1 for ones in inside.values()):
        return ring
    ordered = [ring[0]]
    while (node := inside[ordered[-1]][0]) != ring[0]:
        ordered.append(node)
    return ordered


def _components(after: Mapping[Node, list[Node]]) -> Iterator[list[Node]]:
    """The sets of nodes that all lead to each other: Tarjan's way, without recursion."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    path: list[Node] = []
    on_path: set[Node] = set()
    for start in after:
        if start in index:
            continue
        work = [(start, iter(after[start]))]
        index[start] = low[start] = len(index)
        path.append(start)
        on_path.add(start)
        while work:
            node, rest = work[-1]
            for one in rest:
                if one not in index:
                    index[one] = low[one] = len(index)
                    path.append(one)
                    on_path.add(one)
                    work.append((one, iter(after[one])))
                    break
                if one in on_path:
                    low[node] = min(low[node], index[one])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = path.index(node)
                    ring, path = path[at:], path[:at]
                    on_path.difference_update(ring)
                    yield ring


def behind(
    ring: Collection[Node],
    found: Collection[Node],
    waits: Mapping[Node, Wait | None],
    members: Members,
) -> list[Node]:
    """The threads that wait for a circle without being in it, also for others who do."""
    reached = set(ring)
    while True:
        more = {
            node
            for node in found
            if node not in reached and any(one in reached for one in _next(node, waits, members))
        }
        if not more:
            return sorted(reached - set(ring))
        reached |= more
