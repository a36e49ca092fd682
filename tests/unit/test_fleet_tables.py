"""The fleet's answer as a table, for data tools."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.measurements import distribution
from weft.fleet import tables
from weft.fleet.folding import Series
from weft.fleet.protocol import HostRecord, Report
from weft.fleet.results import FleetResult, summed

LATENCY = distribution((1 << 20, (2 << 20) - 1, 10), (1 << 22, (2 << 22) - 1, 1))
KEYS: dict[str, int | float] = {"GET,SET": 3, "\udcff": 1}


def result() -> FleetResult:
    """Two hosts that have told something, and one that has not."""
    reports = [
        Report(
            *("alice", "r", "a", 1, 2, "done"),
            processes=1,
            final=True,
            series=(
                Series("calls", "/Code/a", "calls", 7),
                Series("latency", "", "ns", LATENCY),
                Series("m", "", "", KEYS),
            ),
        ),
        Report(
            *("alice", "r", "b", 1, 2, "done"),
            processes=1,
            final=True,
            series=(Series("calls", "/Code/a", "calls", 5, complete=False),),
        ),
    ]
    labels = {"a": {"zone": "b"}, "b": {"zone": "c", "rack": "7"}, "c": {}}
    expected = {name: HostRecord(name, "i", "1", its) for name, its in labels.items()}
    asked = [("calls", "/Code/a"), ("latency", ""), ("m", "")]
    return summed("r", reports, expected, asked, is_over=True)


def test_there_is_a_row_for_each_host_metric_and_key() -> None:
    pytest.importorskip("pyarrow")
    table = result().to_arrow()
    assert table.column_names == [
        *("host", "state", "label.rack", "label.zone", "metric", "focus", "unit", "complete"),
        *("status", "low", "high", "key", "value", "sum", "mean", "p50", "p90", "p99", "p999"),
    ]
    rows = table.to_pylist()
    assert [(one["host"], one["metric"], one["key"], one["value"]) for one in rows] == [
        ("a", "calls", None, 7.0),
        ("a", "latency", None, 11.0),
        ("a", "m", "GET,SET", 3.0),
        ("a", "m", "?", 1.0),
        ("b", "calls", None, 5.0),
        ("b", "latency", None, None),
        ("b", "m", None, None),
        ("c", "calls", None, None),
        ("c", "latency", None, None),
        ("c", "m", None, None),
    ]
    assert [one["complete"] for one in rows] == [True] * 4 + [False] + [True] * 2 + [False] * 3
    assert [one["state"] for one in rows] == ["done"] * 7 + ["silent"] * 3
    assert rows[0]["label.zone"] == "b"
    assert (rows[4]["label.rack"], rows[9]["label.zone"]) == ("7", None)


def test_histograms_are_in_seconds() -> None:
    pytest.importorskip("pyarrow")
    row = result().to_arrow().to_pylist()[1]
    assert row["unit"] == "s"
    assert row["sum"] == LATENCY.sum / 1e9
    assert row["p99"] == LATENCY.quantile(0.99) / 1e9


def test_the_totals_of_the_fleet_come_with_it() -> None:
    pytest.importorskip("pyarrow")
    about = json.loads(result().to_arrow().schema.metadata[b"weft"])
    assert (about["request"], about["complete"]) == ("r", False)
    assert about["totals"][0]["value"] == 12
    assert about["totals"][1]["value"]["p99"] == LATENCY.quantile(0.99) / 1e9


def test_a_data_frame() -> None:
    pytest.importorskip("pandas")
    frame = result().to_pandas()
    calls = frame[frame.metric == "calls"].groupby("label.zone")["value"].sum()
    assert calls.to_dict() == {"b": 7, "c": 5}


def test_there_is_a_row_for_each_process_if_values_are_divided() -> None:
    pytest.importorskip("pyarrow")
    series = [
        Series("latency", "", "ns", LATENCY, part="a (1)"),
        Series("latency", "", "ns", LATENCY, part="a (2)"),
        Series("m", "", "", KEYS, part="a (1)"),
    ]
    one = Report(*("alice", "r", "a", 1, 2, "done"), final=True, series=tuple(series))
    expected = {"a": HostRecord("a", "i", "1")}
    asked = [("latency", ""), ("m", "")]
    rows = summed("r", [one], expected, asked, is_over=True, by="process").to_arrow().to_pylist()
    assert [(one["metric"], one["key"], one["value"]) for one in rows] == [
        ("latency", "a (1)", 11.0),
        ("latency", "a (2)", 11.0),
        ("m", "a (1)/GET,SET", 3.0),
        ("m", "a (1)/?", 1.0),
    ]
    assert rows[1]["p50"] == LATENCY.quantile(0.5) / 1e9


def test_csv_has_the_same() -> None:
    file = io.BytesIO()
    tables.write_csv(file, result())
    rows = [*csv.DictReader(io.StringIO(file.getvalue().decode()))]
    assert len(rows) == 10
    assert (rows[0]["value"], rows[0]["complete"], rows[0]["key"]) == ("7", "true", "")
    assert (rows[2]["key"], rows[3]["key"]) == ("GET,SET", "?")
    assert (rows[7]["value"], rows[7]["complete"], rows[7]["state"]) == ("", "false", "silent")


def test_parquet_has_the_same() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    tables.write_parquet(file, result())
    assert parquet.read_table(file).equals(result().to_arrow(), check_metadata=True)
