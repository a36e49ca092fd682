"""The formats of metrics that are divided by stack: flame graphs, and those of other profilers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

from weft.errors import InvalidArgument
from weft.export.stacks import FORMATS as ALL
from weft.export.stacks import SEVERAL, Format

if TYPE_CHECKING:
    from weft.mdl import ast
    from weft.model.measured import Measured, TargetFacts

__all__ = ["FORMATS", "check", "write"]

# Sums have no times, and Perfetto's own format is one of times.
FORMATS: dict[str, Format] = {name: name for name in ALL if name != "perfetto"}


def check(wishes: Sequence[tuple[ast.Metric, str]], by: str | None, output_format: str) -> None:
    """Find out now whether metrics, each with its focus, can be written in a format of stacks."""
    from weft.metrics.grouping import By, is_by_stack

    divided_by = None if by is None else By.parse(by)
    for metric, _ in wishes:
        if not is_by_stack(metric, divided_by):
            raise InvalidArgument(
                f"{metric.name} cannot be written as {output_format}",
                f"that is a format of stacks, and {metric.name} is not divided by them alone",
                _advice(metric, by),
            )
    if len(wishes) > 1 and output_format not in SEVERAL:
        names = [f"{metric.name}@{focus}" if focus else metric.name for metric, focus in wishes]
        raise InvalidArgument(
            f"{output_format} shows one metric, and there are {len(names)}: {', '.join(names)}",
            advice="measure one of them, or take --format pprof, which holds several",
        )


def _advice(metric: ast.Metric, by: str | None) -> str:
    if metric.base.type == "map":
        return "give it the stack as its only key, and no --by: -e 'entry malloc { n[stack()]++ }'"
    return "--by stack" if by is None else f"--by stack instead of --by {by}"


def write(
    file: BinaryIO, facts: TargetFacts, metrics: Sequence[Measured], output_format: str
) -> list[str]:
    """Write metrics that are divided by stack, and return what one must know of them."""
    from weft.export import stacks
    from weft.export.metrics.weighed import weighed

    return stacks.write(file, FORMATS[output_format], *weighed(facts, metrics))
