"""OpenTelemetry: metrics sent to a collector by OTLP over HTTP.

Names are ``weft.calls`` with the attribute ``weft.focus``, and ``weft.key`` for the entries of a
map; times are in seconds. The resource is the process that is measured. ``weft.measured_share`` is
below 1 for what is an estimate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from weft import __version__
from weft._running import Running
from weft.errors import InvalidArgument
from weft.export.extras import needed
from weft.export.values import Source, base_unit, cumulative, falls, readable
from weft.metrics.model import Measured, TargetFacts
from weft.probes import Histogram

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import (
        HistogramDataPoint,
        Metric,
        MetricsData,
        NumberDataPoint,
    )

_PATH = "/v1/metrics"
_PATIENCE = 10.0
_UNITS = {"seconds": "s", "bytes": "By"}


class Pusher(Running):
    """Sends what the source says at each interval, and once more when it is closed."""

    def __init__(self, url: str, source: Source, interval: float) -> None:
        with needed("otel", "sending metrics by OTLP"):
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        self._source = source
        self._interval = interval
        self._starts: dict[tuple[str, str], int] = {}
        self._exporter = OTLPMetricExporter(url, timeout=min(interval, _PATIENCE))
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="weft-otlp", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send the last values, and no more."""
        self._closing.set()
        self._thread.join()
        self._exporter.shutdown()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._closing.wait(self._interval)
            self._exporter.export(self._data())

    def _data(self) -> MetricsData:
        target, metrics = self._source()
        now = time.time_ns()
        for metric in metrics:
            # The first sample of a history may move when the history is folded; a start may not.
            self._starts.setdefault((metric.name, metric.focus), _start(metric, now))
        return metrics_data(target, metrics, self._starts, now)


def push(url: str, source: Source, interval: float) -> Pusher:
    """Send what the source says to a collector, every so many seconds: ``http://host:4318``."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidArgument(
            f"{url!r} is no address of a collector",
            "it must be an http or https URL",
            "try http://127.0.0.1:4318",
        )
    if parts.path in ("", "/"):
        url = parts._replace(path=_PATH).geturl()
    return Pusher(url, source, interval)


def metrics_data(
    target: TargetFacts,
    metrics: Sequence[Measured],
    starts: dict[tuple[str, str], int],
    now: int,
) -> MetricsData:
    """Return everything in OpenTelemetry's data model; times are in nanoseconds since 1970."""
    from opentelemetry.sdk.metrics.export import (
        Gauge,
        Metric,
        MetricsData,
        NumberDataPoint,
        ResourceMetrics,
        ScopeMetrics,
    )
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    program = readable(PurePath(target.program).name)
    resource = Resource.create(
        {
            "service.name": program,
            "process.pid": target.pid,
            "process.executable.name": program,
            "process.command_args": [readable(argument) for argument in target.command],
        }
    )
    by_name: dict[str, list[Measured]] = {}
    for metric in metrics:
        by_name.setdefault(metric.name, []).append(metric)
    shares = [
        NumberDataPoint(
            {"weft.metric": metric.name, "weft.focus": readable(metric.focus)},
            now,
            now,
            metric.shed.share if metric.shed else 1.0,
        )
        for metric in metrics
    ]
    share = Metric(
        "weft.measured_share",
        "Part of the time that the metric is measured; below 1 its value is an estimate",
        "1",
        Gauge(shares),
    )
    everything = [*(_metric(group, starts, now) for group in by_name.values()), share]
    scope = ScopeMetrics(InstrumentationScope("weft", __version__), everything, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(group: list[Measured], starts: dict[tuple[str, str], int], now: int) -> Metric:
    """A metric with a point for each focus; all of one name are of one kind."""
    from opentelemetry.sdk.metrics import export

    first = group[0]
    unit, _ = base_unit(first)
    data: export.Histogram | export.Sum
    if first.kind == "histogram":
        histograms = [_histogram_point(metric, starts, now) for metric in group]
        data = export.Histogram(histograms, export.AggregationTemporality.CUMULATIVE)
    else:
        numbers = [point for metric in group for point in _number_points(metric, starts, now)]
        is_monotonic = not any(falls(metric) for metric in group)
        data = export.Sum(numbers, export.AggregationTemporality.CUMULATIVE, is_monotonic)
    unit = _UNITS.get(unit, f"{{{first.unit}}}")
    return export.Metric(f"weft.{first.name}", first.title, unit, data)


def _histogram_point(
    metric: Measured, starts: dict[tuple[str, str], int], now: int
) -> HistogramDataPoint:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    value = metric.value
    assert isinstance(value, Histogram)
    _, divisor = base_unit(metric)
    bounds = cumulative(value)
    totals = [0, *(total for _, total in bounds), value.count]
    counts = [after - before for before, after in pairwise(totals)]
    return HistogramDataPoint(
        attributes={"weft.focus": readable(metric.focus)},
        start_time_unix_nano=starts[metric.name, metric.focus],
        time_unix_nano=now,
        count=value.count,
        sum=value.sum / divisor,
        bucket_counts=counts,
        explicit_bounds=[bound / divisor for bound, _ in bounds],
        min=None,  # type: ignore[arg-type]  # not known, and optional in what is sent
        max=None,  # type: ignore[arg-type]
    )


def _number_points(
    metric: Measured, starts: dict[tuple[str, str], int], now: int
) -> list[NumberDataPoint]:
    from opentelemetry.sdk.metrics.export import NumberDataPoint

    value = metric.value
    assert not isinstance(value, Histogram)
    _, divisor = base_unit(metric)
    start = starts[metric.name, metric.focus]
    focus = {"weft.focus": readable(metric.focus)}
    entries: list[tuple[dict[str, str], int | float]]
    if isinstance(value, dict):
        entries = [({**focus, "weft.key": readable(key)}, count) for key, count in value.items()]
    else:
        entries = [(focus, value)]
    # Whole numbers stay whole: they are exact.
    return [
        NumberDataPoint(attributes, start, now, number if divisor == 1 else number / divisor)
        for attributes, number in entries
    ]


def _start(metric: Measured, now: int) -> int:
    """When it was asked for, as far as is known."""
    history = metric.history()
    return round((history[0].time - history[0].seconds) * 1e9) if history else now
