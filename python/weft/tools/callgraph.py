"""Who called whom how often, and what of a function's cost that makes a caller's.

How often a function was called from where is known; what each of these calls cost is not. So a
call is taken to cost as much as any other call of that function, which is what gprof does. A group
of functions that call each other, a *cycle*, counts as one: calls within it pass nothing on.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = ["INDIRECT", "SMALL", "CallGraph", "Stack", "apportion"]

INDIRECT = -1
"""In place of a caller: an indirect branch, or the start of the program."""
SMALL = -2
"""At the bottom of a stack: what is in stacks that are too small to be listed."""
_FIRST_CYCLE = -3
_MOST_STACKS = 20_000


@dataclass(frozen=True, slots=True)
class Stack:
    """Functions that called each other, the outermost first, and what the last one cost itself."""

    frames: tuple[int, ...]
    """Numbers of functions, and those that :meth:`CallGraph.cycle_of` knows."""
    cost: int


class CallGraph:
    """Functions, numbered from 0, with their own cost and the calls between them."""

    def __init__(self, costs: Sequence[int], calls: Mapping[tuple[int, int], int]) -> None:
        """Take what each function cost itself, and how often one has called another.

        A caller may be :data:`INDIRECT`.
        """
        self.costs = costs
        self.calls = {pair: count for pair, count in calls.items() if count > 0}
        self._callees: list[list[tuple[int, int]]] = [[] for _ in costs]
        for (caller, callee), count in self.calls.items():
            if caller != INDIRECT:
                self._callees[caller].append((callee, count))

    @cached_property
    def cycles(self) -> list[tuple[int, ...]]:
        """The groups of several functions that call each other."""
        return [tuple(sorted(group)) for group in self._groups if len(group) > 1]

    def cycle_of(self, frame: int) -> tuple[int, ...] | None:
        """The functions of a cycle, if a frame of a stack stands for one."""
        number = _FIRST_CYCLE - frame
        return self.cycles[number] if number >= 0 else None

    def cycle_number(self, function: int) -> int | None:
        """The place among the cycles of the one that a function is in."""
        return self._cycle_numbers.get(function)

    @cached_property
    def inclusive(self) -> list[float]:
        """What each function cost with all that it called, as far as that is not in its cycle."""
        return [
            cost + sum(self.share(function, callee) for callee, _ in self._callees[function])
            for function, cost in enumerate(self.costs)
        ]

    def inclusive_of_cycle(self, number: int) -> float:
        """What a cycle cost, with all that its functions called."""
        return self._totals[self._group_of[self.cycles[number][0]]]

    def share(self, caller: int, callee: int) -> float:
        """What of the cost of a function, or of its cycle, is due to the calls of one caller."""
        group = self._group_of[callee]
        if caller != INDIRECT and self._group_of[caller] == group:
            return 0.0
        return self.calls[caller, callee] / self._entries[group] * self._totals[group]

    def stacks(self, most: int = _MOST_STACKS) -> list[Stack]:
        """Return the stacks of calls that cost most; the costs add up to that of each function.

        What is in stacks that are too many is put to :data:`SMALL`.
        """
        found: dict[int, list[tuple[tuple[int, ...], float]]] = defaultdict(list)
        waiting: list[tuple[float, tuple[int, ...], int, float]] = []

        def wait(path: tuple[int, ...], group: int, part: float) -> None:
            # What is less than an instruction has not happened.
            if part * self._totals[group] >= 0.5:
                heapq.heappush(waiting, (-part * self._totals[group], path, group, part))

        for group, members in enumerate(self._groups):
            if not self._entries[group]:
                # It was running before anybody looked.
                wait((), group, 1.0)
                continue
            entries = sum(self.calls.get((INDIRECT, member), 0) for member in members)
            wait((INDIRECT,), group, entries / self._entries[group])
        listed = 0
        while waiting and listed < most:
            _, path, group, part = heapq.heappop(waiting)
            members = self._groups[group]
            if len(members) > 1:
                path += (_FIRST_CYCLE - self._cycle_numbers[members[0]],)
            for member in members:
                inner = (*path, member)
                listed += 1
                found[member].append((inner, part * self.costs[member]))
                parts: dict[int, float] = defaultdict(float)
                for callee, count in self._callees[member]:
                    called = self._group_of[callee]
                    if called != group:
                        parts[called] += part * count / self._entries[called]
                for called, share in parts.items():
                    wait(inner, called, share)
        return self._in_whole_numbers(found)

    def _in_whole_numbers(
        self, found: Mapping[int, list[tuple[tuple[int, ...], float]]]
    ) -> list[Stack]:
        stacks = []
        for function, cost in enumerate(self.costs):
            paths = found.get(function, [])
            rest = cost - sum(part for _, part in paths)
            # What is left by rounding is no stack of its own.
            if rest > max(0.5, 1e-9 * cost):
                paths = [*paths, ((SMALL, function), rest)]
            counts = apportion(cost, [part for _, part in paths])
            stacks += [
                Stack(path, count) for (path, _), count in zip(paths, counts, strict=True) if count
            ]
        return stacks

    @cached_property
    def _groups(self) -> list[tuple[int, ...]]:
        """The functions, those that call each other together; a group after all that it calls.

        Tarjan's algorithm, without recursion: calls go deep.
        """
        order: dict[int, int] = {}
        lowest: dict[int, int] = {}
        pending: list[int] = []
        is_pending = [False] * len(self.costs)
        groups: list[tuple[int, ...]] = []
        for root in range(len(self.costs)):
            if root in order:
                continue
            walk = [(root, 0)]
            while walk:
                node, at = walk.pop()
                if at == 0:
                    order[node] = lowest[node] = len(order)
                    pending.append(node)
                    is_pending[node] = True
                callees = self._callees[node]
                while at < len(callees):
                    callee = callees[at][0]
                    at += 1
                    if callee not in order:
                        walk += [(node, at), (callee, 0)]
                        break
                    if is_pending[callee]:
                        lowest[node] = min(lowest[node], order[callee])
                else:
                    if lowest[node] == order[node]:
                        members: list[int] = []
                        while not members or members[-1] != node:
                            members.append(pending.pop())
                            is_pending[members[-1]] = False
                        groups.append(tuple(members))
                    if walk:
                        above = walk[-1][0]
                        lowest[above] = min(lowest[above], lowest[node])
        return groups

    @cached_property
    def _group_of(self) -> dict[int, int]:
        return {member: group for group, members in enumerate(self._groups) for member in members}

    @cached_property
    def _cycle_numbers(self) -> dict[int, int]:
        return {member: number for number, cycle in enumerate(self.cycles) for member in cycle}

    @cached_property
    def _entries(self) -> list[int]:
        """How often each group was called from outside."""
        entries = [0] * len(self._groups)
        for (caller, callee), count in self.calls.items():
            if caller == INDIRECT or self._group_of[caller] != self._group_of[callee]:
                entries[self._group_of[callee]] += count
        return entries

    @cached_property
    def _totals(self) -> list[float]:
        """What each group cost with all that it called."""
        totals: list[float] = []
        for group, members in enumerate(self._groups):
            total = float(sum(self.costs[member] for member in members))
            for member in members:
                for callee, count in self._callees[member]:
                    called = self._group_of[callee]
                    if called != group:
                        total += count / self._entries[called] * totals[called]
            totals.append(total)
        return totals


def apportion(whole: int, weights: Sequence[float]) -> list[int]:
    """Divide a whole number into whole parts that are as their weights, and add up to it."""
    total = sum(weights)
    if not total:
        return [0] * len(weights)
    exact = [whole * weight / total for weight in weights]
    parts = [int(part) for part in exact]
    largest = sorted(range(len(parts)), key=lambda index: parts[index] - exact[index])
    for index in largest[: max(0, whole - sum(parts))]:
        parts[index] += 1
    # Beyond 2**53 the floats are not exact.
    parts[max(range(len(parts)), key=parts.__getitem__)] += whole - sum(parts)
    return parts
