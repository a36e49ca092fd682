"""Prometheus: a page that its server reads again and again.

Names follow its conventions: ``weft_calls_total``, ``weft_lock_wait_seconds_total``,
``weft_latency_seconds_bucket``; times are in seconds. Each has the label ``focus`` and those that
say whose it is, such as ``pid`` and ``program``; the entries of a map have ``key``. What a value is
worth stands beside it, with the label ``metric``: ``weft_status`` is 1 for one of
``status="exact"``, ``"estimate"`` and ``"incomplete"``; ``weft_missing`` says how much is missing,
by ``what`` and ``why``;
``weft_interval`` has the ends of an estimate's interval, in the unit of the metric, and
``weft_measured_share`` is below 1 for what is not measured all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from weft.base.extras import needed
from weft.base.numbers import readable
from weft.base.running import Running
from weft.errors import InvalidArgument, SystemCall
from weft.export.metrics.values import (
    Source,
    Subject,
    base_unit,
    by_cause,
    cumulative,
    ends,
    exported_value,
    has_sum,
)
from weft.model.completeness import STATUSES
from weft.model.measured import Measured
from weft.model.values import Histogram

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class Collector:
    """The measurements of a source as Prometheus' metric families."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each metric, with the values of all its foci."""
        from prometheus_client.metrics_core import Metric

        families: dict[tuple[str, str], Metric] = {}
        shares = Metric(
            "weft_measured_share",
            "Part of the time that the metric is measured; below 1 its value is an estimate",
            "gauge",
        )
        statuses = Metric("weft_status", "Whether the metric is exact, by status: 1 or 0", "gauge")
        missing = Metric("weft_missing", "How much the metric does not contain, by cause", "gauge")
        intervals = Metric("weft_interval", "Where the value of an estimate is", "gauge")
        for subject, metric in ((one, metric) for one, its in self._source() for metric in its):
            labels = {"focus": readable(metric.focus), **subject.labels}
            name, kind = _name(metric), _kind(metric)
            title = metric.title or metric.name
            family = families.setdefault((name, kind), Metric(name, title, kind))
            _add(family, metric, labels, subject)
            share = shed.share if (shed := metric.shed) else 1
            labels = {"metric": metric.name, **labels}
            shares.add_sample(shares.name, labels, share)
            completeness = metric.completeness
            for status in STATUSES:
                is_so = int(completeness.status == status)
                statuses.add_sample(statuses.name, {**labels, "status": status}, is_so)
            for (what, why), count in by_cause(completeness).items():
                cause = {"what": what, "why": readable(why)}
                missing.add_sample(missing.name, {**labels, **cause}, count)
            for bound, end in ends(metric).items():
                intervals.add_sample(intervals.name, {**labels, "bound": bound}, end)
        yield from families.values()
        yield from (shares, statuses, missing, intervals)


def _name(metric: Measured) -> str:
    unit, _ = base_unit(metric)
    is_named = not unit or metric.name.endswith(f"_{unit}")
    return f"weft_{metric.name}" if is_named else f"weft_{metric.name}_{unit}"


def _kind(metric: Measured) -> str:
    if metric.kind == "histogram":
        return "histogram"
    return "counter" if metric.is_monotonic else "gauge"


def _add(family: Metric, metric: Measured, labels: dict[str, str], subject: Subject) -> None:
    """Add the values of a metric at one focus to the family of its name."""
    from prometheus_client.utils import floatToGoString

    value = exported_value(metric)
    _, divisor = base_unit(metric)
    if isinstance(value, Histogram):
        for bound, count in [*cumulative(value), (float("inf"), value.count)]:
            le = floatToGoString(bound / divisor)
            family.add_sample(f"{family.name}_bucket", {**labels, "le": le}, count)
        family.add_sample(f"{family.name}_count", labels, value.count)
        # A sum that can become less is none that Prometheus would understand.
        if has_sum(value):
            family.add_sample(f"{family.name}_sum", labels, value.sum / divisor)
        return
    name = f"{family.name}_total" if family.type == "counter" else family.name
    if isinstance(value, dict):
        for key, amount in value.items():
            total = subject.rising.of(metric, amount, key) / divisor
            family.add_sample(name, {**labels, "key": readable(key)}, total)
    else:
        family.add_sample(name, labels, subject.rising.of(metric, value) / divisor)


class Server(Running):
    """Serves the page until it is closed."""

    def __init__(self, host: str, port: int, source: Source) -> None:
        with needed("prometheus", "serving metrics to Prometheus"):
            from prometheus_client import CollectorRegistry, start_http_server
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Collector(source))
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise SystemCall(
                f"cannot serve metrics on {host}:{port}",
                error.strerror or str(error),
                "choose another port, or 0 for any that is free",
            ) from error
        self.url = f"http://{host}:{self._server.server_port}/metrics"

    def _close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(address: str, source: Source) -> Server:
    """Serve what the source says at an address: ``:9100``, ``0.0.0.0:9100``, ``[::1]:9100``.

    Without a host only programs on this machine can read it.
    """
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) < 1 << 16):
        raise InvalidArgument(
            f"{address!r} is no address to serve metrics on", "it ends in no port", "try :9100"
        )
    return Server(host.strip("[]") or "127.0.0.1", int(port), source)
