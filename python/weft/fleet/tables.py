"""The fleet's answer as a table: one row for each host, metric and focus; and for each key.

The columns are ``host``, ``state``, one for each label of the hosts (``label.zone``), ``metric``,
``focus``, ``unit``, ``complete``, ``status``, ``low`` and ``high`` (of an estimate: between which
the number is that the whole value comes to), ``key`` (of a map, or of what values are divided by;
where both are there, one after the other with a slash between), ``value`` and, of a histogram,
``sum``, ``mean``, ``p50``, ``p90``, ``p99`` and ``p999``; its value is how many values there were.
Times are in seconds. A host that has no value has a row without one.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from weft.base.extras import needed
from weft.base.numbers import readable
from weft.export.metrics.document import plain
from weft.export.metrics.values import QUANTILES, number
from weft.model.measured import Value
from weft.model.values import Histogram

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from weft.fleet.results import FleetResult, FleetTotal, HostResult

__all__ = ["to_arrow", "to_pandas", "write_csv", "write_parquet"]

_SUMMARY = ("sum", "mean", *QUANTILES)


def to_arrow(result: FleetResult) -> pyarrow.Table:
    """Return it as an Arrow table.

    The key ``weft`` of its metadata has the fleet's totals as JSON: quantiles of a fleet cannot be
    had from those of its hosts.
    """
    with needed("arrow", "an Arrow table"):
        import pyarrow
    real, text = pyarrow.float64(), pyarrow.string()
    types: dict[str, Any] = dict.fromkeys(_columns(result), text)
    numbers = ("value", "low", "high", *_SUMMARY)
    types |= {"complete": pyarrow.bool_(), **dict.fromkeys(numbers, real)}
    document = {key: one for key, one in result.document().items() if key != "hosts"}
    about = {**document, "request": result.request, "complete": result.complete}
    schema = pyarrow.schema([*types.items()], metadata={"weft": readable(json.dumps(about))})
    rows = [{name: _cell(one) for name, one in row.items()} for row in _rows(result)]
    return pyarrow.Table.from_pylist(rows, schema=schema)


def to_pandas(result: FleetResult) -> pandas.DataFrame:
    """Return it as a data frame, with the columns of :func:`to_arrow`."""
    with needed("pandas", "a data frame"):
        import pandas  # noqa: F401 -- what converts the table imports it by itself
    return to_arrow(result).to_pandas()


def write_csv(file: BinaryIO, result: FleetResult) -> None:
    """Write it as CSV, the columns named in the first row."""
    text = io.StringIO(newline="")
    rows = csv.DictWriter(text, _columns(result), lineterminator="\n")
    rows.writeheader()
    for row in _rows(result):
        rows.writerow({**row, "complete": str(row["complete"]).lower()})
    file.write(text.getvalue().encode(errors="replace"))


def write_parquet(file: BinaryIO, result: FleetResult) -> None:
    """Write it as Parquet."""
    with needed("arrow", "writing Parquet"):
        import pyarrow.parquet
    pyarrow.parquet.write_table(to_arrow(result), file)


def _columns(result: FleetResult) -> list[str]:
    labels = sorted({name for host in result.hosts for name in host.labels})
    named = [f"label.{name}" for name in labels]
    what = ("metric", "focus", "unit", "complete", "status", "low", "high", "key", "value")
    return ["host", "state", *named, *what, *_SUMMARY]


def _cell(value: object) -> object:
    """A value as Arrow has it: names of functions and keys of maps may be any bytes."""
    if isinstance(value, str):
        return readable(value)
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _rows(result: FleetResult) -> Iterator[dict[str, object]]:
    for host in result.hosts:
        own = {(one.metric, one.focus): one for one in host.totals}
        about = {"host": host.host, "state": host.state}
        about |= {f"label.{name}": value for name, value in host.labels.items()}
        for asked in result.totals:
            total = own.get((asked.metric, asked.focus))
            for row in _of_total(host, asked, total):
                yield {**about, **row}


def _of_total(
    host: HostResult, asked: FleetTotal, total: FleetTotal | None
) -> Iterator[dict[str, object]]:
    shown = total or asked
    is_time = shown.unit == "ns"
    about: dict[str, object] = {
        "metric": shown.metric,
        "focus": shown.focus,
        "unit": "s" if is_time else shown.unit,
        "complete": host.complete if total is None else total.complete,
    }
    if total is None:
        yield {**about, "status": "exact" if host.complete else "incomplete", "value": None}
        return
    about["status"] = total.status
    if total.value is None:
        yield {**about, "value": None}
        return
    divisor = 1e9 if is_time else 1
    if total.bounds is not None:
        about["low"], about["high"] = total.bounds
    for key, value in [("", total.value)] if total.by is None else total.by.items():
        yield from ({**about, **row} for row in _of_value(key, value, divisor))


def _of_value(key: str, value: Value, divisor: float) -> Iterator[dict[str, object]]:
    if isinstance(value, dict) and value:
        for own, amount in value.items():
            yield {"key": f"{key}/{own}" if key else own, "value": amount}
        return
    row: dict[str, object] = {"key": key or None, "value": number(value)}
    if isinstance(value, Histogram):
        summary = plain(value, divisor)
        assert isinstance(summary, dict)
        row |= {name: summary[name] for name in _SUMMARY}
    yield row
