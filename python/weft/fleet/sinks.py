"""What a host itself tells Prometheus and OpenTelemetry: the values of all requests that it serves.

The service hands over what it has measured, and exporters ask for it in threads of their own: no
collector, however slow, keeps it from measuring. What is exported is bounded, whoever asks for
however much; what is left out is counted.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from weft import _native
from weft.base.numbers import readable
from weft.errors import InvalidArgument
from weft.export.metrics.values import Subject
from weft.fleet.folding import OTHERS, Aggregate, Series, SeriesKey, fold, folded
from weft.fleet.protocol import Report
from weft.model.completeness import Completeness, Missing
from weft.model.measured import Measured, MetricKind, Sample, Shed, Value
from weft.model.values import Histogram

__all__ = ["INTERVAL", "Sinks"]

INTERVAL = 5.0
"""How often values are sent to a collector, in seconds."""
MOST_EXPORTED = 256
"""How many metrics are exported at most, each of a request and at a focus."""
MOST_EXPORTED_KEYS = 100
"""How many keys of a map are exported apart; the others are added up."""
_KEPT = 90.0
"""For how long the last values of a request are exported, in seconds: Prometheus commonly asks
once in a minute."""
_LONGEST_KEY = 500
_MOST_REASONS = 5
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

_Key: TypeAlias = "tuple[str, str]"


@dataclass(frozen=True)
class _Exported:
    """A metric as exporters want it: all processes of the host together."""

    name: str
    focus: str
    title: str
    unit: str
    kind: MetricKind
    value: Value
    is_monotonic: bool
    time: float
    seconds: float
    completeness: Completeness = field(default_factory=Completeness)
    shed: Shed | None = None
    remarks: tuple[str, ...] = ()

    def history(self) -> list[Sample]:
        """What there is now, since it was asked for."""
        return [Sample(self.time, self.value, 0.0, self.seconds)]

    def by_function(self) -> dict[str, int | float]:
        """Nothing: the functions of several processes are not told apart."""
        return {}


@dataclass
class _Told:
    """A request, and what was last measured for it."""

    subject: Subject
    began: float
    """Since when it is measured, in seconds since 1970."""
    metrics: dict[SeriesKey, _Exported] = field(default_factory=dict)
    keys: dict[SeriesKey, set[str]] = field(default_factory=dict)
    """The keys of each map that are exported apart. Which are does not change: a sum of others
    would fall."""
    left_out: int = 0
    ended: float | None = None


class Sinks:
    """The newest values of each request, for exporters."""

    def __init__(
        self, host: str, labels: Mapping[str, str], say: Callable[[str], None] = lambda text: None
    ) -> None:
        self._say = say
        self._has_said = False
        self._labels = {"host": host, **_label_names(labels)}
        machine = os.uname().machine
        self._resource: dict[str, str | int | list[str]] = {
            "service.name": "weft-host",
            "service.version": _native.__version__,
            "service.instance.id": host,
            "host.name": host,
            "host.arch": _ARCHITECTURES.get(machine, machine),
            "os.type": "linux",
            **{f"weft.label.{name}": readable(value) for name, value in labels.items()},
        }
        self._host = Subject(self._labels, self._resource)
        self._began = time.time()
        self._told: dict[_Key, _Told] = {}
        self._lock = threading.Lock()

    def see(self, report: Report, seconds: float, reasons: Sequence[str] = ()) -> None:
        """Take note of what was measured for a request, in so many seconds.

        ``reasons`` are why something is missing from all of it.
        """
        key = report.requester, report.request
        with self._lock:
            self._forget()
            told = self._told.get(key)
            if told is None:
                if not report.series:
                    return
                told = self._told[key] = _Told(self._subject(key), time.time() - seconds)
            if told.ended is not None:
                return
            if report.final:
                told.ended = time.monotonic()
            self._take(told, report.series, reasons)
            is_full = told.left_out and not self._has_said
            self._has_said = self._has_said or bool(is_full)
        if is_full:
            self._say(
                f"note: no more than {MOST_EXPORTED} metrics are exported at a time; "
                "weft_host_left_out says how many are not"
            )

    def end(self, key: _Key) -> None:
        """Take note that a request has ended, if that was not said before."""
        with self._lock:
            told = self._told.get(key)
            if told is not None and told.ended is None:
                told.ended = time.monotonic()

    def source(self) -> list[tuple[Subject, Sequence[Measured]]]:
        """What there is to export now."""
        with self._lock:
            self._forget()
            told = [*self._told.values()]
            each = [(one.subject, [*one.metrics.values()]) for one in told]
            served = sum(one.ended is None for one in told)
            left_out = sum(one.left_out for one in told)
        about = [
            self._gauge("host_requests", "Requests of which values are exported", served),
            self._gauge("host_left_out", "Metrics that are measured and not exported", left_out),
        ]
        return [(self._host, about), *each]

    def _gauge(self, name: str, title: str, value: int) -> _Exported:
        now = time.time()
        unit = name.rpartition("_")[2] if name == "host_requests" else "metrics"
        return _Exported(name, "", title, unit, "counter", value, False, now, now - self._began)

    def _subject(self, key: _Key) -> Subject:
        requester, request = key
        return Subject(
            {**self._labels, "requester": requester, "request": request},
            self._resource,
            {"weft.requester": requester, "weft.request": request},
        )

    def _forget(self) -> None:
        """Leave out what has ended a while ago."""
        before = time.monotonic() - _KEPT
        for key, one in [*self._told.items()]:
            if one.ended is not None and one.ended < before:
                del self._told[key]

    def _take(self, told: _Told, series: Sequence[Series], reasons: Sequence[str]) -> None:
        others = [one for one in self._told.values() if one is not told and one.ended is None]
        # The processes of a host are one here, also where a request tells them apart.
        series = folded([[replace(one, part="") for one in series]])
        known = [one for one in series if one.key in told.metrics]
        fresh = [one for one in series if one.key not in told.metrics]
        room = max(MOST_EXPORTED - sum(len(one.metrics) for one in others) - len(known), 0)
        told.left_out = len(fresh[room:])
        found = {one.key: _exported(told, one, reasons) for one in (*known, *fresh[:room])}
        told.metrics = {key: one for key, one in found.items() if one is not None}
        # What has ended is kept as long as there is room for it.
        for key, one in [*self._told.items()]:
            if sum(len(each.metrics) for each in self._told.values()) <= MOST_EXPORTED:
                break
            if one.ended is not None and one is not told:
                del self._told[key]


def _exported(told: _Told, series: Series, reasons: Sequence[str]) -> _Exported | None:
    """A series as exporters want it; nothing if it has no value."""
    worth = series.worth
    if worth is None:
        return None
    value = (worth.newest or 0.0) if worth.kind == "rate" else series.value
    missing = _reasons(reasons)
    if isinstance(value, dict):
        if OTHERS in value:
            why = "there are too many, and which of them are apart changes"
            missing.append(Missing("keys", "", why))
        value = _keys(told.keys.setdefault(series.key, set()), value, series.aggregate)
    if value is None or (worth.kind == "histogram") != isinstance(value, Histogram):
        return None
    now = time.time()
    return _Exported(
        re.sub(r"[^A-Za-z0-9_]", "_", series.metric),
        series.focus,
        readable(worth.title),
        readable(series.unit),
        worth.kind,
        value,
        worth.is_monotonic,
        now,
        max(now - told.began, 0.0),
        worth.completeness.with_missing(missing),
        worth.shed,
    )


def _reasons(reasons: Sequence[str]) -> list[Missing]:
    """Why something is missing from all values: a few texts, since each is a label's value."""
    shown = [*dict.fromkeys(reasons)]
    if len(shown) > _MOST_REASONS:
        shown[_MOST_REASONS - 1 :] = ["for other reasons"]
    return [Missing("parts of the request", "", why) for why in shown]


