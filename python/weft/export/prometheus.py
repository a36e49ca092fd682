"""Prometheus: a page that its server reads again and again.

Names follow its conventions: ``weft_calls_total``, ``weft_lock_wait_seconds_total``,
``weft_latency_seconds_bucket``; times are in seconds. Each has the labels ``focus``, ``pid`` and
``program``, and the entries of a map have ``key``. ``weft_measured_share`` is below 1 for what is
an estimate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from weft._running import Running
from weft.errors import InvalidArgument, SystemCall
from weft.export.extras import needed
from weft.export.values import Source, base_unit, cumulative, falls, readable
from weft.metrics.model import Measured
from weft.probes import Histogram

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class Collector:
    """The measurements of a source as Prometheus' metric families."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each metric, with the values of all its foci."""
        from prometheus_client.metrics_core import Metric

        target, metrics = self._source()
        about = {"pid": str(target.pid), "program": readable(target.program)}
        families: dict[tuple[str, str], Metric] = {}
        shares = Metric(
            "weft_measured_share",
            "Part of the time that the metric is measured; below 1 its value is an estimate",
            "gauge",
        )
        for metric in metrics:
            labels = {"focus": readable(metric.focus), **about}
            name, kind = _name(metric), _kind(metric)
            title = metric.title or metric.name
            family = families.setdefault((name, kind), Metric(name, title, kind))
            _add(family, metric, labels)
            share = metric.shed.share if metric.shed else 1
            shares.add_sample(shares.name, {"metric": metric.name, **labels}, share)
        yield from families.values()
        yield shares


def _name(metric: Measured) -> str:
    unit, _ = base_unit(metric)
    is_named = not unit or metric.name.endswith(f"_{unit}")
    return f"weft_{metric.name}" if is_named else f"weft_{metric.name}_{unit}"


def _kind(metric: Measured) -> str:
    if isinstance(metric.value, Histogram):
        return "histogram"
    return "gauge" if falls(metric) else "counter"


def _add(family: Metric, metric: Measured, labels: dict[str, str]) -> None:
    """Add the values of a metric at one focus to the family of its name."""
    from prometheus_client.utils import floatToGoString

    value = metric.value
    _, divisor = base_unit(metric)
    if isinstance(value, Histogram):
        bounds = cumulative(value)
        for bound, count in [*bounds, (float("inf"), value.count)]:
            le = floatToGoString(bound / divisor)
            family.add_sample(f"{family.name}_bucket", {**labels, "le": le}, count)
        family.add_sample(f"{family.name}_count", labels, value.count)
        # A sum that can become less is none that Prometheus would understand.
        if bounds and bounds[0][0] >= 0:
            family.add_sample(f"{family.name}_sum", labels, value.sum / divisor)
        return
    name = f"{family.name}_total" if family.type == "counter" else family.name
    if isinstance(value, dict):
        for key, count in value.items():
            family.add_sample(name, {**labels, "key": readable(key)}, count / divisor)
    else:
        family.add_sample(name, labels, value / divisor)


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

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(address: str, source: Source) -> Server:
    """Serve what the source says at an address: ``:9100``, ``0.0.0.0:9100``, ``[::1]:9100``.

    Without a host only programs on this machine can read it.
    """
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise InvalidArgument(
            f"{address!r} is no address to serve metrics on", "it ends in no port", "try :9100"
        )
    return Server(host.strip("[]") or "127.0.0.1", int(port), source)
