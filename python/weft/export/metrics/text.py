"""Text: the summary that a person reads at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft.base.numbers import exact, printable, quantity, rate, shortened
from weft.export.metrics import draw
from weft.export.metrics.values import number
from weft.model.measured import Measured, TargetFacts
from weft.model.values import Histogram

_WIDTH = 80
_LINE = 10_000
MOST_BARS = 20
_TIMES = ("ns", "us", "ms", "s", "seconds")


def write(
    file: BinaryIO,
    target: TargetFacts,
    metrics: Sequence[Measured],
    seconds: float,
    top: int = MOST_BARS,
) -> None:
    """Write the summary, without colour; no name is shortened."""
    console = Console(color_system=None, width=1_000_000, highlight=False, emoji=False)
    with console.capture() as written:
        console.print(summary(target, metrics, seconds, top=top), soft_wrap=True)
    lines = [line.rstrip() for line in written.get().splitlines()]
    file.write(("\n".join(lines) + "\n").encode())


def summary(
    target: TargetFacts,
    metrics: Sequence[Measured],
    seconds: float,
    width: int | None = None,
    top: int = MOST_BARS,
) -> RenderableType:
    """Return totals with their mean rates, histograms as bars, and what was shed.

    ``top`` is how many bars each has at most. ``width`` is that of the screen that it must fit;
    without one, no name is shortened.
    """
    parts: list[RenderableType] = [_heading(target, seconds), Text()]
    parts.append(_totals(metrics, width))
    for metric in metrics:
        if draw.has_section(metric):
            parts += [Text(), *draw.section(metric, width or _WIDTH, top)]
    notes = [note for metric in metrics for note in draw.estimate_note(metric)]
    for metric in metrics:
        notes += draw.notes(metric.name, metric.focus, metric.shed, metric.completeness, width)
        where = draw.place(metric.name, metric.focus)
        notes += [Text(shortened(f"  {where}: {one}", width or _LINE)) for one in metric.remarks]
    if notes:
        parts += [Text(), *notes]
    return Group(*parts)


def _heading(target: TargetFacts, seconds: float) -> Text:
    heading = Text(printable(target.name), style="bold")
    heading.append(f"  pid {target.pid}  {quantity(seconds, 's')}", style="not bold")
    if target.exit_code is not None:
        heading.append(f"  exit code {target.exit_code}", style="red" if target.exit_code else "")
    elif target.has_ended:
        heading.append("  ended")
    return heading


def _totals(metrics: Sequence[Measured], width: int | None) -> Table:
    rows = []
    for metric in metrics:
        value = number(metric.value)
        is_histogram = isinstance(metric.value, Histogram)
        unit = "values" if is_histogram else metric.unit
        sign, style = draw.mark(metric)
        total = Text(sign + exact(value, unit), style=style)
        mean = rate(value / metric.seconds, unit) if metric.seconds > 0 else "-"
        if metric.kind == "rate":
            # What happens per second has no total.
            unit = unit.removesuffix("/s")
            total, mean, unit = Text(sign + "-", style=style), rate(value, unit), ""
        # A time says its unit itself, unless it is a whole number of them.
        shown = unit if unit not in _TIMES or isinstance(value, int) else ""
        rows.append((metric.name, metric.focus, total, shown, mean))
    others = [max((len(row[column]) for row in rows), default=0) for column in (0, 2, 3, 4)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("METRIC", no_wrap=True)
    table.add_column("FOCUS", no_wrap=True, style="cyan")
    table.add_column("TOTAL", no_wrap=True, justify="right")
    table.add_column("", no_wrap=True)
    table.add_column("RATE", no_wrap=True, justify="right")
    room = max(8, (width or 1_000_000) - sum(others) - 10)
    for name, focus, total, unit, mean in rows:
        table.add_row(Text(name), Text(shortened(focus, room)), total, Text(unit), Text(mean))
    return table
