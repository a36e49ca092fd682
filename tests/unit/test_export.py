"""Measurements as documents, tables and frames."""

from __future__ import annotations

import csv
import io
import json
import sys
from datetime import datetime, timezone

import pytest

from tests.measurements import (
    LATENCY,
    SHED,
    START,
    TARGET,
    Measurement,
    distribution,
    growing,
    log2,
    measurements,
)
from weft.errors import WeftError
from weft.export.metrics import csv as csv_format
from weft.export.metrics import draw, parquet
from weft.export.metrics import json as json_format
from weft.export.metrics.document import document
from weft.export.metrics.frames import to_arrow, to_pandas
from weft.export.metrics.values import Rising, cumulative
from weft.model.measured import Interval

HIGHEST = (1 << 63) - 1


def test_the_document_says_whom_it_is_about() -> None:
    written = document(TARGET, [], 7.5)
    assert written == {
        "schema": 2,
        "target": {
            "pid": 4242,
            "name": "redis-server",
            "program": "/usr/bin/redis-server",
            "command": ["redis-server", "--port", "7000"],
            "exit_code": None,
        },
        "seconds": 7.5,
        "totals": [],
        "series": [],
        "shed": [],
    }


def test_totals_are_exact() -> None:
    huge = (1 << 62) + 1
    metric = Measurement("calls", huge, focus="/Code/prog/f")
    file = io.BytesIO()
    json_format.write(file, TARGET, [metric], 1.0)
    assert json.loads(file.getvalue())["totals"] == [
        {
            "metric": "calls",
            "focus": "/Code/prog/f",
            "value": huge,
            "unit": "calls",
            "seconds": 7.0,
            "remarks": [],
            "status": "exact",
            "missing": [],
        }
    ]


def test_an_estimate_says_so_and_what_was_shed() -> None:
    interval = Interval(900.0, 1100.0, 0.95)
    written = document(TARGET, [Measurement("calls", 1000, interval=interval, shed=SHED)], 1.0)
    (total,) = written["totals"]
    assert (total["low"], total["high"], total["confidence"]) == (900.0, 1100.0, 0.95)
    assert written["shed"] == [
        {
            "metric": "calls",
            "focus": "/Code/redis-server/dictFind",
            "how": "sampled",
            "since": START + 3,
            "share": 0.1,
            "cost": None,
            "effect": "an estimate: ±2%",
        }
    ]


def test_each_kind_of_value() -> None:
    histogram = distribution((0, 9, 50), (10, 19, 50), total=900)
    values = [
        Measurement("wait", 0.25, kind="timer", unit="s"),
        Measurement("latency", histogram, kind="histogram", unit="ns"),
        Measurement("by_caller", {"main": 3}, kind="map"),
    ]
    wait, latency, by_caller = (total["value"] for total in document(TARGET, values, 1.0)["totals"])
    assert wait == 0.25
    assert by_caller == {"main": 3}
    assert latency == {
        "count": 100,
        "sum": pytest.approx(900e-9),
        "mean": pytest.approx(9e-9),
        "p50": pytest.approx(9e-9),
        "p90": pytest.approx(17.2e-9),
        "p99": pytest.approx(18.82e-9),
        "p999": pytest.approx(18.982e-9),
        "buckets": [[0, 9e-9, 50], [10e-9, 19e-9, 50]],
    }


def test_series_are_numbers_over_time() -> None:
    metrics = measurements()
    series = document(TARGET, metrics, 7.0)["series"]
    assert [one["metric"] for one in series] == [metric.name for metric in metrics]
    assert series[0]["samples"][:2] == [
        [START + 1, 12_000, "exact", None, None],
        [START + 2, 25_000, "exact", None, None],
    ]
    assert series[4]["samples"][-1] == [START + 7, LATENCY.count, "exact", None, None]
    assert series[5]["samples"] == [[START + 7, 81_123, "exact", None, None]]


def test_csv_has_a_row_for_each_sample() -> None:
    file = io.BytesIO()
    samples = growing([10, 40], seconds=0.5)
    metric = Measurement("calls", 40, focus='/Code/a,b/"f"', samples=samples)
    csv_format.write(file, TARGET, [metric], 1.0)
    assert list(csv.reader(io.StringIO(file.getvalue().decode()))) == [
        [*["time", "metric", "focus", "value", "rate", "unit", "status", "low", "high", "missing"]],
        ["1750000000.5", "calls", '/Code/a,b/"f"', "10", "20.0", "calls", "exact", "", "", ""],
        ["1750000001.0", "calls", '/Code/a,b/"f"', "40", "60.0", "calls", "exact", "", "", ""],
    ]


def test_csv_writes_names_that_are_not_unicode() -> None:
    file = io.BytesIO()
    metric = Measurement("calls", 1, focus="/Code/\udcff/f", samples=growing([1]))
    csv_format.write(file, TARGET, [metric], 1.0)
    assert b"/Code/\xff/f" in file.getvalue()


