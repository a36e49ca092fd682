"""The document that says everything: what ``--format json`` writes.

Its ``schema`` is a number that grows when something in it changes its meaning or goes away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.export.values import QUANTILES, number
from weft.metrics.model import Measured, Shed, TargetFacts, Value
from weft.probes import Histogram

SCHEMA = 1


def document(target: TargetFacts, metrics: Sequence[Measured], seconds: float) -> dict[str, Any]:
    """Return totals, series and what was shed, as JSON has it.

    Totals are exact unless they come with ``low``, ``high`` and ``confidence``. A sample of a
    series is a time in seconds since 1970 and a number: of a histogram how many values there were,
    of a map their sum.
    """
    return {
        "schema": SCHEMA,
        "target": {
            "pid": target.pid,
            "program": target.program,
            "command": list(target.command),
            "exit_code": target.exit_code,
        },
        "seconds": seconds,
        "totals": [_total(metric) for metric in metrics],
        "series": [_series(metric) for metric in metrics],
        "shed": [_shed(metric.shed) for metric in metrics if metric.shed],
    }


def plain(value: Value) -> int | float | dict[str, Any]:
    """Return a value as JSON has it."""
    if not isinstance(value, Histogram):
        return value
    quantiles = {name: value.quantile(share) for name, share in QUANTILES.items()}
    buckets = [[bucket.low, bucket.high, bucket.count] for bucket in value.buckets]
    summary = {"count": value.count, "sum": value.sum, "mean": value.mean}
    return {**summary, **quantiles, "buckets": buckets}


def _total(metric: Measured) -> dict[str, Any]:
    total = {
        "metric": metric.name,
        "focus": metric.focus,
        "value": plain(metric.value),
        "unit": metric.unit,
    }
    if metric.interval:
        total["low"] = metric.interval.low
        total["high"] = metric.interval.high
        total["confidence"] = metric.interval.confidence
    return total


def _series(metric: Measured) -> dict[str, Any]:
    samples = [[sample.time, number(sample.value)] for sample in metric.history()]
    return {
        "metric": metric.name,
        "focus": metric.focus,
        "unit": metric.unit,
        "samples": samples,
    }


def _shed(shed: Shed) -> dict[str, Any]:
    return {
        "metric": shed.metric,
        "focus": shed.focus,
        "how": shed.how,
        "since": shed.since,
        "share": shed.share,
        "effect": shed.effect,
    }