def _keys(
    kept: set[str], value: Mapping[str, int | float], aggregate: Aggregate
) -> dict[str, int | float]:
    """The keys that are exported apart, and what all others come to."""
    short = _by_name(aggregate, ((_shortened(key), number) for key, number in value.items()))
    for key in sorted(short, key=lambda one: (-short[one], one)):
        if len(kept) == MOST_EXPORTED_KEYS:
            break
        if key != OTHERS:
            kept.add(key)
    return _by_name(
        aggregate, ((key if key in kept else OTHERS, number) for key, number in short.items())
    )


def _shortened(key: str) -> str:
    return key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}..."


def _by_name(
    aggregate: Aggregate, numbers: Iterable[tuple[str, int | float]]
) -> dict[str, int | float]:
    """Numbers by name, with one number for what has the same name."""
    found = fold(aggregate, [{}, *({name: number} for name, number in numbers)])
    assert isinstance(found, dict)
    return found


def _label_names(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a host by names that Prometheus takes: ``label_zone``."""
    found: dict[str, str] = {}
    for name, value in labels.items():
        plain = "label_" + re.sub(r"[^A-Za-z0-9_]", "_", name)
        if plain in found:
            raise InvalidArgument(
                f"two labels of this host are both {plain} in Prometheus",
                "its labels have letters, digits and '_' only",
                "call one of them something else",
            )
        found[plain] = readable(value)
    return found
