"""What Prometheus reads from weft."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from tests.measurements import LATENCY, Measurement, distribution, source
from weft.errors import InvalidArgument, SystemCall
from weft.export.metrics.prometheus import Server, serve

WHO = 'pid="4242",program="/usr/bin/redis-server"'


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(":0", source()) as server:
        yield server


def get(url: str, accept: str = "text/plain") -> str:
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=20) as answer:
        text: bytes = answer.read()
    return text.decode()


def page(*metrics: Measurement) -> list[str]:
    with serve(":0", source(*metrics)) as server:
        return get(server.url).splitlines()


def test_counters(server: Server) -> None:
    lines = get(server.url).splitlines()
    assert "# HELP weft_calls_total Calls" in lines
    assert lines.count("# TYPE weft_calls_total counter") == 1
    focus = "/Code/redis-server/processCommand"
    assert f'weft_calls_total{{focus="{focus}",{WHO}}} 120123.0' in lines
    assert f'weft_alloc_bytes_total{{focus="",{WHO}}} 4.8234496e+07' in lines


def test_timers_are_in_seconds(server: Server) -> None:
    lines = get(server.url).splitlines()
    focus = "/Code/libpthread.so.0,/Thread/io_thd_1"
    assert f'weft_lock_wait_seconds_total{{focus="{focus}",{WHO}}} 0.112' in lines


def test_maps_have_keys(server: Server) -> None:
    line = f'weft_by_caller_total{{focus="",key="call",{WHO}}} 81000.0'
    assert line in get(server.url).splitlines()


def test_histograms_are_cumulative_and_in_seconds(server: Server) -> None:
    families = {one.name: one for one in text_string_to_metric_families(get(server.url))}
    family = families["weft_latency_seconds"]
    assert family.type == "histogram"
    buckets = [
        (float(sample.labels["le"]), sample.value)
        for sample in family.samples
        if sample.name.endswith("_bucket")
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == (float("inf"), LATENCY.count)
    below = sum(bucket.count for bucket in LATENCY.buckets if bucket.high < 1 << 15)
    assert ((((1 << 15) - 1) / 1e9), below) in buckets
    (total,) = [sample.value for sample in family.samples if sample.name.endswith("_sum")]
    assert total == LATENCY.sum / 1e9


def test_estimates_are_marked(server: Server) -> None:
    families = {one.name: one for one in text_string_to_metric_families(get(server.url))}
    shares = {
        (sample.labels["metric"], sample.labels["focus"]): sample.value
        for sample in families["weft_measured_share"].samples
    }
    assert shares["calls", "/Code/redis-server/dictFind"] == 0.1
    assert shares["calls", "/Code/redis-server/processCommand"] == 1


def test_open_metrics_can_be_read_too(server: Server) -> None:
    text = get(server.url, "application/openmetrics-text; version=1.0.0")
    names = [family.name for family in openmetrics_families(text)]
    assert "weft_calls" in names
    assert "weft_latency_seconds" in names


def test_what_can_go_down_is_a_gauge() -> None:
    lines = page(Measurement("live_bytes", 500, unit="bytes", is_monotonic=False))
    assert "# TYPE weft_live_bytes gauge" in lines
    assert f'weft_live_bytes{{focus="",{WHO}}} 500.0' in lines


def test_negative_values_have_no_sum() -> None:
    lines = page(Measurement("got", distribution((-5, -1, 2), (0, 4, 1)), kind="histogram"))
    assert f'weft_got_bucket{{focus="",le="0.0",{WHO}}} 2.0' in lines
    assert not any(line.startswith("weft_got_sum") for line in lines)


def test_names_may_be_any_bytes() -> None:
    lines = page(Measurement("calls", 1, focus='/Code/\udcff/a"b\\c\n'))
    assert f'weft_calls_total{{focus="/Code/?/a\\"b\\\\c\\n",{WHO}}} 1.0' in lines


def test_an_address_is_a_port_with_a_host_or_without(server: Server) -> None:
    assert server.url.startswith("http://127.0.0.1:")
    for wrong in ("", "9100:", "host", ":70000", ":-1"):
        with pytest.raises(InvalidArgument):
            serve(wrong, source())
    taken = server.url.split(":")[2].partition("/")[0]
    with pytest.raises(SystemCall, match="cannot serve"):
        serve(f"127.0.0.1:{taken}", source())
