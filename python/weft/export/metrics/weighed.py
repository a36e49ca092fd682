"""Metrics that are divided by stack as stacks with weights, for the formats that have them."""

from __future__ import annotations

from collections.abc import Sequence

from weft.export.metrics import draw
from weft.model.measured import Measured, TargetFacts
from weft.model.stacks import FoldedStacks, Stack
from weft.model.weighed import FrameTable, WeighedStacks

_SECONDS = ("s", "seconds")


def weighed(target: TargetFacts, metrics: Sequence[Measured]) -> list[WeighedStacks]:
    """Return the stacks of each metric; times are in nanoseconds, which are whole numbers."""
    taken = [_stacks(metric) for metric in metrics]
    program = target.program.rpartition("/")[2]
    table = FrameTable((stack for stacks in taken for stack, _ in stacks), program)
    return [
        _weighed(target, metric, stacks, table)
        for metric, stacks in zip(metrics, taken, strict=True)
    ]


def notes(metric: Measured) -> tuple[str, ...]:
    """What one must know of a value that is not exact, and what one should."""
    where = draw.place(metric.name, metric.focus)
    found = [*draw.estimate_note(metric)]
    found += draw.notes(metric.name, metric.focus, metric.shed, metric.completeness, None)
    return (*(note.plain for note in found), *(f"{where}: {one}" for one in metric.remarks))


def _weighed(
    target: TargetFacts,
    metric: Measured,
    taken: Sequence[tuple[Stack, int | float]],
    table: FrameTable,
) -> WeighedStacks:
    is_time = metric.unit in _SECONDS
    factor = 1_000_000_000 if is_time else 1
    return WeighedStacks.of(
        ((stack, round(value * factor)) for stack, value in taken),
        title=" ".join(target.command) or target.name,
        kind=draw.place(metric.name, metric.focus),
        # What a one-liner counts has no unit, but a name that says it.
        unit="ns" if is_time else metric.unit or metric.name,
        status=metric.completeness.status,
        notes=notes(metric),
        table=table,
    )


def _stacks(metric: Measured) -> list[tuple[Stack, int | float]]:
    value = metric.value
    keys = value if isinstance(value, dict) else ()
    folded = (key.stacks for key in keys if isinstance(key, FoldedStacks))
    return [one for stacks in folded for one in stacks.items()]
