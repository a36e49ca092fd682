"""What the trials ask of probes, as types: the trials are older than the weaver.

Everything here but :func:`weaver` stands for a class of weft, and can be that class once it exists.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, cast

import weft
from weft.model.program import Module, Pause

Kind: TypeAlias = Literal["entry", "exit", "call", "after", "block", "edge", "insn"]

HAS_WEAVER = hasattr(weft.Session, "insert")

IS_LONG = int(os.environ.get("WEFT_CASES", "0")) >= 1_000_000
"""Whether there is to be all of what is alike, as ``make soak`` wants it."""


class Point(Protocol):
    """A place in the code of a program."""

    kind: str
    address: int
    function: str
    module: str

    def __hash__(self) -> int: ...


class Refusal(Protocol):
    """A point that could not be woven, and why."""

    point: Point
    reason: str


class Bucket(Protocol):
    """How many values were at least one number and at most another."""

    low: int
    high: int
    count: int


class Histogram(Protocol):
    """How values are distributed."""

    buckets: Sequence[Bucket]
    count: int


class Timer(Protocol):
    """Nanoseconds, and how often they were measured."""

    ns: int
    count: int


class Probe(Protocol):
    """A snippet in its places."""

    points: Sequence[Point]
    refused: Sequence[Refusal]
    tactics: Mapping[str, int]

    def value(self, name: str) -> Any: ...
    def values(self, name: str) -> Mapping[Point, int]: ...
    def records(self, name: str) -> list[tuple[int, ...]]: ...
    def lost(self, name: str) -> int: ...
    def disable(self) -> None: ...
    def enable(self) -> None: ...
    def remove(self) -> None: ...


class Weaver(Protocol):
    """A session that can weave."""

    pid: int

    def points(self, pattern: str, kind: Kind = "entry") -> list[Point]: ...
    def insert(
        self, points: str | Sequence[Point], snippet: str, *, order: str = "append"
    ) -> Probe: ...
    def pauses(self) -> list[Pause]: ...
    def modules(self) -> list[Module]: ...
    def program(self) -> str: ...


COUNTER = "counter calls\ncalls += 1"
"""The plainest snippet: it counts at every point it is given."""


def weaver(session: weft.Session) -> Weaver:
    """See a session as one that can weave."""
    return cast(Weaver, session)


def owner(function: str) -> str:
    """Return the function that a part belongs to which the compiler has put elsewhere."""
    return function.removesuffix(".cold")


def points_of(session: Weaver, module: str, names: Collection[str], kind: Kind) -> list[Point]:
    """Return the points of a kind in the functions of these names, and in their cold parts.

    Names are compared here and not in the pattern, since some languages put stars into them. A cold
    part is no function: nothing enters it. Whether its points are said to be in the function or in
    the part does not matter, if they are not said to be in both.
    """
    found = session.points(f"/Code/{module}/*", kind)
    points = [point for point in found if point.function in names]
    if kind != "entry":
        addresses = {point.address for point in points}
        parts = (point for point in found if point.function.endswith(".cold"))
        points += [p for p in parts if owner(p.function) in names and p.address not in addresses]
    return points


def by_function(values: Mapping[Point, int]) -> dict[str, int]:
    """Add up the values of the points of each function."""
    sums: dict[str, int] = {}
    for point, value in values.items():
        name = owner(point.function)
        sums[name] = sums.get(name, 0) + value
    return sums
