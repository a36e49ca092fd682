"""The document that says everything: what ``--format json`` writes.

Its ``schema`` is a number that grows when something in it changes its meaning or goes away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from weft.export.metrics.values import QUANTILES, in_seconds, number, sample_unit, trust
from weft.model.measured import Measured, Shed, TargetFacts, Value
from weft.model.stacks import FoldedStacks, Stack
from weft.model.values import Histogram

SCHEMA = 2


def document(target: TargetFacts, metrics: Sequence[Measured], seconds: float) -> dict[str, Any]:
    """Return totals, series and what was shed, as JSON has it. Times are in seconds.

    The ``status`` of a total is ``exact``, ``estimate`` (then it has ``low``, ``high`` and
    ``confidence``) or ``incomplete``; ``missing`` says what it does not contain, and ``seconds``
    for how long it was measured. A rate has no total: its value is the mean. A sample of a series
    is a time in seconds since 1970, a number, its status, and the ends of its interval if it is an
    estimate. The number is, of a histogram, how many values there were; of a map their sum; of a
    rate what it was since the sample before.
    """
    return {
        "schema": SCHEMA,
        "target": {
            "pid": target.pid,
            "name": target.name,
            "program": target.program,
            "command": list(target.command),
            "exit_code": target.exit_code,
        },
        "seconds": seconds,
        "totals": [_total(metric) for metric in metrics],
        "series": [_series(metric) for metric in metrics],
        "shed": [_shed(shed) for metric in metrics if (shed := metric.shed)],
    }


def plain(value: Value, divisor: float = 1) -> int | float | dict[str, Any]:
    """Return a value as JSON has it; the numbers of a histogram are divided."""
    if not isinstance(value, Histogram):
        return value

    def scaled(number: float) -> float:
        return number if divisor == 1 else number / divisor

    quantiles = {name: scaled(value.quantile(share)) for name, share in QUANTILES.items()}
    buckets = [[scaled(one.low), scaled(one.high), one.count] for one in value.buckets]
    summary = {"count": value.count, "sum": scaled(value.sum), "mean": scaled(value.mean)}
    return {**summary, **quantiles, "buckets": buckets}


def _total(metric: Measured) -> dict[str, Any]:
    unit, divisor = in_seconds(metric)
    total: dict[str, Any] = {
        "metric": metric.name,
        "focus": metric.focus,
        "value": plain(metric.value, divisor),
        "unit": unit,
        "seconds": metric.seconds,
        "remarks": list(metric.remarks),
    }
    if isinstance(metric.value, dict):
        stacks = [key.stacks for key in metric.value if isinstance(key, FoldedStacks)]
        if stacks:
            total["stacks"] = [
                {**_stack(stack), "value": value} for one in stacks for stack, value in one.items()
            ]
    completeness = metric.completeness
    total |= {"status": completeness.status, "missing": [asdict(m) for m in completeness.missing]}
    if completeness.interval is not None:
        total |= asdict(completeness.interval)
    return total


def _stack(stack: Stack) -> dict[str, Any]:
    """A stack, the innermost frame first. One that may have more frames says so."""
    frames = [
        {
            "function": frame.function or f"{frame.address:#x}",
            "module": frame.module,
            "file": None if frame.location is None else frame.location.file,
            "line": None if frame.location is None else frame.location.line,
            "inlined": frame.inlined,
            "language": "native",
        }
        for frame in stack.frames
    ]
    return {"frames": frames} if stack.is_whole else {"frames": frames, "truncated": True}


def _series(metric: Measured) -> dict[str, Any]:
    samples = [
        [sample.time, number(sample.value), *trust(sample.completeness)]
        for sample in metric.history()
    ]
    return {
        "metric": metric.name,
        "focus": metric.focus,
        "unit": sample_unit(metric),
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
        "cost": shed.cost,
    }