def test_parquet_reads_back() -> None:
    reader = pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    metrics = measurements()
    parquet.write(file, TARGET, metrics, 7.0)
    table = reader.read_table(io.BytesIO(file.getvalue()))
    rows = table.to_pylist()
    assert len(rows) == sum(len(metric.history()) for metric in metrics)
    assert rows[1] == {
        "time": datetime.fromtimestamp(START + 2, timezone.utc),
        "metric": "calls",
        "focus": "/Code/redis-server/processCommand",
        "value": 25_000.0,
        "rate": 13_000.0,
        "unit": "calls",
        "status": "exact",
        "low": None,
        "high": None,
        "missing": "",
    }
    about = json.loads(table.schema.metadata[b"weft"])
    whole = document(TARGET, metrics, 7.0)
    assert about == {key: whole[key] for key in whole if key != "series"}


def test_a_missing_library_is_said_how_to_get(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(WeftError) as caught:
        parquet.write(io.BytesIO(), TARGET, [], 1.0)
    assert caught.value.advice == "pip install 'weft[arrow]'"


def test_a_counter_and_a_timer_as_arrow_tables() -> None:
    pytest.importorskip("pyarrow")
    calls, _, _, wait, *_ = measurements()
    table = to_arrow(calls)
    assert [str(kind) for kind in table.schema.types] == [
        "timestamp[us, tz=UTC]",
        "int64",
        "double",
        "string",
        "double",
        "double",
    ]
    assert table.column("value").to_pylist() == [sample.value for sample in calls.history()]
    assert table.schema.metadata[b"metric"] == b"calls"
    assert to_arrow(wait).column("value").to_pylist()[-1] == 0.112


def test_a_histogram_and_a_map_as_arrow_tables() -> None:
    pytest.importorskip("pyarrow")
    *_, latency, by_caller = measurements()
    last = to_arrow(latency).to_pylist()[-1]
    assert last["count"] == LATENCY.count
    assert last["p99"] == LATENCY.quantile(0.99) / 1e9
    assert [(row["key"], row["value"]) for row in to_arrow(by_caller).to_pylist()] == [
        ("call", 81_000),
        ("loadAppendOnlyFile", 123),
    ]


def test_a_history_of_totals_alone_has_counts_and_rates() -> None:
    pytest.importorskip("pyarrow")
    latency = Measurement("latency", LATENCY, "histogram", "ns", samples=growing([10, 30]))
    rows = to_arrow(latency).to_pylist()
    assert [(row["count"], row["rate"], row["p99"]) for row in rows] == [
        (10, 10.0, None),
        (30, 20.0, None),
    ]


def test_pandas_frames_are_by_time() -> None:
    pandas = pytest.importorskip("pandas")
    frame = to_pandas(measurements()[0])
    assert list(frame.columns) == ["value", "rate", "status", "low", "high"]
    assert frame.index[0] == pandas.Timestamp(START + 1, unit="s", tz="UTC")
    assert frame["value"].iloc[-1] == 120_123
    assert frame["rate"].iloc[0] == 12_000.0


def test_an_empty_history_has_the_same_columns() -> None:
    pytest.importorskip("pyarrow")
    table = to_arrow(Measurement("calls", 0))
    assert table.num_rows == 0
    assert table.column_names == ["time", "value", "rate", "status", "low", "high"]


def test_bounds_are_the_same_each_time() -> None:
    few, more = cumulative(log2(3, first=5)), cumulative(log2(1, 0, 9, first=2))
    odd = cumulative(distribution((-(1 << 63), -1, 1), (100, 149, 5), (500, HIGHEST, 2)))
    none = cumulative(distribution())
    assert len({tuple(bound for bound, _ in one) for one in (few, more, odd, none)}) == 1
    assert (31, 0) in few
    assert (63, 3) in few
    assert few[-1] == ((3 << 39) - 1, 3)
    assert dict(more)[31] == 10
    # What is below all bounds is at most as high as each; what has no end is beyond the last.
    assert (odd[0], odd[-1][1]) == ((0, 1), 6)


def test_buckets_end_at_the_bounds() -> None:
    """Sixteen buckets between two powers of two, as metrics have them: none is on both sides."""
    bounds = [bound for bound, _ in cumulative(distribution())]
    for power in range(4, 40):
        ends = {(1 << power) + (number + 1 << power - 4) - 1 for number in range(16)}
        assert {bound for bound in bounds if (1 << power) <= bound < 2 << power} <= ends


def test_what_only_grows_does_not_fall_because_an_estimate_gets_better() -> None:
    rising = Rising()
    calls, live = Measurement("calls", 0), Measurement("live_bytes", 0, is_monotonic=False)
    assert [rising.of(calls, value) for value in (10, 8, 12)] == [10, 10, 12]
    assert [rising.of(live, value) for value in (10, 8, 12)] == [10, 8, 12]


def test_the_keys_of_an_estimate_are_marked() -> None:
    value: dict[str, int | float] = {"one": 30, "other": 10}
    estimate = Measurement("calls", value, kind="map", interval=Interval(20, 60, 0.99))
    exact = Measurement("calls", value, kind="map")

    def shown(metric: Measurement) -> list[str]:
        return [line.plain.split()[-1] for line in draw.section(metric, 80, 9)[2:]]

    assert shown(estimate) == ["~30", "~10"]
    assert shown(exact) == ["30", "10"]
