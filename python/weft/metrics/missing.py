"""What the points of an instrument leave out: those that could not be woven, or not be seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from weft.control.probes import Part
from weft.errors import IncompleteMetric
from weft.mdl.plan import Unseen, Weaving
from weft.model.completeness import Missing
from weft.model.points import Refusal, kind_of, refused_points, unseen_points

if TYPE_CHECKING:
    from weft.metrics.engine import Engine

__all__ = ["Piece", "incomplete_metric", "left_open", "missing_points", "missing_processes"]

Piece: TypeAlias = "tuple[Weaving, Part]"
"""What was to be woven, and what was."""

_OUTLIVED = "they still ran when the first process had ended, and were not measured any longer"
_STAY = "have the program wait for its children, or attach to them"
_NATIVELY = "they have left their clone and gone on natively, where nothing is measured"

FEWER_KEYS = (
    "fewer keys: a narrower focus, or a coarser key, as in '$arg[0] / 1000' or 'str($arg[0], 8)'"
)
CLONE_HELPS = "--weaver auto (in Python weaver='clone')"


def missing_points(
    pieces: Iterable[Piece], unseen: Iterable[Unseen], *, in_clone: bool
) -> list[Missing]:
    """Say what was refused, by function and reason, and which functions may have more points."""
    refused = (one for _, part in pieces for one in part.refused)
    hidden = ((one.point, kind_of(one.kind)) for one in unseen)
    return refused_points(refused, "" if in_clone else CLONE_HELPS) + unseen_points(hidden)


def missing_processes(engine: Engine, *, is_of_first: bool) -> list[Missing]:
    """Say which processes are not measured any longer; ``is_of_first`` asks for the first only."""
    found = engine.successor.missing()
    if engine.outlived and not is_of_first:
        found.append(Missing("processes", "", _OUTLIVED, engine.outlived, _STAY))
    if natively := engine.session.left_clones:
        found.append(Missing("processes", "", _NATIVELY, natively))
    return found


def left_open(pieces: Sequence[Piece], unseen: Iterable[Unseen], advice: str) -> list[Missing]:
    """Say which functions start a timer, or enter a constraint, that would never end.

    That is where the beginning is woven and an end is not. What a program may leave in ways that
    weft does not know of, besides those that it knows, is not among them.
    """
    opening: set[str] = set()
    opened: set[str] = set()
    closed: set[str] = set()
    refused: list[Refusal] = []
    for weaving, part in pieces:
        refusals = part.refused
        not_woven = {one.point for one in refusals}
        if weaving.role == "opens":
            opening |= {point.path for point in weaving.points}
            opened |= {point.path for point in weaving.points if point not in not_woven}
        elif weaving.role == "closes":
            closed |= {point.path for point in weaving.points if point not in not_woven}
            refused += refusals
    if not opened:
        return []

    def is_entered(where: str) -> bool:
        # What ends elsewhere than it begins may have begun anywhere.
        return where in opened or where not in opening

    ends = Counter((one.point.path, one.reason) for one in refused if is_entered(one.point.path))
    found = [
        Missing("exit points", where, why, count, advice) for (where, why), count in ends.items()
    ]
    hidden = {one.point.path for one in unseen if one.role == "closes"}
    found += [
        Missing("exit points", where, "none of them is known", None)
        for where in sorted(hidden & opened - closed - {one.where for one in found})
    ]
    return found


def incomplete_metric(name: str, missing: Sequence[Missing]) -> IncompleteMetric:
    """Refuse a metric of which something would be begun and never ended."""
    first = missing[0]
    others = f", and of {len(missing) - 1} more" if len(missing) > 1 else ""
    allow = "--allow-incomplete (in Python allow_incomplete=True)"
    return IncompleteMetric(
        f"{name} cannot be measured right: {first.where} can be entered but not left{others}",
        f"{first.what} that cannot be woven: {first.why}",
        " or ".join(filter(None, (first.advice, allow))),
        missing,
    )
