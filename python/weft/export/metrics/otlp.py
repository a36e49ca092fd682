"""OpenTelemetry: metrics sent to a collector by OTLP over HTTP.

Names are ``weft.calls`` with the attribute ``weft.focus``, and ``weft.key`` for the entries of a
map; times are in seconds. The resource is the process that is measured. What a value is worth
stands beside it, with the attribute ``weft.metric``: ``weft.status`` is 1 for one of the statuses
exact, estimate and incomplete, ``weft.missing`` says how much is missing by cause,
``weft.interval`` has the ends of an estimate's interval, and ``weft.measured_share`` is below 1 for
what is not measured all the time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from weft import __version__
from weft.base.extras import needed
from weft.base.running import Running
from weft.errors import InvalidArgument
from weft.export.metrics.values import (
    Rising,
    Source,
    base_unit,
    by_cause,
    cumulative,
    ends,
    exported_value,
    readable,
)
from weft.model.completeness import STATUSES
from weft.model.measured import Measured, TargetFacts
from weft.model.values import Histogram

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import (
        HistogramDataPoint,
        Metric,
        MetricsData,
        NumberDataPoint,
    )

_LOG = logging.getLogger(__name__)
_PATH = "/v1/metrics"
_PATIENCE = 10.0
_UNITS = {"seconds": "s", "bytes": "By"}


class Pusher(Running):
    """Sends what the source says at each interval, and once more when it is closed."""

    def __init__(
        self, url: str, source: Source, interval: float, on_failure: Callable[[str], None]
    ) -> None:
        with needed("otel", "sending metrics by OTLP"):
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        self._url = url
        self._source = source
        self._interval = interval
        self._on_failure = on_failure
        self._said = _LastWords()
        self._sent = self._failed = 0
        # Its logger prints to standard error, again and again, unless it has a handler.
        logging.getLogger("opentelemetry").addHandler(self._said)
        self._starts: dict[tuple[str, str], int] = {}
        self._rising = Rising()
        self._exporter = OTLPMetricExporter(url, timeout=min(interval, _PATIENCE))
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="weft-otlp", daemon=True)
        self._thread.start()

    def _close(self) -> None:
        """Send the last values, and no more."""
        self._closing.set()
        self._thread.join()
        self._exporter.shutdown()
        logging.getLogger("opentelemetry").removeHandler(self._said)
        if self._failed > 1:
            self._on_failure(f"{self._failed} of {self._sent} exports to the collector failed")

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._closing.wait(self._interval)
            result = self._exporter.export(self._data())
            self._sent += 1
            if result.name != "SUCCESS":
                self._failed += 1
                if self._failed == 1:
                    why = f": {self._said.text}" if self._said.text else ""
                    self._on_failure(f"the collector {self._url} does not take metrics{why}")

    def _data(self) -> MetricsData:
        target, metrics = self._source()
        now = time.time_ns()
        for metric in metrics:
            # The first sample of a history may move when the history is folded; a start may not.
            self._starts.setdefault((metric.name, metric.focus), _start(metric, now))
        return metrics_data(target, metrics, self._starts, now, self._rising)


class _LastWords(logging.Handler):
    """Keeps what was logged last."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


def check(url: str) -> str:
    """Find out whether metrics can be sent to a URL; returns it with the path that it stands for.

    Whether a collector listens there is seen when they are sent.
    """
    with needed("otel", "sending metrics by OTLP"):
        import opentelemetry.exporter.otlp.proto.http.metric_exporter  # noqa: F401
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right:
        raise InvalidArgument(
            f"{url!r} is no address of a collector",
            "it must be an http or https URL",
            "try http://127.0.0.1:4318",
        )
    return parts._replace(path=_PATH).geturl() if parts.path in ("", "/") else url


def push(
    url: str,
    source: Source,
    interval: float,
    on_failure: Callable[[str], None] = _LOG.warning,
) -> Pusher:
    """Send what the source says to a collector, every so many seconds: ``http://host:4318``.

    ``on_failure`` is told when that first fails, and at the end if it failed more than once.
    """
    return Pusher(check(url), source, interval, on_failure)


