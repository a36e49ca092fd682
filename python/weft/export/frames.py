"""The history of one metric as a table for data tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.export.extras import needed
from weft.export.values import QUANTILES, readable
from weft.metrics.model import Measured, MetricKind, Sample
from weft.probes import Histogram

if TYPE_CHECKING:
    import pandas
    import pyarrow


def to_arrow(metric: Measured) -> pyarrow.Table:
    """Return the history as an Arrow table: the column ``time``, and the value at that time.

    Counters and timers have the columns ``value`` and ``rate``; histograms ``count``, ``sum``,
    ``mean``, ``p50``, ``p90``, ``p99``, ``p999`` and ``rate``; a map has a row for each key at each
    time, with ``key`` and ``value``. What a history does not keep is null: of a running target it
    keeps totals only, of histograms how many values there were, and of maps the sum, without a key.
    The table's metadata names the metric, its focus and unit.
    """
    with needed("arrow", "an Arrow table"):
        import pyarrow
    whole, real, text = pyarrow.int64(), pyarrow.float64(), pyarrow.string()
    columns: dict[str, Any]
    if metric.kind == "histogram":
        columns = {"count": whole, "sum": whole, "mean": real}
        columns |= dict.fromkeys(QUANTILES, real) | {"rate": real}
    elif metric.kind == "map":
        columns = {"key": text, "value": whole}
    else:
        columns = {"value": real if metric.kind == "timer" else whole, "rate": real}
    about = {"metric": metric.name, "focus": readable(metric.focus), "unit": metric.unit}
    time = ("time", pyarrow.timestamp("us", tz="UTC"))
    schema = pyarrow.schema([time, *columns.items()], metadata=about)
    rows = [row for sample in metric.history() for row in _rows(sample, metric.kind)]
    return pyarrow.Table.from_pylist(rows, schema=schema)


def to_pandas(metric: Measured) -> pandas.DataFrame:
    """Return the history as a data frame by time, with the columns of :func:`to_arrow`."""
    with needed("pandas", "a data frame"):
        import pandas  # noqa: F401 -- what converts the table imports it by itself
    return to_arrow(metric).to_pandas().set_index("time")


def _rows(sample: Sample, kind: MetricKind) -> list[dict[str, Any]]:
    time = round(sample.time * 1e6)
    value = sample.value
    if isinstance(value, dict):
        return [
            {"time": time, "key": readable(key), "value": count} for key, count in value.items()
        ]
    if isinstance(value, Histogram):
        quantiles = {name: value.quantile(share) for name, share in QUANTILES.items()}
        summary = {"count": value.count, "sum": value.sum, "mean": value.mean}
        return [{"time": time, **summary, **quantiles, "rate": sample.rate}]
    total = "count" if kind == "histogram" else "value"
    return [{"time": time, total: value, "rate": sample.rate}]
