"""The fleet's answer: what all hosts have measured for a request, and what is missing from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from weft.export.metrics.document import plain
from weft.fleet.dividing import Divided, divided, summed_up
from weft.fleet.folding import SeriesKey, folded
from weft.fleet.protocol import HostRecord, Report
from weft.model.completeness import Interval, Status, status_of
from weft.model.measured import Value
from weft.model.values import Histogram

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = ["SCHEMA", "FleetResult", "FleetTotal", "HostResult", "summed"]

SCHEMA = 1
"""Grows when something in the document changes its meaning or goes away."""


@dataclass(frozen=True)
class FleetTotal:
    """What a metric came to, on one host or on all of them."""

    metric: str
    focus: str
    value: Value | None
    """Nothing if no process has a value."""
    unit: str
    hosts: int
    """How many hosts have a part in it."""
    complete: bool
    """Whether nothing is missing, and nothing estimated. The hosts' notes say why not."""
    by: Mapping[str, Value] | None = None
    """What the value is made of, by the keys that it was divided by; nothing if it was not."""
    interval: Interval | None = None
    """Where the number is that the value comes to, if it is an estimate and nothing is missing."""

    @property
    def status(self) -> Status:
        """``exact``, ``estimate`` or ``incomplete``."""
        return status_of(self.interval, is_exact=self.complete)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Between what the number is that the value comes to; nothing if it is no estimate.

        Times are in seconds. Of a distribution the number is how many values there are.
        """
        if self.interval is None:
            return None
        is_time = self.unit == "ns" and not isinstance(self.value, Histogram)
        divisor = 1e9 if is_time else 1
        return self.interval.low / divisor, self.interval.high / divisor


@dataclass(frozen=True)
class HostResult:
    """What one host has done for a request."""

    host: str
    state: str
    """``done``, ``idle`` (no process matches), ``stopped``, ``refused``, ``shed``, ``lost`` (it has
    not told its last values), ``silent`` (it has not answered), ``unasked`` (its stage has not
    come), ``violated`` (its values were not as a guard of the request says, so that ended), and
    ``version`` (it speaks another version of the protocol); ``weaving`` and ``measuring`` while it
    goes on."""
    processes: int
    totals: tuple[FleetTotal, ...]
    notes: tuple[str, ...] = ()
    """Why values are incomplete, and whatever else one should know."""
    labels: Mapping[str, str] = field(default_factory=dict)
    complete: bool = False
    """Whether it has told all that was asked of it; a total may still be incomplete by itself."""


@dataclass(frozen=True)
class FleetResult:
    """What all hosts have measured for a request."""

    request: str
    totals: tuple[FleetTotal, ...]
    hosts: tuple[HostResult, ...]
    complete: bool
    """Whether nothing is missing, from any total or of any host."""
    halted: str = ""
    """Why it has ended before its time, by itself: a stage, or a guard."""

    def total(self, metric: str, focus: str = "") -> FleetTotal:
        """Return the total of a metric and a focus, as they were asked for."""
        for one in self.totals:
            if (one.metric, one.focus) == (metric, focus):
                return one
        raise KeyError(f"{metric}@{focus}" if focus else metric)

    def to_arrow(self) -> pyarrow.Table:
        """Return it as an Arrow table: a row for each host, metric and focus, and for each key.

        The columns are ``host``, ``state``, ``label.NAME`` for each label, ``metric``, ``focus``,
        ``unit``, ``complete``, ``status`` (``exact``, ``estimate`` or ``incomplete``), ``low`` and
        ``high`` (between which an estimate is), ``key``, ``value``, and of histograms ``sum``,
        ``mean``, ``p50``, ``p90``, ``p99``, ``p999``; the value of these is how many values there
        were. Times are in seconds. A host that has no value has a row without one. The key ``weft``
        of the table's metadata has the fleet's totals as JSON.
        """
        from weft.fleet.tables import to_arrow

        return to_arrow(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return it as a data frame, with the columns of :meth:`to_arrow`."""
        from weft.fleet.tables import to_pandas

        return to_pandas(self)

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        found: dict[str, Any] = {
            "schema": SCHEMA,
            "totals": [_total(one, hosts=one.hosts) for one in self.totals],
            "hosts": [_host(one) for one in self.hosts],
        }
        return {**found, "halted": self.halted} if self.halted else found


def _total(total: FleetTotal, **more: int) -> dict[str, Any]:
    is_time = total.unit == "ns"
    divisor = 1e9 if is_time else 1
    found: dict[str, Any] = {
        "metric": total.metric,
        "focus": total.focus,
        "value": None if total.value is None else plain(total.value, divisor),
        "unit": "s" if is_time else total.unit,
        **more,
        "complete": total.complete,
    }
    if not total.complete:
        found["status"] = total.status
    if total.interval is not None and total.bounds is not None:
        found["low"], found["high"] = total.bounds
        found["confidence"] = total.interval.confidence
    if total.by is not None:
        found["by"] = {key: plain(value, divisor) for key, value in total.by.items()}
    return found


