"""Metrics in a notebook."""

from __future__ import annotations

import xml.etree.ElementTree as xml

from tests.measurements import LATENCY, Measurement, growing, log2, measurements
from weft.export.metrics import notebook
from weft.model.measured import Interval, Missing


def table(*metrics: Measurement) -> list[xml.Element]:
    """The rows of the table, which must be well-formed."""
    whole = xml.fromstring(notebook.html(metrics))
    assert whole.tag == "table"
    return whole.findall("./tbody/tr")


def words(row: xml.Element) -> list[str]:
    return ["".join(cell.itertext()) for cell in row]


def test_there_is_a_row_for_each_metric() -> None:
    rows = [words(row)[:4] for row in table(*measurements())]
    assert rows == [
        ["calls", "/Code/redis-server/processCommand", "120,123 calls", "24.1k/s"],
        [
            "calls",
            "/Code/redis-server/dictFind",
            "~8,400,000 calls (8.2M to 8.6M, 95% confidence)",
            "1.2M/s",
        ],
        ["alloc_bytes", "", "48,234,496 bytes", "6.6 MiB/s"],
        ["lock_wait", "/Code/libpthread.so.0,/Thread/io_thd_1", "112 ms", "27.0 ms/s"],
        ["latency", "/Code/redis-server/processCommand", "15,582 values", "2.0k/s"],
        ["by_caller", "", "120,123 calls", "17.2k/s"],
    ]


def test_a_sparkline_has_a_point_for_each_sample() -> None:
    (row,) = table(Measurement("calls", 30, samples=growing([10, 10, 30])))
    (line,) = row.iter("polyline")
    assert line.get("points") == "0.0,12.0 60.0,23.0 120.0,1.0"


def test_a_histogram_has_a_bar_for_each_bucket() -> None:
    (row,) = table(Measurement("latency", LATENCY, kind="histogram", unit="ns"))
    bars = [float(bar.get("height", "")) for bar in row.iter("rect")]
    assert len(bars) == len(LATENCY.buckets)
    assert max(bars) == bars[3] == 24.0
    assert "p99 253 us" in words(row)[4]


def test_names_cannot_smuggle_markup() -> None:
    name = "<script>&\"'\x00"
    by_key = Measurement("by_key", {name: 1}, kind="map", focus=name, title=name)
    (row,) = table(by_key)
    assert [element.tag for element in row.iter()].count("script") == 0
    assert words(row)[1] == "<script>&\"'?"


def test_nothing_yet() -> None:
    empty = Measurement("latency", log2(first=1), kind="histogram", unit="ns")
    assert words(table(Measurement("calls", 0))[0]) == ["calls", "", "0 calls", "-", ""]
    assert words(table(empty)[0])[2] == "0 values"
    assert table() == []


def test_repr() -> None:
    calls, estimate, _, wait, latency, by_caller = (
        notebook.text(metric) for metric in measurements()
    )
    assert calls == "<weft.Metric calls@/Code/redis-server/processCommand: 120,123 calls>"
    assert estimate == (
        "<weft.Metric calls@/Code/redis-server/dictFind: "
        "~8,400,000 calls (8.2M to 8.6M, 95% confidence)>"
    )
    assert wait == "<weft.Metric lock_wait@/Code/libpthread.so.0,/Thread/io_thd_1: 112 ms>"
    assert latency == (
        "<weft.Metric latency@/Code/redis-server/processCommand: "
        "15,582 values, p50 51.1 us, p99 253 us>"
    )
    assert by_caller == "<weft.Metric by_caller: 120,123 calls in 3 keys>"


def test_repr_says_what_is_missing() -> None:
    missing = (Missing("exit points", "/Code/a/f", "no room", 2),)
    shed = Measurement("calls", 7, missing=missing)
    doubt = "incomplete: missing exit points of /Code/a/f (2): no room"
    assert notebook.text(shed) == f"<weft.Metric calls: !7 calls ({doubt})>"
    estimate = Measurement("latency", LATENCY, interval=Interval(1, 2e6, 0.9), unit="ns")
    assert notebook.text(estimate).endswith("(1 to 2.0M, 90% confidence)>")
