"""Metrics in a notebook: a small table with pictures, which needs nothing but the HTML itself."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from weft.base.numbers import exact, percent, printable, quantity, rate
from weft.export.metrics import draw
from weft.export.metrics.values import QUANTILES, number
from weft.model.measured import Measured
from weft.model.values import Histogram

_WIDTH, _HEIGHT = 120, 24
_MOST_SAMPLES = 120
_MOST_KEYS = 10
_COLOUR = "#3b82c4"
_SEEN = (
    '<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
    'aria-label="{label}">{shapes}</svg>'
)


def text(metric: Measured) -> str:
    """Return a metric in one line, for ``repr``."""
    value = metric.value
    where = printable(draw.place(metric.name, metric.focus))
    if isinstance(value, Histogram):
        facts = f"{exact(value.count)} values, p50 {quantity(value.quantile(0.5), metric.unit)}"
        facts += f", p99 {quantity(value.quantile(0.99), metric.unit)}"
    elif isinstance(value, dict):
        facts = f"{exact(number(value))} {metric.unit} in {len(value)} keys"
    else:
        facts = _total(metric)
    return f"<weft.Metric {where}: {facts}{_doubt(metric)}>"


def html(metrics: Sequence[Measured]) -> str:
    """Return metrics as a table, with a sparkline of rates or the bars of a histogram each."""
    rows = "".join(_row(metric) for metric in metrics)
    heads = "".join(f"<th>{head}</th>" for head in ("metric", "focus", "total", "rate", ""))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _row(metric: Measured) -> str:
    value = metric.value
    if isinstance(value, Histogram):
        facts = {name: value.quantile(share) for name, share in QUANTILES.items()}
        facts["mean"] = value.mean
        named = (f"{name} {quantity(number, metric.unit)}" for name, number in facts.items())
        counts = [bucket.count for bucket in value.buckets]
        picture = _bars(counts, "histogram") + f"<br/><small>{' · '.join(named)}</small>"
    elif isinstance(value, dict):
        ranked = sorted(value.items(), key=lambda entry: -entry[1])[:_MOST_KEYS]
        named = (f"{_safe(key)} {quantity(count, metric.unit)}" for key, count in ranked)
        picture = _bars([count for _, count in ranked], "largest keys")
        picture += f"<br/><small>{' · '.join(named)}</small>"
    else:
        picture = _sparkline(draw.rates(metric)[-_MOST_SAMPLES:])
    cells = (
        f'<td title="{_safe(metric.title)}">{_safe(metric.name)}</td>',
        f"<td>{_safe(metric.focus)}</td>",
        f"<td>{_safe(_total(metric) + _doubt(metric))}</td>",
        f"<td>{_safe(draw.last_rate(metric))}</td>",
        f"<td>{picture}</td>",
    )
    return f"<tr>{''.join(cells)}</tr>"


def _total(metric: Measured) -> str:
    value = number(metric.value)
    if metric.kind == "rate":
        return f"{draw.mark(metric)[0]}{rate(value, metric.unit.removesuffix('/s'))}"
    if isinstance(value, int):
        unit = "values" if isinstance(metric.value, Histogram) else metric.unit
        return f"{draw.mark(metric)[0]}{exact(value)} {unit}".rstrip()
    return draw.mark(metric)[0] + quantity(value, metric.unit)


def _doubt(metric: Measured) -> str:
    """What one must know to read the value, in words."""
    completeness, interval = metric.completeness, metric.completeness.interval
    facts = []
    if interval:
        low, high = (
            quantity(edge, "" if isinstance(metric.value, Histogram) else metric.unit)
            for edge in (interval.low, interval.high)
        )
        facts.append(f"{low} to {high}, {percent(interval.confidence)} confidence")
    if completeness.missing:
        facts.append(f"incomplete: {completeness.summary()}")
    return f" ({'; '.join(facts)})" if facts else ""


def _sparkline(values: Sequence[float]) -> str:
    if len(values) < 2:
        return ""
    top = max(*values, 0) or 1
    step = _WIDTH / (len(values) - 1)
    places = (
        f"{number * step:.1f},{(_HEIGHT - 1) - max(value, 0) / top * (_HEIGHT - 2):.1f}"
        for number, value in enumerate(values)
    )
    line = f'<polyline points="{" ".join(places)}" fill="none" stroke="{_COLOUR}"/>'
    return _SEEN.format(width=_WIDTH, height=_HEIGHT, label="rate over time", shapes=line)


def _bars(counts: Sequence[int | float], label: str) -> str:
    if not counts:
        return ""
    top = max(*counts, 1)
    step = _WIDTH / len(counts)
    bars = (
        f'<rect x="{number * step:.1f}" y="{_HEIGHT - height:.1f}" width="{step * 0.9:.1f}" '
        f'height="{height:.1f}" fill="{_COLOUR}"/>'
        for number, height in enumerate(max(count, 0) / top * _HEIGHT for count in counts)
    )
    return _SEEN.format(width=_WIDTH, height=_HEIGHT, label=label, shapes="".join(bars))


def _safe(text: str) -> str:
    return escape(printable(text))