def _host(host: HostResult) -> dict[str, Any]:
    found: dict[str, Any] = {
        "host": host.host,
        "state": host.state,
        "processes": host.processes,
        "totals": [_total(one) for one in host.totals],
    }
    if host.notes:
        found["notes"] = list(host.notes)
    return found


def summed(
    request: str,
    reports: Iterable[Report],
    expected: Mapping[str, HostRecord],
    asked: Iterable[SeriesKey],
    *,
    is_over: bool,
    unasked: Collection[str] = (),
    others: Mapping[str, str] | None = None,
    violated: Mapping[str, str] | None = None,
    halted: str = "",
    by: str = "",
) -> FleetResult:
    """Add up the newest report of each start of each host.

    ``expected`` are the hosts that are known to be there. With ``is_over``, no more is waited for:
    whoever has not told its last values is lost. ``unasked`` are the hosts of stages that have not
    come, ``others`` those that speak another version of the protocol, and ``violated`` those whose
    values a guard objects to, each with what is said of that; ``by`` is what the values were to be
    divided by.
    """
    others, violated = others or {}, violated or {}
    by_host: dict[str, list[Report]] = {name: [] for name in (*expected, *others)}
    for report in reports:
        by_host.setdefault(report.host, []).append(report)
    hosts: list[HostResult] = []
    parts: dict[str, list[Divided]] = {}
    all_whole = is_over and not unasked and not others
    for name in sorted(by_host):
        starts = sorted(by_host[name], key=lambda one: one.epoch)
        labels = expected[name].labels if name in expected else {}
        host, parts[name] = _of_host(name, starts, labels, by, is_over=is_over)
        if name in others:
            notes = (*(host.notes if starts else ()), others[name])
            host = replace(host, state="version", notes=notes, complete=False)
        elif name in violated:
            host = replace(host, state="violated", notes=(violated[name], *host.notes))
        hosts.append(host)
        all_whole = all_whole and bool(starts) and _is_whole(starts)
        all_whole = all_whole and all(one.is_divided for one in parts[name])
    counts = Counter(key for own in parts.values() for key in _measured(own))
    totals = [_told(one, counts[one.whole.key], is_whole=all_whole) for one in summed_up(parts, by)]
    found = {(one.metric, one.focus) for one in totals}
    # What no process has a value of is told as well. It is never complete: where there were
    # processes it may be a name that is not right, and where there were none nothing was measured.
    totals += [
        FleetTotal(*key, None, "", 0, complete=False)
        for key in dict.fromkeys(asked)
        if key not in found
    ]
    hosts += [HostResult(name, "unasked", 0, ()) for name in sorted(unasked)]
    complete = all_whole and all(one.complete for one in totals)
    return FleetResult(request, tuple(totals), tuple(hosts), complete, halted)


_WHOLE = ("done", "idle", "stopped")
"""The states in which a host has told all that it has measured."""


def _measured(parts: Iterable[Divided]) -> set[SeriesKey]:
    """What was measured: what could not be has no value, and is not complete."""
    wholes = (one.whole for one in parts)
    return {one.key for one in wholes if one.value is not None or one.complete}


def _is_whole(starts: Sequence[Report]) -> bool:
    """Whether a host has told all that was asked of it."""
    return starts[-1].state in _WHOLE and all(one.complete and one.final for one in starts)


def _told(one: Divided, hosts: int, *, is_whole: bool) -> FleetTotal:
    whole = one.whole
    is_whole = is_whole and one.is_divided
    return FleetTotal(
        *(whole.metric, whole.focus, whole.value, whole.unit, hosts),
        complete=whole.complete and is_whole,
        by=one.by,
        interval=whole.interval if is_whole else None,
    )


def _of_host(
    name: str, starts: list[Report], labels: Mapping[str, str], by: str, *, is_over: bool
) -> tuple[HostResult, list[Divided]]:
    """What one host has told, in all of its starts."""
    if not starts:
        state = "silent" if is_over else "asked"
        silence = ("it has not answered",) if is_over else ()
        return HostResult(name, state, 0, (), silence, labels), []
    last = starts[-1]
    notes: dict[str, None] = dict.fromkeys(note for one in starts for note in one.notes)
    is_whole = is_over and _is_whole(starts)
    series = divided(folded([one.series for one in starts]), by)
    state = str(last.state)
    if is_over and not last.final:
        state = "lost"
        notes["it has not told its last values: these are the last that it has told"] = None
    if any(not one.final for one in starts[:-1]):
        notes["its service has ended in between: what it had not told until then is missing"] = None
    if not all(one.is_divided for one in series):
        notes[f"its weft is older, and cannot divide values by {by}"] = None
    totals = tuple(_told(one, 1, is_whole=is_whole) for one in series)
    processes = max(one.processes for one in starts)
    return HostResult(name, state, processes, totals, tuple(notes), labels, is_whole), series