def metrics_data(
    target: TargetFacts,
    metrics: Sequence[Measured],
    starts: dict[tuple[str, str], int],
    now: int,
    rising: Rising,
) -> MetricsData:
    """Return everything in OpenTelemetry's data model; times are in nanoseconds since 1970."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    program = readable(PurePath(target.program).name)
    resource = Resource.create(
        {
            "service.name": readable(target.name),
            "process.pid": target.pid,
            "process.executable.name": program,
            "process.command_args": [readable(argument) for argument in target.command],
        }
    )
    by_name: dict[str, list[Measured]] = {}
    for metric in metrics:
        by_name.setdefault(metric.name, []).append(metric)
    everything = [*(_metric(group, starts, now, rising) for group in by_name.values())]
    everything += _worth(metrics, now)
    scope = ScopeMetrics(InstrumentationScope("weft", __version__), everything, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _worth(metrics: Sequence[Measured], now: int) -> list[Metric]:
    """What each value is worth, as gauges: attributes of the value itself would part its series."""
    from opentelemetry.sdk.metrics.export import Gauge, Metric, NumberDataPoint

    shares: list[NumberDataPoint] = []
    statuses: list[NumberDataPoint] = []
    missing: list[NumberDataPoint] = []
    intervals: list[NumberDataPoint] = []
    for metric in metrics:
        about = {"weft.metric": metric.name, "weft.focus": readable(metric.focus)}

        def point(value: float, about: dict[str, str] = about, **more: str) -> NumberDataPoint:
            named = {f"weft.{name}": readable(text) for name, text in more.items()}
            return NumberDataPoint({**about, **named}, now, now, value)

        shares.append(point(metric.shed.share if metric.shed else 1.0))
        completeness = metric.completeness
        statuses += [point(int(completeness.status == one), status=one) for one in STATUSES]
        causes = by_cause(completeness).items()
        missing += [point(count, what=what, why=why) for (what, why), count in causes]
        intervals += [point(end, bound=bound) for bound, end in ends(metric).items()]
    share = "Part of the time that the metric is measured; below 1 its value is an estimate"
    described = (
        ("measured_share", share, shares),
        ("status", "Whether the metric is exact, by status: 1 or 0", statuses),
        ("missing", "How much the metric does not contain, by cause", missing),
        ("interval", "Where the value of an estimate is", intervals),
    )
    # A gauge without points is none.
    return [
        Metric(f"weft.{name}", text, "1", Gauge(points))
        for name, text, points in described
        if points
    ]


def _metric(
    group: list[Measured], starts: dict[tuple[str, str], int], now: int, rising: Rising
) -> Metric:
    """A metric with a point for each focus; all of one name are of one kind."""
    from opentelemetry.sdk.metrics import export

    first = group[0]
    unit, _ = base_unit(first)
    data: export.Histogram | export.Sum | export.Gauge
    if first.kind == "histogram":
        histograms = [_histogram_point(metric, starts, now) for metric in group]
        data = export.Histogram(histograms, export.AggregationTemporality.CUMULATIVE)
    else:
        numbers = [
            point for metric in group for point in _number_points(metric, starts, now, rising)
        ]
        cumulative = export.AggregationTemporality.CUMULATIVE
        data = (
            export.Gauge(numbers)
            if first.kind == "rate"
            else export.Sum(numbers, cumulative, first.is_monotonic)
        )
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
    metric: Measured, starts: dict[tuple[str, str], int], now: int, rising: Rising
) -> list[NumberDataPoint]:
    from opentelemetry.sdk.metrics.export import NumberDataPoint

    value = exported_value(metric)
    assert not isinstance(value, Histogram)
    _, divisor = base_unit(metric)
    start = starts[metric.name, metric.focus]
    focus = {"weft.focus": readable(metric.focus)}
    entries: list[tuple[dict[str, str], int | float]]
    if isinstance(value, dict):
        entries = [
            ({**focus, "weft.key": readable(key)}, rising.of(metric, count, key))
            for key, count in value.items()
        ]
    else:
        entries = [(focus, rising.of(metric, value))]
    # Whole numbers stay whole: they are exact.
    return [
        NumberDataPoint(attributes, start, now, number if divisor == 1 else number / divisor)
        for attributes, number in entries
    ]


def _start(metric: Measured, now: int) -> int:
    """When it was asked for, as far as is known."""
    history = metric.history()
    return round((history[0].time - history[0].seconds) * 1e9) if history else now
