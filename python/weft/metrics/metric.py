"""One metric of one target, narrowed to a focus."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from weft.errors import TargetError, WeftError
from weft.mdl import ast
from weft.mdl.lower import Focus, Plan
from weft.mdl.passes.scope import inserts, statements
from weft.metrics import kernel
from weft.metrics.budget import HITS, Sampling, estimate
from weft.metrics.history import History
from weft.metrics.model import Interval, MetricKind, Sample, Shed, Value
from weft.probes import (
    Bucket,
    Histogram,
    MapValue,
    Point,
    Probe,
    Process,
    Timer,
    process_number,
)

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from weft.metrics.engine import Engine, Node

__all__ = ["Metric", "Reading"]

Raw: TypeAlias = "int | Timer | Histogram | MapValue"
"""A value as probes have it."""

_UNITS: Mapping[str, str] = {"opsPerSecond": "operations", "seconds": "s", "nanoseconds": "ns"}
"""Units of the paper that say how a metric is shown, and what its total is in."""


class Reading(NamedTuple):
    """How a metric's total is found among the numbers of a sample."""

    history: History
    width: int
    """How many numbers are its own; the total is the first."""
    scale: float
    first: float
    """What had been measured when it was asked for."""


class Metric:
    """A metric that is measured; made by :meth:`weft.Session.metric`.

    Its value is what was measured since it was asked for. It can be read at any time, also when it
    was removed or the target has ended, and reading it stops nothing.
    """

    def __init__(
        self,
        engine: Engine,
        definition: ast.Metric,
        focus: Focus,
        plan: Plan | None,
        node: Node | None,
    ) -> None:
        self._engine = engine
        self._definition = definition
        self._focus = focus
        self._plan = plan
        self.node = node
        self.shed: Shed | None = None
        self.sampling: Sampling | None = None
        self._history = History()
        self._names: dict[int, str] = {}
        self._last: Raw | None = None
        self._last_hits = 0
        self._first: Raw | None = None
        self._hits_before = 0
        self._first = self._read()
        self._hits_before = self._hits()
        self._history.add(time.time(), _number(self._minus(self._first)))

    # What it is.

    @property
    def name(self) -> str:
        """The metric's name."""
        return self._definition.name

    @property
    def focus(self) -> str:
        """The focus; empty for the whole program."""
        return str(self._focus)

    @property
    def title(self) -> str:
        """The metric's name for people."""
        return self._definition.title or self.name

    @property
    def kind(self) -> MetricKind:
        """What the value is."""
        type_ = self._definition.base.type
        if type_ in ("wallTimer", "processTimer"):
            return "timer"
        if type_ == "rate":
            return "rate"
        if type_ == "histogram":
            return "histogram"
        if type_ == "record":
            return "record"
        return "map" if type_ == "map" else "counter"

    @property
    def unit(self) -> str:
        """What the total is counted in."""
        if self.kind == "timer":
            return "s"
        units = self._definition.units
        if not units:
            is_time = self.kind == "histogram" and _is_timed(self._definition.base.body)
            return "ns" if is_time else ""
        return _UNITS.get(units, units)

    @property
    def doc(self) -> str:
        """What its definition says about it."""
        return self._definition.doc

    @property
    def refused(self) -> list[str]:
        """The points that could not be woven, each with the reason."""
        return [str(one) for probe in self._all_probes() for one in probe.refused]

    @property
    def calls_program(self) -> bool:
        """Whether it calls functions of the program, which is not possible in a clone."""
        return any(probe.calls_program for probe in self._all_probes())

    def _all_probes(self) -> list[Probe]:
        nodes = [self.node, *self.node.needs] if self.node else []
        return [probe for node in nodes for probe in node.probes]

    @property
    def sees_nothing(self) -> bool:
        """Whether no point could be woven, so that it stays 0 whatever happens."""
        probes = self.node.probes if self.node else []
        points = sum(len(probe.points) for probe in probes)
        return bool(probes) and points == sum(len(probe.refused) for probe in probes)

    @property
    def missing(self) -> tuple[str, ...]:
        """The names in its lists that the program does not have."""
        return self._plan.base.missing if self._plan else ()

    def plan_again(self) -> Plan | None:
        """Say what it needs now that other modules are there."""
        by_function = bool(self._plan and self._plan.by_function)
        return self._engine.plan(self._definition, self.focus, by_function=by_function)

    # Its value.

    @property
    def value(self) -> Value:
        """The value now."""
        return self._shown(self._now())

    @property
    def interval(self) -> Interval | None:
        """Where the true value is, when it was not measured all the time."""
        gaps = self._gaps()
        if not gaps or not self._is_sampled:
            return None
        return estimate(_number(self._minus(self._read())), gaps, self._hits())[1]

    @property
    def _is_sampled(self) -> bool:
        return self.node is not None and self.node.can_be_sampled

    def _gaps(self) -> list[Sampling]:
        gaps = list(self.node.gaps) if self.node else []
        return gaps if self.sampling is None else [*gaps, self.sampling]

    def _hits(self) -> int:
        """How often it was hit since it was asked for."""
        if self.node is None or not self.node.has_hits or self._last is not None:
            return self._last_hits
        hits = self.node.probes[0].value(HITS)
        assert isinstance(hits, int)
        self._last_hits = hits - self._hits_before
        return self._last_hits

    def _now(self) -> Raw:
        """What was measured since it was asked for, and what was missed as far as one can say."""
        raw = self._minus(self._read())
        factor = self._factor(raw)
        if factor == 1.0:
            return raw
        if isinstance(raw, Histogram):
            buckets = (Bucket(b.low, b.high, round(b.count * factor)) for b in raw.buckets)
            return Histogram(tuple(buckets), round(raw.count * factor), round(raw.sum * factor))
        if isinstance(raw, dict):
            return {key: round(value * factor) for key, value in raw.items()}
        return round(raw * factor) if isinstance(raw, int) else raw

    def _factor(self, raw: Raw) -> float:
        """How much more there is than what was measured, as far as one can say."""
        gaps = self._gaps()
        seen = _number(raw)
        if not gaps or not self._is_sampled or not seen:
            return 1.0
        return estimate(seen, gaps, self._hits())[0] / seen

    @property
    def datum(self) -> str:
        """The name of what is measured into."""
        return self._plan.datum if self._plan else ""

    @property
    def is_simple(self) -> bool:
        """Whether its total is one number of all threads and processes, read with all others."""
        filters = [part[0] for part in self._focus.parts if part[0] in ("Thread", "Process")]
        return (
            self._plan is not None
            and self.node is not None
            and not filters
            and not self._plan.selected
            and not self._gaps()
            and self._definition.aggregate == "sum"
            # Values by point are kept anew for each library that comes.
            and len(self.node.probes[0].numbers) == 1
        )

    def reading(self) -> Reading:
        """How its total is found among the numbers of a sample."""
        assert self._plan is not None
        width = 1 if self._plan.kind == "counter" else 2
        scale = 1e-9 if self.kind == "timer" else 1.0
        first = _number(self._first) if self._first is not None else 0.0
        if isinstance(self._first, dict):
            first *= scale
        return Reading(self._history, width, scale, first)

    def note_value(self, now: float) -> None:
        """Read the value and note its total."""
        self._history.add(now, _number(self._now()))

    def freeze(self) -> None:
        """Keep the value as it is."""
        if self._last is None:
            last = self._read()
            self._hits()
            self._last = last
            if self.sampling is not None:
                self.sampling.end()

    def _read(self) -> Raw:
        if self._last is not None:
            return self._last
        if self._plan is None:
            count = kernel.count(self._definition.base.process, self._engine.session.pid)
            if count is None:
                return _first_number(self._first) + int(self._newest())
            return count
        assert self.node is not None
        probe, name = self.node.probes[0], self._plan.datum
        if self._plan.kind == "ring":
            return self._records()
        values: list[Raw] = [
            probe.value(name, process=pid, thread=tid) for pid, tid in self._owners()
        ]
        total = _combine(values, self._definition.aggregate, self._plan)
        if self._plan.selected and isinstance(total, dict):
            key = self._plan.selected
            return total.get(key[0] if len(key) == 1 else (key[0], key[1]), 0)
        return total

    def _owners(self) -> list[tuple[Process, int | None]]:
        """The processes that the focus asks for, or their threads where it matters which one."""
        assert self.node is not None
        probe = self.node.probes[0]
        process, thread = self._focus.of("Process"), self._focus.of("Thread")
        if not process and not thread and self._definition.aggregate == "sum":
            return [("all", None)]
        processes = [pid for pid in probe.processes() if not process or process[0] == str(pid)]
        if not thread and self._definition.aggregate == "sum":
            return [(pid, None) for pid in processes]
        return [
            (pid, tid)
            for pid, tid in probe.threads()
            if pid in processes and (not thread or self._is_called(tid, thread[0]))
        ]

    def _records(self) -> int:
        assert self.node is not None
        assert self._plan is not None
        from weft import _native

        sampler = _native.Sampler(self._engine.target, [(self.node.number, self._plan.datum)])
        return sampler.read()[0]

    def _is_called(self, tid: int, pattern: str) -> bool:
        if tid not in self._names:
            # Threads that have ended keep the name that they had when they were last seen.
            with suppress(TargetError):
                for thread in self._engine.session.threads():
                    self._names[thread.tid] = thread.name
        return pattern == str(tid) or fnmatchcase(self._names.get(tid, ""), pattern)

    def _minus(self, raw: Raw) -> Raw:
        """What was measured since this metric was asked for: another may have been before."""
        first = self._first
        if isinstance(raw, int) and isinstance(first, int):
            return raw - first
        if isinstance(raw, Timer) and isinstance(first, Timer):
            return raw - first
        if isinstance(raw, Histogram) and isinstance(first, Histogram):
            return raw - first
        if isinstance(raw, dict) and isinstance(first, dict):
            rest = {key: value - first.get(key, 0) for key, value in raw.items()}
            return {key: value for key, value in rest.items() if value}
        return raw

    def _shown(self, raw: Raw) -> Value:
        if isinstance(raw, Timer):
            return raw.seconds
        if isinstance(raw, dict):
            return {_key(key): value for key, value in raw.items()}
        return raw

    def by_function(self) -> dict[str, int | float]:
        """The value of each function of the focus, by its path; empty when it is not known.

        It is known when the metric was asked for with ``by_function=True``. Of times, recursion
        counts every call, not only the outermost.
        """
        if self._plan is None or self.node is None or not self._plan.by_function:
            return {}
        factor = self._factor(self._minus(self._read()))
        if self._plan.by_function == "point":
            paths = self._paths_by_point
            counts = dict.fromkeys(filter(None, paths), 0)
            for pid, tid in self._owners():
                # There may be very many: they come in the order of the points.
                found = (
                    count
                    for number in self.node.probes[0].numbers
                    for count in self._engine.target.probe_counters(
                        number, self._plan.datum, process_number(pid, tid), tid
                    )
                )
                for path, count in zip(paths, found, strict=True):
                    if path:
                        counts[path] += count
            if factor == 1.0:
                return dict(counts)
            return {path: round(count * factor) for path, count in counts.items()}
        raw = self._read()
        assert isinstance(raw, dict)
        seconds: dict[str, int | float] = {}
        for address, ns in raw.items():
            if isinstance(address, int) and address in self._paths_by_address:
                path = self._paths_by_address[address]
                seconds[path] = seconds.get(path, 0.0) + ns * factor / 1e9
        return seconds

    def forget_paths(self) -> None:
        """Its points have changed."""
        self.__dict__.pop("_paths_by_point", None)
        self.__dict__.pop("_paths_by_address", None)

    @cached_property
    def _paths_by_point(self) -> list[str]:
        """The function of each point that counts; empty where it could not be woven."""
        assert self.node is not None
        probe = self.node.probes[0]
        refused = {refusal.point for refusal in probe.refused}
        return ["" if point in refused else _path(point) for point in probe.points]

    @cached_property
    def _paths_by_address(self) -> dict[int, str]:
        assert self.node is not None
        points = (point for probe in self.node.probes for point in probe.points)
        return {point.address: _path(point) for point in points}

    # Its course.

    def history(self) -> list[Sample]:
        """Return the samples so far, the oldest first. When there are many, they get further apart.

        Of histograms the value is how many there were, of maps the sum.
        """
        times, totals = self._history.times, self._history.totals
        is_whole = self.kind not in ("timer",)
        samples = []
        for index in range(1, len(times)):
            change = totals[index] - totals[index - 1]
            total = int(totals[index]) if is_whole else totals[index]
            seconds = times[index] - times[index - 1]
            samples.append(Sample(times[index], total, change, seconds))
        return samples

    def _newest(self) -> float:
        return self._history.totals[-1] if len(self._history) else 0.0

    def stream(self, interval: float = 1.0, limit: int | None = None) -> Iterator[Sample]:
        """Sample every ``interval`` seconds: all metrics of the session; yield this one's."""
        before = (time.time(), _number(self._now()))
        for rest in _rests(interval, limit):
            time.sleep(rest)
            sample = self._since(before)
            before = (sample.time, before[1] + sample.change)
            yield sample

    async def samples(
        self, interval: float = 1.0, limit: int | None = None
    ) -> AsyncIterator[Sample]:
        """Sample like :meth:`stream`, for ``async for``."""
        # It takes as long as much of what is needed always.
        import asyncio

        before = (time.time(), _number(self._now()))
        for rest in _rests(interval, limit):
            await asyncio.sleep(rest)
            sample = self._since(before)
            before = (sample.time, before[1] + sample.change)
            yield sample

    def _since(self, before: tuple[float, float]) -> Sample:
        """Have all metrics sampled, and return how this one has grown since a time and a total."""
        self._engine.sample()
        now, raw = time.time(), self._now()
        return Sample(now, self._shown(raw), _number(raw) - before[1], now - before[0])

    # For data tools.

    def to_arrow(self) -> pyarrow.Table:
        """Return the history as an Arrow table; see :func:`weft.export.frames.to_arrow`."""
        from weft.export import frames

        return frames.to_arrow(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the history as a data frame by time, with the columns of :meth:`to_arrow`."""
        from weft.export import frames

        return frames.to_pandas(self)

    def _repr_html_(self) -> str:
        from weft.ui import notebook

        return notebook.html([self])

    # Its end.

    def remove(self) -> None:
        """Stop measuring it. Its last value can still be read."""
        if self in self._engine.metrics:
            self.freeze()
            self._engine.forget(self)

    def __repr__(self) -> str:
        where = f"@{self.focus}" if self.focus else ""
        try:
            value = self.value
        except WeftError as error:
            return f"<weft.Metric {self.name}{where}: {error}>"
        shown = f"{value.count} values" if isinstance(value, Histogram) else str(value)
        return f"<weft.Metric {self.name}{where}: {shown} {self.unit}>".replace(" >", ">")


def _rests(interval: float, limit: int | None) -> Iterator[float]:
    """How long to rest before each sample, so that they keep their interval on the whole."""
    due = time.monotonic()
    for _ in itertools.count() if limit is None else range(limit):
        due += interval
        yield max(0.0, due - time.monotonic())


def _path(point: Point) -> str:
    return f"/Code/{point.module}/{point.function}"


def _is_timed(body: Iterable[ast.Where]) -> bool:
    """Whether something is started and stopped, so that what is measured are times."""
    code = (one for insert in inserts(body) for one in statements(insert.code.body))
    return any(isinstance(one, ast.TimerAction) for one in code)


def _first_number(raw: Raw | None) -> int:
    return raw if isinstance(raw, int) else 0


def _number(raw: Raw) -> float:
    """The total that a value comes to: of histograms the count, of maps the sum."""
    if isinstance(raw, Timer):
        return raw.seconds
    if isinstance(raw, Histogram):
        return raw.count
    if isinstance(raw, dict):
        return sum(raw.values())
    return raw


def _key(key: int | tuple[int, int]) -> str:
    return str(key) if isinstance(key, int) else f"{key[0]}, {key[1]}"


def _combine(values: list[Raw], operator: str, plan: Plan) -> Raw:
    """Several threads' or processes' values as one."""
    if not values:
        return {
            "counter": 0,
            "timer": Timer(0, 0),
            "histogram": Histogram((), 0, 0),
            "map": {},
            "ring": 0,
        }[plan.kind]  # type: ignore[return-value]
    if operator in ("min", "max"):
        pick = min if operator == "min" else max
        return pick(values, key=_number)
    if all(isinstance(value, int) for value in values):
        return sum(value for value in values if isinstance(value, int))
    if isinstance(values[0], Timer):
        return sum((value for value in values if isinstance(value, Timer)), Timer(0, 0))
    if isinstance(values[0], Histogram):
        histograms = (value for value in values if isinstance(value, Histogram))
        return sum(histograms, Histogram((), 0, 0))
    sums: Counter[int | tuple[int, int]] = Counter()
    for value in values:
        if isinstance(value, dict):
            sums.update(value)
    return dict(sums)
