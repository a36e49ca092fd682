"""OpenTelemetry: metrics sent to a collector by OTLP over HTTP.

Names are ``weft.calls`` with the attribute ``weft.focus``, and ``weft.key`` for the entries of a
map; times are in seconds. The resource is the process that is measured, or the host. What a value
is worth stands beside it, with the attribute ``weft.metric``: ``weft.status`` is 1 for one of the
statuses exact, estimate and incomplete, ``weft.missing`` says how much is missing by cause,
``weft.interval`` has the ends of an estimate's interval, and ``weft.measured_share`` is below 1 for
what is not measured all the time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from weft import __version__
from weft.base.extras import needed
from weft.base.numbers import readable
from weft.base.running import Running
from weft.errors import InvalidArgument
from weft.export.metrics.values import (
    Source,
    Subject,
    base_unit,
    by_cause,
    cumulative,
    ends,
    exported_value,
)
from weft.model.completeness import STATUSES
from weft.model.measured import Measured
from weft.model.values import Histogram

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import (
        HistogramDataPoint,
        Metric,
        MetricsData,
        NumberDataPoint,
    )

_Owned: TypeAlias = "tuple[Subject, Measured]"

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
        self._patience = min(interval, _PATIENCE)
        self._exporter = OTLPMetricExporter(url, timeout=self._patience)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="weft-otlp", daemon=True)
        self._thread.start()

    def _close(self) -> None:
        """Send the last values, and no more."""
        self._closing.set()
        # It may be sending something, and sends the last values then.
        self._thread.join(3 * self._patience)
        self._exporter.shutdown()
        logging.getLogger("opentelemetry").removeHandler(self._said)
        if self._failed > 1:
            self._on_failure(f"{self._failed} of {self._sent} exports to the collector failed")

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._closing.wait(self._interval)
            result = self._exporter.export(metrics_data(self._source(), time.time_ns()))
            self._sent += 1
            if result.name != "SUCCESS":
                self._failed += 1
                if self._failed == 1:
                    why = f": {self._said.text}" if self._said.text else ""
                    self._on_failure(f"the collector {self._url} does not take metrics{why}")


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


def metrics_data(everything: Sequence[tuple[Subject, Sequence[Measured]]], now: int) -> MetricsData:
    """Return everything in OpenTelemetry's data model; times are in nanoseconds since 1970."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    by_resource: dict[str, list[_Owned]] = {}
    resources: dict[str, Subject] = {}
    for subject, metrics in everything:
        resource = repr(sorted(subject.resource.items()))
        resources.setdefault(resource, subject)
        by_resource.setdefault(resource, []).extend((subject, metric) for metric in metrics)
    found = []
    for resource, owned in by_resource.items():
        groups: dict[tuple[object, ...], list[_Owned]] = {}
        for subject, metric in owned:
            kind = (metric.name, metric.kind, metric.unit, metric.is_monotonic)
            groups.setdefault(kind, []).append((subject, metric))
        told = [*(_metric(group, now) for group in groups.values()), *_worth(owned, now)]
        scope = ScopeMetrics(InstrumentationScope("weft", __version__), told, "")
        about = Resource.create({**resources[resource].resource})
        found.append(ResourceMetrics(about, [scope], ""))
    return MetricsData(found)


def _worth(owned: Sequence[_Owned], now: int) -> list[Metric]:
    """What each value is worth, as gauges: attributes of the value itself would part its series."""
    from opentelemetry.sdk.metrics.export import Gauge, Metric, NumberDataPoint

    shares: list[NumberDataPoint] = []
    statuses: list[NumberDataPoint] = []
    missing: list[NumberDataPoint] = []
    intervals: list[NumberDataPoint] = []
    for subject, metric in owned:
        about = {"weft.metric": metric.name, **_attributes(subject, metric)}

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


def _metric(group: Sequence[_Owned], now: int) -> Metric:
    """A metric with a point for each focus; all of them are of one kind."""
    from opentelemetry.sdk.metrics import export

    _, first = group[0]
    unit, _ = base_unit(first)
    data: export.Histogram | export.Sum | export.Gauge
    if first.kind == "histogram":
        histograms = [_histogram_point(*one, now) for one in group]
        data = export.Histogram(histograms, export.AggregationTemporality.CUMULATIVE)
    else:
        numbers = [point for one in group for point in _number_points(*one, now)]
        cumulative = export.AggregationTemporality.CUMULATIVE
        data = (
            export.Gauge(numbers)
            if first.kind == "rate"
            else export.Sum(numbers, cumulative, first.is_monotonic)
        )
    unit = _UNITS.get(unit, f"{{{first.unit}}}")
    return export.Metric(f"weft.{first.name}", first.title, unit, data)


def _histogram_point(subject: Subject, metric: Measured, now: int) -> HistogramDataPoint:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    value = metric.value
    assert isinstance(value, Histogram)
    _, divisor = base_unit(metric)
    bounds = cumulative(value)
    totals = [0, *(total for _, total in bounds), value.count]
    counts = [after - before for before, after in pairwise(totals)]
    return HistogramDataPoint(
        attributes=_attributes(subject, metric),
        start_time_unix_nano=_start(subject, metric, now),
        time_unix_nano=now,
        count=value.count,
        sum=value.sum / divisor,
        bucket_counts=counts,
        explicit_bounds=[bound / divisor for bound, _ in bounds],
        min=None,  # type: ignore[arg-type]  # not known, and optional in what is sent
        max=None,  # type: ignore[arg-type]
    )


def _number_points(subject: Subject, metric: Measured, now: int) -> list[NumberDataPoint]:
    from opentelemetry.sdk.metrics.export import NumberDataPoint

    value = exported_value(metric)
    assert not isinstance(value, Histogram)
    _, divisor = base_unit(metric)
    start = _start(subject, metric, now)
    about, rising = _attributes(subject, metric), subject.rising
    entries: list[tuple[dict[str, str], int | float]]
    if isinstance(value, dict):
        entries = [
            ({**about, "weft.key": readable(key)}, rising.of(metric, count, key))
            for key, count in value.items()
        ]
    else:
        entries = [(about, rising.of(metric, value))]
    # Whole numbers stay whole: they are exact.
    return [
        NumberDataPoint(attributes, start, now, number if divisor == 1 else number / divisor)
        for attributes, number in entries
    ]


def _attributes(subject: Subject, metric: Measured) -> dict[str, str]:
    return {"weft.focus": readable(metric.focus), **subject.attributes}


def _start(subject: Subject, metric: Measured, now: int) -> int:
    """When it was asked for, as far as is known.

    The first sample of a history may move when the history is folded; a start may not.
    """
    history = metric.history()
    start = round((history[0].time - history[0].seconds) * 1e9) if history else now
    return subject.starts.setdefault((metric.name, metric.focus), start)
