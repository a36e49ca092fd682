"""What a host tells Prometheus and OpenTelemetry."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
pytest.importorskip("prometheus_client")

from opentelemetry.sdk.metrics.export import Sum
from prometheus_client.core import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.measurements import SHED, Measurement, distribution, growing
from weft.errors import InvalidArgument
from weft.export.metrics.otlp import metrics_data
from weft.export.metrics.prometheus import Collector
from weft.fleet.folding import OTHERS, Series, folded
from weft.fleet.protocol import Report
from weft.fleet.sinks import MOST_EXPORTED, MOST_EXPORTED_KEYS, Sinks
from weft.fleet.worth import of_metric
from weft.model.measured import Interval, Missing

LABELS = {"zone": "b", "rack.no": 'a"7'}
WHO = {
    "focus": "",
    "host": "web-1",
    "label_zone": "b",
    "label_rack_no": 'a"7',
    "requester": "alice",
    "request": "r",
}


def series(metric: Measurement, *, is_over: bool = False) -> Series:
    """What a host makes of a metric of one process."""
    worth = of_metric(metric, is_over=is_over)
    exact = metric.completeness.is_exact
    return Series(metric.name, metric.focus, metric.unit, metric.value, "sum", exact, worth=worth)


def report(*parts: Series, request: str = "r", final: bool = False) -> Report:
    return Report("alice", request, "web-1", 1, 1, "measuring", final=final, series=parts)


def told(*parts: Series, reasons: Sequence[str] = (), said: list[str] | None = None) -> Sinks:
    sinks = Sinks("web-1", LABELS, (said if said is not None else []).append)
    sinks.see(report(*parts), 3.0, reasons)
    return sinks


def let_pass(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    later = time.monotonic() + seconds
    monkeypatch.setattr(time, "monotonic", lambda: later)


def samples(sinks: Sinks) -> dict[str, list[tuple[dict[str, str], float]]]:
    """What Prometheus reads, by name."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(sinks.source))
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for one in family.samples:
            found.setdefault(one.name, []).append((one.labels, one.value))
    return found


def status_of(sinks: Sinks, metric: str) -> str:
    (status,) = (
        labels["status"]
        for labels, value in samples(sinks)["weft_status"]
        if labels["metric"] == metric and value
    )
    return status


def test_the_processes_of_a_host_are_one() -> None:
    latency = distribution((8, 15, 3))
    parts = [
        [
            series(Measurement("calls", 3)),
            series(Measurement("latency", latency, "histogram", "ns")),
        ]
        for _ in range(2)
    ]
    found = samples(told(*folded(parts)))
    assert found["weft_calls_total"] == [(WHO, 6.0)]
    assert found["weft_latency_seconds_count"] == [(WHO, 6.0)]
    assert found["weft_host_requests"][0][1] == 1


def test_so_are_those_that_a_request_tells_apart() -> None:
    parts = [replace(series(Measurement("calls", 3)), part=f"a ({pid})") for pid in (1, 2)]
    assert samples(told(*parts))["weft_calls_total"] == [(WHO, 6.0)]


def test_the_greatest_of_keys_are_not_added_up() -> None:
    keys: dict[str, int | float] = {f"k{at:03}": at for at in range(150)}
    greatest = replace(series(Measurement("m", keys, "map")), aggregate="max")
    found = {labels["key"]: value for labels, value in samples(told(greatest))["weft_m_total"]}
    assert (found["k149"], found[OTHERS]) == (149, 49)


def test_what_is_missing_of_a_process_is_missing_of_all() -> None:
    broken = Measurement("calls", 3, missing=(Missing("exit points", "/Code/a", "why", 2),))
    sinks = told(*folded([[series(Measurement("calls", 3))], [series(broken)], [series(broken)]]))
    assert status_of(sinks, "calls") == "incomplete"
    cause = {"metric": "calls", "what": "exit points", "why": "why"}
    assert samples(sinks)["weft_missing"] == [({**WHO, **cause}, 4.0)]


