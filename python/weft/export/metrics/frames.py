"""The history of one metric as a table for data tools."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from weft.base.extras import needed
from weft.base.numbers import readable
from weft.export.metrics.values import QUANTILES, in_seconds, trust
from weft.model.measured import Measured, MetricKind, Sample
from weft.model.values import Histogram

if TYPE_CHECKING:
    import pandas
    import pyarrow


def to_arrow(metric: Measured) -> pyarrow.Table:
    """Return the history as an Arrow table: the column ``time``, and the value at that time.

    Counters and timers have the columns ``value`` and ``rate``; histograms ``count``, ``sum``,
    ``mean``, ``p50``, ``p90``, ``p99``, ``p999`` and ``rate``; a map has a row for each key at each
    time, with ``key`` and ``value``. Times are in seconds. What a history does not keep is null: of
    a running target it keeps totals only, of histograms how many values there were, and of maps the
    sum, without a key.
    Each row has ``status`` (``exact``, ``estimate`` or ``incomplete``), and in ``low`` and ``high``
    the ends of its interval if it is an estimate. The table's metadata names the metric, its focus
    and unit, and what is ``missing`` of it, as JSON.
    """
    with needed("arrow", "an Arrow table"):
        import pyarrow
    whole, real, text = pyarrow.int64(), pyarrow.float64(), pyarrow.string()
    columns: dict[str, Any]
    if metric.kind == "histogram":
        columns = {"count": whole, "sum": real, "mean": real}
        columns |= dict.fromkeys(QUANTILES, real) | {"rate": real}
    elif metric.kind == "map":
        columns = {"key": text, "value": whole}
    else:
        is_real = metric.unit == "s" or metric.kind == "rate"
        columns = {"value": real if is_real else whole, "rate": real}
    columns |= {"status": text, "low": real, "high": real}
    missing = [asdict(one) for one in metric.completeness.missing]
    unit, divisor = in_seconds(metric)
    about = {
        "metric": metric.name,
        "focus": readable(metric.focus),
        "unit": unit,
        "status": metric.completeness.status,
        "missing": readable(json.dumps(missing)),
    }
    time = ("time", pyarrow.timestamp("us", tz="UTC"))
    schema = pyarrow.schema([time, *columns.items()], metadata=about)
    rows = [row for sample in metric.history() for row in _rows(sample, metric.kind, divisor)]
    return pyarrow.Table.from_pylist(rows, schema=schema)


def to_pandas(metric: Measured) -> pandas.DataFrame:
    """Return the history as a data frame by time, with the columns of :func:`to_arrow`."""
    with needed("pandas", "a data frame"):
        import pandas  # noqa: F401 -- what converts the table imports it by itself
    return to_arrow(metric).to_pandas().set_index("time")


def _rows(sample: Sample, kind: MetricKind, divisor: float) -> list[dict[str, Any]]:
    status, low, high = trust(sample.completeness)
    common = {"time": round(sample.time * 1e6), "status": status, "low": low, "high": high}
    value = sample.value
    if isinstance(value, dict):
        return [{**common, "key": readable(key), "value": count} for key, count in value.items()]
    if isinstance(value, Histogram):
        quantiles = {name: value.quantile(share) / divisor for name, share in QUANTILES.items()}
        summary = {"count": value.count, "sum": value.sum / divisor, "mean": value.mean / divisor}
        return [{**common, **summary, **quantiles, "rate": sample.rate}]
    total = "count" if kind == "histogram" else "value"
    return [{**common, total: value, "rate": sample.rate}]
