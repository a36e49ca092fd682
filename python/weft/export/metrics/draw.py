"""Pictures made of characters: sparklines, bars, histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from rich.text import Text

from weft.base.numbers import percent, printable, quantity, rate, shortened
from weft.export.metrics.values import QUANTILES, number
from weft.model.completeness import SIGNS
from weft.model.measured import Completeness, Measured, Shed, Status
from weft.model.values import Bucket, Histogram

SECTION_HEAD = 2
"""How many lines of a section are above its bars."""

MARKS: Mapping[Status, tuple[str, str]] = {
    "exact": (SIGNS["exact"], ""),
    "estimate": (SIGNS["estimate"], "yellow"),
    "incomplete": (SIGNS["incomplete"], "red"),
}
"""What stands before a value that is not exact, and its style."""

_HEIGHTS = "▁▂▃▄▅▆▇█"
_WIDTHS = " ▏▎▍▌▋▊▉"
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_LABEL = 48
_WIDEST = 10_000


def sparkline(values: Sequence[float], width: int) -> str:
    """The last values as a line of blocks; the highest of them is a whole block."""
    shown = values[-width:] if width > 0 else []
    top = max(shown, default=0)
    if top <= 0:
        return _HEIGHTS[0] * len(shown)
    steps = len(_HEIGHTS) - 1
    return "".join(_HEIGHTS[max(0, round(value / top * steps))] for value in shown)


def bar(share: float, width: int) -> str:
    """A bar of that share of the width, in eighths of a character; what is not 0 can be seen."""
    eighths = round(min(max(share, 0), 1) * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + _WIDTHS[rest]).rstrip() if eighths else ""


def has_section(metric: Measured) -> bool:
    """Whether there is more to show of it than a number."""
    return isinstance(metric.value, Histogram | dict)


def bars_of(metric: Measured) -> int:
    """How many bars there are to draw."""
    value = metric.value
    if isinstance(value, Histogram):
        return len(value.buckets)
    return len(value) if isinstance(value, dict) else 0


def section(metric: Measured, width: int, bars: int) -> list[Text]:
    """A histogram or a map as a title, a line of facts and at most so many bars."""
    value = metric.value
    assert isinstance(value, Histogram | dict)
    sign = MARKS["estimate"][0] if metric.completeness.interval is not None else ""
    return picture(metric.name, metric.focus, value, metric.unit, width, bars, sign)


def picture(
    name: str,
    focus: str,
    value: Histogram | dict[str, int | float],
    unit: str,
    width: int,
    bars: int,
    sign: str = "",
) -> list[Text]:
    """The section of a metric whose value was read before; ``sign`` is before its numbers."""
    if isinstance(value, Histogram):
        facts = _quantiles(value, unit)
        rows: list[tuple[str, int | float]] = [*_bucket_rows(value, unit, bars)]
    else:
        ranked = sorted(value.items(), key=lambda entry: -entry[1])
        facts = f"{len(ranked)} keys" if len(ranked) != 1 else "1 key"
        if len(ranked) > bars:
            facts = f"{bars} of {facts}"
        rows = [(shortened(key, _LABEL), count) for key, count in ranked[:bars]]
    counts = [sign + quantity(count, unit if isinstance(value, dict) else "") for _, count in rows]
    labels = max((len(label) for label, _ in rows), default=0)
    numbers = max((len(count) for count in counts), default=0)
    room = max(1, width - labels - numbers - 4)
    top = max((count for _, count in rows), default=0)
    title = Text(name, style="bold")
    if focus:
        title.append(f"  {shortened(focus, width - len(name) - 2)}", style="cyan")
    lines = [title, Text(facts)]
    for (label, count), text in zip(rows, counts, strict=True):
        line = Text(f"{label:>{labels}}  ")
        line.append(f"{bar(count / top if top else 0, room):<{room}}", style="green")
        line.append(f"  {text:>{numbers}}")
        lines.append(line)
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def mark(metric: Measured) -> tuple[str, str]:
    """What to put before a value that is incomplete or an estimate, and its style."""
    return MARKS[metric.completeness.status]


def total(metric: Measured) -> Text:
    """The total in few characters, marked when it is an estimate or incomplete."""
    unit = "" if isinstance(metric.value, Histogram) else metric.unit
    sign, style = mark(metric)
    # What happens per second has no total.
    text = "-" if metric.kind == "rate" else quantity(number(metric.value), unit)
    return Text(sign + text, style=style)


def rates(metric: Measured) -> list[float]:
    """How much it grew per second, sample by sample."""
    return [sample.rate for sample in metric.history()]


def last_rate(metric: Measured) -> str:
    """How much it grows per second now."""
    history = metric.history()
    unit = "" if isinstance(metric.value, Histogram) else metric.unit.removesuffix("/s")
    return rate(history[-1].rate, unit) if history else "-"


def place(name: str, focus: str) -> str:
    """A metric and its focus as the command line has them."""
    return f"{name}@{focus}" if focus else name


def shed_note(shed: Shed, width: int) -> Text:
    """How much of the time a metric is measured and what that does to it, in a line that fits."""
    sign, style = MARKS["estimate" if shed.how == "sampled" else "incomplete"]
    rest = f": measured {percent(shed.share)} of the time" if shed.how == "sampled" else ""
    rest += f": {shed.effect}"
    name = shortened(place(shed.metric, shed.focus), max(20, width - len(rest) - 2))
    return Text(shortened(f"{sign} {name}{rest}", width), style=style)


def estimate_note(metric: Measured) -> list[Text]:
    """Where the true value is, in a line, if what is known is an estimate."""
    interval = metric.completeness.interval
    if interval is None:
        return []
    # Of a histogram it is about how many values there are.
    unit = "" if isinstance(metric.value, Histogram) else metric.unit
    low, high = quantity(interval.low, unit), quantity(interval.high, unit)
    where = printable(place(metric.name, metric.focus))
    text = f"from {low} to {high} with {percent(interval.confidence)} confidence"
    sign, style = MARKS["estimate"]
    return [Text(f"{sign} {where}: {text}", style=style)]


def notes(
    name: str, focus: str, shed: Shed | None, completeness: Completeness, width: int | None
) -> list[Text]:
    """What one must know of a value that is not exact, each in a line that fits."""
    lines = []
    if shed is not None and shed.how == "sampled":
        lines.append(shed_note(shed, width or _WIDEST))
    if completeness.missing:
        sign, style = MARKS["incomplete"]
        text = f"{sign} {place(name, focus)}: incomplete: {completeness.summary()}"
        advice = f"; try {completeness.advice}" if completeness.advice else ""
        lines.append(Text(shortened(text + advice, width or _WIDEST), style=style))
    return lines


def _quantiles(histogram: Histogram, unit: str) -> str:
    facts = [(name, histogram.quantile(share)) for name, share in QUANTILES.items()]
    facts.append(("mean", histogram.mean))
    return "  ".join(f"{name} {quantity(value, unit)}" for name, value in facts)


def _bucket_rows(histogram: Histogram, unit: str, rows: int) -> list[tuple[str, int]]:
    """The ranges and counts of the buckets; neighbours are joined until there is room for all."""
    buckets = _joined(histogram.buckets, max(rows, 1))
    lows = [_edge(bucket.low, unit) for bucket in buckets]
    highs = [_edge(bucket.high, unit) for bucket in buckets]
    low_width, high_width = max(map(len, lows), default=0), max(map(len, highs), default=0)
    return [
        (f"{low:>{low_width}} … {high:>{high_width}}", bucket.count)
        for low, high, bucket in zip(lows, highs, buckets, strict=True)
    ]


def _joined(buckets: Sequence[Bucket], most: int) -> list[Bucket]:
    """At most so many buckets: neighbours that have few values become one."""
    joined = list(buckets)
    while len(joined) > most:
        if len(joined) > 16 * most:  # so many that one pair at a time would take too long
            groups = [joined[index : index + 2] for index in range(0, len(joined), 2)]
        else:
            counts = [one.count + other.count for one, other in pairwise(joined)]
            least = counts.index(min(counts))
            pair = joined[least : least + 2]
            groups = [*([one] for one in joined[:least]), pair]
            groups += [[one] for one in joined[least + 2 :]]
        joined = [
            Bucket(group[0].low, group[-1].high, sum(bucket.count for bucket in group))
            for group in groups
        ]
    return joined


def _edge(value: int, unit: str) -> str:
    return "" if value in (_LOWEST, _HIGHEST) else quantity(value, unit)