def test_an_estimate_of_one_is_an_estimate_of_all() -> None:
    estimate = Measurement("calls", 100, interval=Interval(90, 110, 0.95), shed=SHED)
    sinks = told(*folded([[series(Measurement("calls", 3))], [series(estimate)]]))
    assert status_of(sinks, "calls") == "estimate"
    found = samples(sinks)
    about = {**WHO, "metric": "calls"}
    assert found["weft_interval"] == [
        ({**about, "bound": "low"}, 93.0),
        ({**about, "bound": "high"}, 113.0),
    ]
    assert (about, 0.1) in found["weft_measured_share"]


def test_what_cannot_be_added_is_missing() -> None:
    sinks = told(
        *folded([[series(Measurement("x", 1, unit=unit))] for unit in ("s", "s", "calls")])
    )
    assert status_of(sinks, "x") == "incomplete"
    ((labels, number),) = samples(sinks)["weft_missing"]
    assert (labels["what"], number) == ("values of processes", 1)


def test_what_could_not_be_measured_in_a_process_is_missing() -> None:
    nothing = Series("x", "", "", None, complete=False)
    sinks = told(*folded([[nothing], [series(Measurement("x", 1, "counter", "s"))]]))
    assert status_of(sinks, "x") == "incomplete"
    assert samples(sinks)["weft_missing"][0][0]["why"] == "there is none of some"


def test_why_a_request_is_incomplete_is_said_of_each_value() -> None:
    reasons = [f"reason {number}" for number in range(9)]
    sinks = told(series(Measurement("calls", 1)), series(Measurement("n", 1)), reasons=reasons)
    assert (status_of(sinks, "calls"), status_of(sinks, "n")) == ("incomplete", "incomplete")
    whys = [one["why"] for one, _ in samples(sinks)["weft_missing"] if one["metric"] == "calls"]
    assert whys == [*reasons[:4], "for other reasons"]


def test_the_rate_is_the_newest_and_ends_with_the_process() -> None:
    rate = Measurement("alloc_rate", 9.0, "rate", samples=growing([3.0]), is_monotonic=False)
    parts = [[series(rate)], [series(rate, is_over=True)]]
    assert samples(told(*folded(parts)))["weft_alloc_rate"] == [(WHO, 3.0)]
    assert samples(told(*folded(parts[1:])))["weft_alloc_rate"] == [(WHO, 0.0)]


def test_series_go_away_some_time_after_their_request(monkeypatch: pytest.MonkeyPatch) -> None:
    sinks = told(series(Measurement("calls", 3)))
    sinks.see(report(series(Measurement("calls", 7)), final=True), 4.0)
    # Prometheus may not have asked for the last values yet.
    assert samples(sinks)["weft_calls_total"] == [(WHO, 7.0)]
    assert samples(sinks)["weft_host_requests"][0][1] == 0
    let_pass(monkeypatch, 100)
    found = samples(sinks)
    assert "weft_calls_total" not in found
    assert {one["metric"] for one, _ in found["weft_status"]} == {"host_requests", "host_left_out"}


def test_a_request_that_has_failed_ends_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    sinks = told(series(Measurement("calls", 3)))
    sinks.end(("alice", "r"))
    let_pass(monkeypatch, 100)
    assert "weft_calls_total" not in samples(sinks)


def test_which_keys_are_apart_does_not_change() -> None:
    many: dict[str, int | float] = {f"k{at:03}": 1000 - at for at in range(150)}
    sinks = told(series(Measurement("m", many, "map")))
    more: dict[str, int | float] = {**many, "k149": 10**6, "new": 5}
    sinks.see(report(series(Measurement("m", more, "map"))), 4.0)
    found = {labels["key"]: value for labels, value in samples(sinks)["weft_m_total"]}
    assert len(found) == MOST_EXPORTED_KEYS + 1
    assert sum(found.values()) == sum(more.values())
    assert found["k000"] == 1000
    assert found[OTHERS] == sum(many[f"k{at:03}"] for at in range(100, 149)) + 10**6 + 5
    assert status_of(sinks, "m") == "exact"


