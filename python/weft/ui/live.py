"""The live table: what is measured, on a terminal, as it changes.

Where standard output is no terminal, there is a line for each metric at each update instead, in
``name=value`` pairs that other programs can search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from weft.base.numbers import elapsed as clock
from weft.base.numbers import percent, printable, shortened
from weft.export.metrics import draw
from weft.export.metrics.text import MOST_BARS, summary
from weft.export.metrics.values import QUANTILES, in_seconds, number
from weft.model.measured import Measured, TargetFacts
from weft.model.values import Histogram

if TYPE_CHECKING:
    from rich.console import Console

_GAUGE = 10
_MOST_NOTES = 3
_FEWEST_BARS = 3
_WIDEST_SPARK = 40
_GAP = 2


class LiveTable:
    """Shows metrics on a console while they are measured, and the summary at the end.

    ``budget`` is the share of its time that the target may lose, from 0 to 1, and ``top`` how many
    keys of a map the summary shows.
    """

    def __init__(
        self,
        console: Console,
        target: TargetFacts,
        budget: float | None = None,
        top: int = MOST_BARS,
    ) -> None:
        self._top = top
        self._console = console
        self._target = target
        self._budget = budget
        self._live: Live | None = None

    def update(
        self, metrics: Sequence[Measured], elapsed: float, overhead: float | None = None
    ) -> None:
        """Show the metrics as they are now; ``overhead`` is what the target loses, from 0 to 1."""
        if not self._console.is_terminal:
            for metric in metrics:
                self._console.print(Text(line(metric, elapsed)), soft_wrap=True)
            return
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        width, height = self._console.size
        picture = view(
            self._target, metrics, elapsed, self._budget, overhead, width=width, height=height
        )
        self._live.update(picture, refresh=True)

    def close(self) -> None:
        """Take the table off the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def finish(self, target: TargetFacts, metrics: Sequence[Measured], seconds: float) -> None:
        """Put the summary in the place of the table."""
        self.close()
        width = self._console.width if self._console.is_terminal else None
        self._console.print(
            summary(target, metrics, seconds, width, self._top), soft_wrap=width is None
        )


def view(
    target: TargetFacts,
    metrics: Sequence[Measured],
    elapsed: float,
    budget: float | None = None,
    overhead: float | None = None,
    *,
    width: int,
    height: int,
) -> RenderableType:
    """Return the picture of a moment, for a screen of that size."""
    lines: list[RenderableType] = [header(target, elapsed, budget, overhead, width)]
    notes = []
    for metric in metrics:
        notes += draw.notes(metric.name, metric.focus, metric.shed, metric.completeness, width)
    lines += notes[:_MOST_NOTES]
    if len(notes) > _MOST_NOTES:
        lines.append(Text(f"… and {len(notes) - _MOST_NOTES} more notes", style="yellow"))
    lines.append(Text())
    room = height - 1 - len(lines) - 1
    shown = metrics if len(metrics) <= room else metrics[: max(0, room - 1)]
    lines.append(_table(shown, width))
    room -= len(shown)
    if len(shown) < len(metrics):
        lines.append(Text(f"… and {len(metrics) - len(shown)} more", style="dim"))
        room = 0
    for one in _sections(metrics, width, room):
        lines += [Text(), *one]
    return Group(*lines)


def line(metric: Measured, elapsed: float) -> str:
    """Return a metric as it is now in one line of ``name=value`` pairs."""
    history = metric.history()
    facts: dict[str, object] = {"time": f"{elapsed:.1f}", "metric": metric.name}
    if metric.focus:
        facts["focus"] = printable(metric.focus)
    if metric.kind != "rate":
        facts["total"] = _plain(number(metric.value))
    facts["rate"] = _plain(history[-1].rate if history else 0)
    facts["unit"], divisor = in_seconds(metric)
    if isinstance(metric.value, Histogram):
        for name, share in QUANTILES.items():
            facts[name] = _plain(metric.value.quantile(share) / divisor)
    completeness = metric.completeness
    facts["status"] = completeness.status
    if completeness.interval:
        facts["low"] = _plain(completeness.interval.low)
        facts["high"] = _plain(completeness.interval.high)
    if shed := metric.shed:
        facts["shed"] = shed.how
    return " ".join(f"{name}={value}" for name, value in facts.items())


