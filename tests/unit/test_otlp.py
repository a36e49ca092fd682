"""What an OpenTelemetry collector receives from weft."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from tests.collector import Collector, attributes, collecting
from tests.measurements import LATENCY, START, Measurement, growing, source
from weft.errors import InvalidArgument
from weft.export.metrics.otlp import push

CUMULATIVE = 2


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def last(collector: Collector, *metrics: Measurement) -> dict[str, Any]:
    """The metrics by name, as they come when the exporter is closed at once."""
    push(collector.url, source(*metrics), 60).close()
    (resource,) = collector.requests[-1][1].resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "weft"
    return {metric.name: metric for metric in scope.metrics}


def test_the_resource_is_the_target(collector: Collector) -> None:
    last(collector)
    path, request = collector.requests[0]
    assert path == "/v1/metrics"
    about = attributes(request.resource_metrics[0].resource)
    assert about["process.pid"] == 4242
    assert about["process.executable.name"] == "redis-server"
    assert about["service.name"] == "redis-server"


def test_counters_are_exact_monotonic_sums(collector: Collector) -> None:
    calls = last(collector)["weft.calls"]
    assert calls.unit == "{calls}"
    assert calls.description == "Calls"
    assert calls.sum.is_monotonic
    assert calls.sum.aggregation_temporality == CUMULATIVE
    first, second = calls.sum.data_points
    assert attributes(first) == {"weft.focus": "/Code/redis-server/processCommand"}
    assert (first.as_int, second.as_int) == (120_123, 8_400_000)
    assert first.start_time_unix_nano == START * 1e9
    assert first.time_unix_nano > first.start_time_unix_nano


def test_units_are_base_units(collector: Collector) -> None:
    metrics = last(collector)
    assert metrics["weft.alloc_bytes"].unit == "By"
    assert metrics["weft.alloc_bytes"].sum.data_points[0].as_int == 48_234_496
    assert metrics["weft.lock_wait"].unit == "s"
    assert metrics["weft.lock_wait"].sum.data_points[0].as_double == 0.112


def test_maps_have_keys(collector: Collector) -> None:
    points = last(collector)["weft.by_caller"].sum.data_points
    assert {attributes(point)["weft.key"]: point.as_int for point in points} == {
        "call": 81_000,
        "processInputBuffer": 39_000,
        "loadAppendOnlyFile": 123,
    }


def test_histograms_are_what_was_measured(collector: Collector) -> None:
    latency = last(collector)["weft.latency"]
    assert latency.unit == "s"
    assert latency.histogram.aggregation_temporality == CUMULATIVE
    (point,) = latency.histogram.data_points
    assert point.count == LATENCY.count
    assert point.sum == LATENCY.sum / 1e9
    assert not point.HasField("min")
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert list(point.explicit_bounds) == sorted(point.explicit_bounds)
    bounds = zip([*point.explicit_bounds, float("inf")], point.bucket_counts, strict=True)
    filled = [(bound, count) for bound, count in bounds if count]
    assert filled == [(bucket.high / 1e9, bucket.count) for bucket in LATENCY.buckets]


def test_estimates_are_marked(collector: Collector) -> None:
    points = last(collector)["weft.measured_share"].gauge.data_points
    shares = {attributes(point)["weft.focus"]: point.as_double for point in points}
    assert shares["/Code/redis-server/dictFind"] == 0.1
    assert shares["/Code/redis-server/processCommand"] == 1


def test_what_can_go_down_is_not_monotonic(collector: Collector) -> None:
    metric = Measurement("live_bytes", 500, unit="bytes", is_monotonic=False)
    live = last(collector, metric)["weft.live_bytes"]
    assert not live.sum.is_monotonic
    assert live.sum.data_points[0].as_int == 500


def test_it_is_sent_at_each_interval_with_the_same_start(collector: Collector) -> None:
    metric = Measurement("calls", 1, samples=growing([1]))
    pusher = push(f"{collector.url}/v1/metrics", source(metric), 0.05)
    assert collector.arrived.wait(30)
    metric.value, metric.samples = 2, growing([2, 2], seconds=3)[1:]
    pusher.close()
    points = [
        request.resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points[0]
        for _, request in collector.requests
    ]
    assert points[0].as_int == 1
    assert points[-1].as_int == 2
    assert {point.start_time_unix_nano for point in points} == {int(START * 1e9)}


@pytest.mark.parametrize("url", ["", "127.0.0.1:4318", "grpc://host", "http://"])
def test_the_address_must_be_a_url(url: str) -> None:
    with pytest.raises(InvalidArgument, match="collector"):
        push(url, source(), 1)