def test_a_map_that_was_cut_is_marked() -> None:
    sinks = told(series(Measurement("m", {"a": 1, OTHERS: 5}, "map")))
    assert status_of(sinks, "m") == "incomplete"
    assert len(samples(sinks)["weft_m_total"]) == 2


def test_long_keys_are_added_up() -> None:
    keys: dict[str, int | float] = {"x" * 9000 + end: 2 for end in "ab"}
    ((labels, value),) = samples(told(series(Measurement("m", keys, "map"))))["weft_m_total"]
    assert (len(labels["key"]), value) == (503, 4)


def test_how_many_are_exported_is_bounded_and_said_once() -> None:
    said: list[str] = []
    one = [series(Measurement("calls", 1, focus=f"f{at}")) for at in range(MOST_EXPORTED - 1)]
    sinks = told(*one, said=said)
    assert said == []
    two = [series(Measurement("calls", 1, focus=f"f{at}")) for at in range(3)]
    for _ in range(2):
        sinks.see(report(*two, request="second"), 1.0)
    found = samples(sinks)
    assert len(found["weft_calls_total"]) == MOST_EXPORTED
    assert found["weft_host_left_out"][0][1] == 2
    assert len(said) == 1
    assert "weft_host_left_out" in said[0]
    # What has ended makes room.
    sinks.end(("alice", "r"))
    sinks.see(report(*two, request="second"), 2.0)
    found = samples(sinks)
    assert len(found["weft_calls_total"]) == 3
    assert found["weft_host_left_out"][0][1] == 0


def test_texts_may_be_anything() -> None:
    odd = Measurement("n\ud800-x", 1, focus='\ud800"\n', title="\ud800\n", unit="\ud800")
    sinks = told(series(odd), series(Measurement("m", {'"\ud800\n': 1}, "map")))
    assert samples(sinks)["weft_n__x_total"][0][0]["focus"] == '?"\n'
    assert samples(sinks)["weft_m_total"][0][0]["key"] == '"?\n'
    metrics_data(sinks.source(), time.time_ns())


def test_labels_that_are_one_to_prometheus_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="label_a_b"):
        Sinks("web-1", {"a.b": "1", "a_b": "2"})


def test_otlp_has_the_host_as_its_resource() -> None:
    before = time.time_ns()
    sinks = told(series(Measurement("calls", 3)))
    sinks.see(replace(report(series(Measurement("calls", 4))), request="other"), 1.0)
    data = metrics_data(sinks.source(), before)
    (resource,) = data.resource_metrics
    about = resource.resource.attributes
    assert about["host.name"] == about["service.instance.id"] == "web-1"
    assert about["service.name"] == "weft-host"
    assert about["weft.label.rack.no"] == 'a"7'
    (scope,) = resource.scope_metrics
    (calls,) = [one for one in scope.metrics if one.name == "weft.calls"]
    assert isinstance(calls.data, Sum)
    assert calls.data.is_monotonic
    points = [(dict(one.attributes or {}), one.value) for one in calls.data.data_points]
    assert points == [
        ({"weft.focus": "", "weft.requester": "alice", "weft.request": "r"}, 3),
        ({"weft.focus": "", "weft.requester": "alice", "weft.request": "other"}, 4),
    ]
    first = calls.data.data_points[0].start_time_unix_nano
    assert before - 4e9 < first <= time.time_ns() - 3e9
    # A start stays what it was.
    sinks.see(report(series(Measurement("calls", 9))), 5.0)
    again = metrics_data(sinks.source(), time.time_ns()).resource_metrics[0].scope_metrics[0]
    (calls,) = [one for one in again.metrics if one.name == "weft.calls"]
    assert calls.data.data_points[0].start_time_unix_nano == first