def _plain(value: float) -> str:
    """A number without an exponent; whole numbers are exact."""
    return str(value) if isinstance(value, int) else f"{value:.9f}".rstrip("0").rstrip(".")


def header(
    target: TargetFacts, elapsed: float, budget: float | None, overhead: float | None, width: int
) -> Text:
    """Return the line that says whom it is about, for how long, and what it costs."""
    left = Text(printable(target.name), style="bold")
    left.append(f"  pid {target.pid}  {clock(elapsed)}", style="not bold")
    right = Text()
    if budget is not None:
        used = overhead or 0.0
        share = used / budget if budget > 0 else 1.0
        style = "green" if share <= 1 else "red"
        right.append("budget ")
        right.append(f"{draw.bar(share, _GAUGE):░<{_GAUGE}}", style=style)
        right.append(f" {percent(used)} of {percent(budget)}")
    elif overhead is not None:
        right.append(f"overhead {percent(overhead)}")
    left.truncate(max(0, width - len(right) - 1), overflow="ellipsis")
    left.pad_right(width - len(left) - len(right))
    return left.append_text(right)


def _table(metrics: Sequence[Measured], width: int) -> Table:
    """One row per metric and focus. The focus gives way first, then the sparkline."""
    totals = [draw.total(metric) for metric in metrics]
    rates = [draw.last_rate(metric) for metric in metrics]
    names = [shortened(metric.name, max(8, width // 4)) for metric in metrics]
    fixed = [
        max(len(heading), *map(len, texts)) if texts else len(heading)
        for heading, texts in (
            ("METRIC", names),
            ("TOTAL", [total.plain for total in totals]),
            ("RATE", rates),
        )
    ]
    room = width - sum(fixed) - 4 * _GAP
    longest = max((len(metric.focus) for metric in metrics), default=0)
    focus = max(0, min(max(longest, len("FOCUS")), room - room // 3))
    spark = max(0, min(room - focus, _WIDEST_SPARK))
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    table.add_column("METRIC", no_wrap=True, width=fixed[0])
    table.add_column("FOCUS", no_wrap=True, width=focus, style="cyan")
    table.add_column("TOTAL", no_wrap=True, width=fixed[1], justify="right")
    table.add_column("RATE", no_wrap=True, width=fixed[2], justify="right")
    table.add_column("HISTORY", no_wrap=True, width=spark, style="green")
    for metric, name, total, rate in zip(metrics, names, totals, rates, strict=True):
        spark_line = draw.sparkline(draw.rates(metric), spark)
        place = Text(shortened(metric.focus, focus))
        table.add_row(Text(name), place, total, Text(rate), Text(spark_line))
    return table


def _sections(metrics: Sequence[Measured], width: int, room: int) -> list[list[Text]]:
    """As many histograms and maps as fit, each with as many bars as there is room for."""
    drawn = [metric for metric in metrics if draw.has_section(metric)]
    around = 1 + draw.SECTION_HEAD
    sections = []
    while drawn:
        needed = around + min(_FEWEST_BARS, draw.bars_of(drawn[0]))
        later = sum(around + min(_FEWEST_BARS, draw.bars_of(metric)) for metric in drawn[1:])
        if needed > room:
            break
        # What those that follow need is kept for them if there is enough for all.
        spare = room - later if later <= room - needed else room
        bars = min(draw.bars_of(drawn[0]), spare - around)
        sections.append(draw.section(drawn.pop(0), width, bars))
        room -= 1 + len(sections[-1])
    return sections
