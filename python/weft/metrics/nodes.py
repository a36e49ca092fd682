"""Instruments that are woven: their probes, what they lack, and how many metrics need them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from weft import _native
from weft.control.libraries import Arrivals
from weft.control.probes import Probe
from weft.mdl.leaving import LOCALS
from weft.mdl.plan import Instrument, Plan, Unseen, Weaving
from weft.metrics.missing import Piece, left_open, missing_points
from weft.metrics.sampling import HITS, Sampling
from weft.model.completeness import Missing
from weft.model.points import Point, PointKind

__all__ = ["Item", "Node", "add_scouts", "item", "places", "snippets"]

Item: TypeAlias = "tuple[int, str, list[PointKind], list[int], list[int], bool]"
"""What the compiled core takes of a probe."""


@dataclass
class Node:
    """An instrument that is woven, and how many need it."""

    instrument: Instrument
    probes: list[Probe]
    needs: list[Node] = field(default_factory=list)
    users: int = 0
    is_on: bool = True
    gaps: list[Sampling] = field(default_factory=list)
    """Times that are over, in which it was not measured all the time."""
    has_hits: bool = False
    """Whether each of its probes counts how often it is hit."""
    scouts: list[tuple[Probe, int]] = field(default_factory=list)
    """Counters of how often it would be hit, where it cannot be duty-cycled: one
    for each probe, of its own and of its predicates, with the number of that."""
    known: dict[int, set[Point]] = field(init=False)
    """Where it is, by the place in its definition."""
    arrivals: Arrivals = field(default_factory=Arrivals)
    """Modules with points of it that came since it was woven."""
    pieces: list[Piece] = field(init=False)
    unseen: tuple[Unseen, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.known = places(self.instrument)
        woven = zip(self.instrument.weavings, self.probes, strict=True)
        self.pieces = [(weaving, probe._newest) for weaving, probe in woven]
        self.unseen = self.instrument.unseen

    def missing(self, since: float, *, in_clone: bool) -> list[Missing]:
        """What it has not measured since then, by the monotonic clock, nor what it needs.

        That are points which are not woven or not known, and what libraries did before they were.
        """
        own = missing_points(self.pieces, self.unseen, in_clone=in_clone)
        own += self.arrivals.missing(since)
        return own + [one for node in self.needs for one in node.missing(since, in_clone=in_clone)]

    def left_open(self, advice: str) -> list[Missing]:
        """Where it, or what it needs, would begin something that never ends."""
        own = left_open(self.pieces, self.unseen, advice)
        return own + [one for node in self.needs for one in node.left_open(advice)]

    @property
    def can_be_sampled(self) -> bool:
        """Whether what is measured in moments says something about the rest.

        A timer that is running when it is taken out would never stop, a predicate would miss that
        its function was entered; and where one event belongs to another, as the end of something to
        its beginning or what is freed to what was allocated, one of them may be missed.
        """
        first, *others = self.instrument.declarations
        kept = {f"local {name}" for name in LOCALS}
        is_paired = any(text.startswith("local") and text not in kept for text in others) or any(
            f"{first.split()[1]} -= " in weaving.body for weaving in self.instrument.weavings
        )
        kinds = ("counter", "map", "histogram")
        return first.startswith(kinds) and not self.needs and not is_paired

    @property
    def number(self) -> int:
        """The probe that has the data."""
        return self.probes[0].numbers[0]

    def take(self, target: _native.Target, number: int, weaving: Weaving) -> None:
        """Count a probe that was woven later as one of its own."""
        if _is_by_point(self.instrument.declarations[0]):
            probe = self.probes[0]
            probe._grow(target, number, weaving.points, ())
        else:
            probe = Probe(target, number, weaving.points)
            self.probes.append(probe)
        self.pieces.append((weaving, probe._newest))

    @property
    def own_numbers(self) -> list[int]:
        """What the compiled core calls its probes."""
        return [number for probe in self.probes for number in probe.active_numbers]

    @property
    def numbers(self) -> list[int]:
        """The same, and those of the predicates that it needs."""
        return [number for node in (self, *self.needs) for number in node.own_numbers]


def item(
    number: int,
    instrument: Instrument,
    weaving: Weaving,
    owner: int | None,
    imported: Iterable[int],
    has_hits: bool,
) -> Item:
    """What the compiled core is told of a weaving.

    ``owner`` is the probe that has the data of the instrument, if it is another; ``imported`` are
    those that have the data of other instruments.
    """
    imports = [
        f"{text} of {other}" for (_, text), other in zip(instrument.imports, imported, strict=True)
    ]
    data = [
        text if owner is None or _is_by_point(text) else f"{text} of {owner}"
        for text in instrument.declarations
    ]
    # What a hit costs is different for each piece of code, so each counts its own.
    count_hit = [f"counter {HITS} shared", f"{HITS} += 1"] if has_hits else []
    text = "\n".join([*imports, *data, *count_hit, weaving.body])
    return (number, text, *_placed(weaving))


def add_scouts(target: _native.Target, bases: Iterable[Node]) -> None:
    """Prepare counters for what cannot be put into the code just to see how often it is hit."""
    tried = [
        (base, weaving, probe.numbers[0])
        for base in bases
        if not base.can_be_sampled
        for node in (base, *base.needs)
        for weaving, probe in zip(node.instrument.weavings, node.probes, strict=False)
    ]
    numbers = target.reserve_probes(len(tried))
    text = f"counter {HITS} shared\n{HITS} += 1"
    items = [
        (number, text, *_placed(weaving))
        for number, (_, weaving, _) in zip(numbers, tried, strict=True)
    ]
    if items:
        target.insert_many(items, False)
    for number, (base, weaving, real) in zip(numbers, tried, strict=True):
        base.scouts.append((Probe(target, number, weaving.points), real))


def _placed(weaving: Weaving) -> tuple[list[PointKind], list[int], list[int], bool]:
    """Where a weaving goes, as the compiled core is told."""
    return (
        [point.kind for point in weaving.points],
        [point.address for point in weaving.points],
        [point.target for point in weaving.points],
        weaving.order == "prepend",
    )


def _is_by_point(declaration: str) -> bool:
    """Whether a datum is one for each point, so that probes cannot share it."""
    return declaration.startswith("counter ") and not declaration.endswith(" shared")


def places(instrument: Instrument) -> dict[int, set[Point]]:
    """Where an instrument is, by the place in its definition."""
    found: dict[int, set[Point]] = {}
    for weaving in instrument.weavings:
        found.setdefault(weaving.place, set()).update(weaving.points)
    return found


def snippets(plan: Plan) -> list[tuple[Weaving, str]]:
    """What would be woven for a plan, and the text of each snippet: with the data it uses."""
    found = []
    for instrument in (*plan.predicates, plan.base):
        declared = [*(text for _, text in instrument.imports), *instrument.declarations]
        for weaving in instrument.weavings:
            words = set(re.findall(r"\w+", weaving.body))
            used = [text for text in declared if re.split(r"\W+", text)[1] in words]
            found.append((weaving, "\n".join([*used, weaving.body])))
    return found
