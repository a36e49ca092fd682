"""One metric of one target, narrowed to a focus."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.control.libraries import unnoticed
from weft.control.probes import Probe, process_number
from weft.errors import InvalidArgument, TargetGone, WeftError
from weft.mdl import ast
from weft.mdl.code import left_name
from weft.mdl.lower import RESULTS_UNSEEN, TAKES_PART
from weft.mdl.passes.scope import places
from weft.mdl.plan import Focus, Plan
from weft.metrics import kernel
from weft.metrics.births import needs_births
from weft.metrics.course import Course
from weft.metrics.glibc import freed_twice
from weft.metrics.grouping import By, Naming, is_by_stack, named, namings
from weft.metrics.history import History
from weft.metrics.invariants import Growth, too_long
from weft.metrics.missing import FEWER_KEYS, missing_processes
from weft.metrics.owners import ThreadNames
from weft.metrics.raw import Raw, combine, less, number
from weft.metrics.sampling import HITS, Sampling, estimate
from weft.metrics.units import TIMERS, scale_of, unit_of
from weft.metrics.written import Written
from weft.model.measured import (
    EXACT,
    Completeness,
    Interval,
    MetricKind,
    Missing,
    Sample,
    Shed,
    TargetFacts,
    Value,
)
from weft.model.points import Process
from weft.model.values import Bucket, Histogram, MapValue, Timer

if TYPE_CHECKING:
    from weft.control.probing import Probing
    from weft.metrics.engine import Engine
    from weft.metrics.nodes import Node

__all__ = ["Metric", "Reading"]


_IN_PROPORTION = (
    "the interval is of the sum: the parts are estimates in proportion to what was measured, "
    "without those that came only in between"
)
_SHORTEST = 1e-9
_JUMPED = "their calls end in a jump to another function, which alone has the result"
_EACH_CALL = "-m latency times each call, whatever stack it is on"
_NARROWER = "measure fewer processes at a time"


class Reading(NamedTuple):
    """How a metric's total is found among the numbers of a sample."""

    metric: Metric
    width: int
    """How many numbers are its own; the total is the first."""
    scale: float
    first: float
    """What had been measured when it was asked for."""


class Metric(Written):
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
        portion: tuple[int, int] = (0, 1),
        waits: bool = False,
        by: By | None = None,
    ) -> None:
        self._engine = engine
        self._by = by
        self._is_divided = by is not None or bool(plan and plan.by_function == "key")
        self._namings: list[Naming] = []
        if by is not None or definition.base.type == "map":
            self._namings = namings(definition, by, lambda: engine.symbols, engine.session.pid)
        self.stacks_of: TargetFacts | None = None
        """Whose stacks its keys are; nothing if they are none."""
        if is_by_stack(definition, by):
            self.stacks_of = _facts(engine.session)
        self._waits = waits
        self._definition = definition
        self._focus = focus
        self._plan = plan
        self._portion = portion
        self.node = node
        self.say_shed: Callable[[], Shed | None] | None = None
        """Tells what the budget does to it; set where there is one."""
        self.sampling: Sampling | None = None
        self._history = History()
        self._names = ThreadNames(engine.session)
        self._last: Raw | None = None
        self._last_hits = 0
        self._last_lost: tuple[Missing, ...] = ()
        self._completeness = EXACT
        self._kernel: kernel.Counter | None = None
        """Who reads it, if the kernel counts it."""
        if plan is None:
            self._kernel = kernel.counter(
                engine.session, definition, self.unit, focus, by, self._names
            )
        self._growth = Growth(definition)
        self._broken: tuple[Missing, ...] = ()
        self._began = time.monotonic()
        self._ended: float | None = None
        self._first: Raw | None = None
        self._hits_before = 0
        self._left_before = 0
        self._unseen_before = 0
        self._before = self._by_owner() if self._definition.aggregate != "sum" else {}
        self._first = self._read() if not self._picks_one else None
        self._hits_before = self._hits()
        self._left_before = self.left
        self._unseen_before = self._results_unseen()
        self.note(time.time(), self._total(self._minus(self._read())))

    # What it is.

    @property
    def definition(self) -> ast.Metric:
        """What says where and how it is measured."""
        return self._definition

    @property
    def name(self) -> str:
        """The metric's name."""
        return self._definition.name

    @property
    def focus(self) -> str:
        """The focus; empty for the whole program."""
        return str(self._focus)

    @property
    def path(self) -> str:
        """The metric and its focus, as the command line has them."""
        return f"{self.name}@{self.focus}" if self.focus else self.name

    @property
    def title(self) -> str:
        """The metric's name for people."""
        return self._definition.title or self.name

    @property
    def kind(self) -> MetricKind:
        """What the value is."""
        if self._is_divided:
            return "map"
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
        return unit_of(self._definition, self.kind, self._by)

    @cached_property
    def _scale(self) -> float:
        """What a number of the target is in the metric's unit: times are in seconds."""
        return scale_of(self._definition, self._by)

    @property
    def is_monotonic(self) -> bool:
        """Whether the value only grows, by its definition and as far as it was seen."""
        return self.kind != "rate" and self._growth.is_monotonic

    @property
    def seconds(self) -> float:
        """How long it has been measured, of the time that the target could run."""
        ends = [end for end in (self._ended, self._engine.ended) if end is not None]
        now = min(ends) if ends else time.monotonic()
        return max(now - max(self._began, self._engine.session.resumed), 0.0)

    @property
    def is_waiting(self) -> bool:
        """Whether nothing is there yet that it could be measured at."""
        return self.node is not None and not any(probe.points for probe in self.node.probes)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What one should know of the value, although nothing is missing of it."""
        found = []
        if paths := self._plan.base.tail_calls if self._plan else ():
            others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            where = f"{paths[0]}{others}"
            found.append(
                f"the time of {where} ends where it jumps to another function (a tail call)"
            )
        if self.is_waiting:
            found.append("nothing that it is about has been loaded: `weft points` lists what is")
        is_by_key = self._is_divided and not self._is_by_thread
        if is_by_key and self._definition.base.type == "wallTimer":
            found.append("every call counts by itself, also those within others (recursion)")
        if self.kind in ("map", "histogram") and self.interval is not None:
            found.append(_IN_PROPORTION)
        return tuple(found)

    @property
    def doc(self) -> str:
        """What its definition says about it."""
        return self._definition.doc

    @property
    def shed(self) -> Shed | None:
        """What was shed of it to stay within the budget."""
        return None if self.say_shed is None else self.say_shed()

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
    def left(self) -> int:
        """How many calls did not return, so that their time is not in the value.

        An exception, ``longjmp`` or the end of their thread may have ended them; so may a switch to
        another stack within a thread. Where weft sees it happen, times end there and are counted.
        """
        if self.node is None or self._plan is None or self._gaps():
            return 0
        left = self.node.probes[0].lost(self._plan.kept) if self._plan.kept else 0
        for predicate in self.node.needs:
            declared = predicate.instrument.declarations[0].split()[1]
            stale = predicate.probes[0].value(left_name(declared), process="all")
            assert isinstance(stale, int)
            left += stale
        return left - self._left_before

    def _results_unseen(self) -> int:
        """How many calls had a result that it wants and has not seen."""
        if self.node is None or RESULTS_UNSEEN not in self.node.probes[0].names:
            return 0
        unseen = self.node.probes[0].value(RESULTS_UNSEEN, process="all")
        assert isinstance(unseen, int)
        return unseen - self._unseen_before

    @property
    def missing(self) -> tuple[str, ...]:
        """The names in its lists that the program does not have."""
        return self._plan.base.missing if self._plan else ()

    def code_paths(self, lists: Mapping[str, ast.ListDefinition]) -> list[str]:
        """The paths below ``/Code`` that say what it is about."""
        part = self._focus.of("Code")
        named = {place.name for place in places(self._definition.base.body)}
        items = (item for name in named & lists.keys() for item in lists[name].items)
        paths = [item.pattern for item in items if item.pattern.startswith("/Code/")]
        return [f"/Code/{part[0]}", *paths] if part else paths

    def plan_again(self) -> Plan | None:
        """Say what it needs now that other modules are there."""
        by_function = bool(self._plan and self._plan.by_function)
        return self._engine.plan(
            self._definition,
            self.focus,
            by_function=by_function,
            by=self._by,
            portion=self._portion,
            waits=self._waits,
        )

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
        return estimate(self._total(self._minus(self._read())), gaps, self._hits())[1]

    @property
    def completeness(self) -> Completeness:
        """Whether the value is exact, an estimate, or incomplete; and why."""
        if self._last is None:
            self._engine.look_again()
        return self._complete()

    def _complete(self) -> Completeness:
        self._engine.see_refused()
        missing = (*self._missing_points, *self._lost(), *self._time_missed(), *self._broken)
        newest = Completeness(self.interval, missing)
        # Samples keep it, and it seldom changes.
        if newest != self._completeness:
            self._completeness = newest
        return self._completeness

    @cached_property
    def _missing_points(self) -> tuple[Missing, ...]:
        if self.node is None:
            return ()
        found = self.node.missing(self._began, in_clone=self._engine.in_clone)
        last = self._engine.unnoticed
        if last is not None and last > self._began and self._engine.is_of_libraries(self):
            found.append(unnoticed(self.focus, last))
        return tuple(found)

    def _time_missed(self) -> tuple[Missing, ...]:
        shed = self.shed
        if shed is None or shed.how != "removed":
            return ()
        why = f"measuring it costs more than the budget allows; {shed.effect}"
        return (Missing("time", self.focus, why, None, "allow more: --budget"),)

    def _lost(self) -> tuple[Missing, ...]:
        """What there was no room for in the target."""
        if self._kernel is not None:
            return self._kernel.lost()
        if self.node is None or self._plan is None or self._last is not None:
            return self._last_lost
        probe, found = self.node.probes[0], []
        if self._plan.kind in ("map", "ring"):
            what, advice = (
                ("records", "") if self._plan.kind == "ring" else ("additions", FEWER_KEYS)
            )
            if count := probe.lost(self._plan.datum):
                why = "there was no room for them"
                found.append(Missing(what, self.focus, why, count, advice))
        if left := self.left:
            why, advice = "they did not return", ""
            if self._plan.kind == "timer":
                why += ", or others came in between on another stack (coroutines)"
                advice = _EACH_CALL
            found.append(Missing("calls", self.focus, why, left, advice))
        if unseen := self._results_unseen():
            found.append(Missing("results", self.focus, _JUMPED, unseen))
        if twice := freed_twice(self.missing, probe.threads, self.focus):
            found.append(twice)
        if probe.is_crowded:
            why = "more threads have measured at a time than there is room for"
            found.append(Missing("threads", self.focus, why, None, _NARROWER))
        found += self._threads_missed()
        found += missing_processes(self._engine, is_of_first=self._is_of_first)
        self._last_lost = tuple(found)
        return self._last_lost

    def _threads_missed(self) -> list[Missing]:
        """What is missing of values that depend on threads."""
        births, found = self._engine.births, []
        if births is not None and self.needs_births and self.node is not None:
            probe = self.node.probes[0]
            found += births.missing(probe, self.focus)
            if thread := self._focus.of("Thread"):
                tids = (tid for _, tid in probe.threads())
                found += self._names.unknown(tids, thread[0], self.focus)
        return found

    @property
    def _is_of_first(self) -> bool:
        """Whether it is narrowed to the process that the session began with."""
        return self._focus.of("Process") == (str(self._engine.session.pid),)

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
        counts = [probe.value(HITS) for probe in self.node.probes]
        hits = sum(count for count in counts if isinstance(count, int))
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
        seen = number(raw)
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
            and not self._is_by_thread
            and not self._gaps()
            and self._definition.aggregate == "sum"
            # Values by point are kept anew for each library that comes.
            and len(self.node.probes[0].numbers) == 1
        )

    def reading(self) -> Reading:
        """How its total is found among the numbers of a sample."""
        assert self._plan is not None
        width = 1 if self._plan.kind == "counter" else 2
        scale = 1e-9 if self.kind == "timer" else self._scale
        first = self._total(self._first) if self._first is not None else 0.0
        if isinstance(self._first, dict):
            first = number(self._first) * scale
        return Reading(self, width, scale, first)

    def note_value(self, now: float) -> None:
        """Read the value and note its total."""
        self.note(now, self._total(self._now()))

    def _total(self, raw: Raw) -> float:
        """A value as one number in the metric's unit."""
        return number(raw) * self._scale

    def note(self, now: float, total: float) -> None:
        """Note a total, and how complete it is."""
        self._check(total)
        self._history.add(now, total, self._complete())

    def _check(self, total: float) -> None:
        """Take note of what cannot be: then something was not measured right, whatever it was."""
        found = None
        if self.is_monotonic and self.interval is None:
            # An estimate may fall because it gets better.
            found = self._growth.see(self._newest(), total, self.focus)
        if found is None and self._plan is not None and self._plan.kind == "timer":
            wall = self.seconds
            # One thread there always is; how many there were is asked only where it matters.
            if too_long(total, 1, wall, self.focus) and self.node is not None:
                threads = len(self.node.probes[0].threads())
                found = too_long(total, threads, wall, self.focus)
        if found is not None:
            self._broken = (found,)

    def freeze(self) -> None:
        """Keep the value as it is."""
        if self._last is None:
            last = self._read()
            self._hits()
            self._lost()
            self._last = last
            self._ended = time.monotonic()
            if self.sampling is not None:
                self.sampling.end()

    def _read(self) -> Raw:
        if self._last is not None:
            return self._last
        if self._kernel is not None:
            return self._kernel.read()
        assert self._plan is not None
        assert self.node is not None
        probe, name = self.node.probes[0], self._plan.datum
        if self._is_by_thread:
            return self._by_thread()
        if self._plan.kind == "ring":
            return self._records()
        if self._picks_one:
            # Of each since it was asked for; one that has not come by since then has no value.
            now = self._by_owner().items()
            found = ((self._before.get(owner, (0, None)), state) for owner, state in now)
            values = [less(value, old) for (since, old), (hits, value) in found if hits > since]
        else:
            values = [probe.value(name, process=pid, thread=tid) for pid, tid in self._owners()]
        return self._selected(combine(values, self._definition.aggregate, self._plan))

    def _selected(self, value: Raw) -> Raw:
        """Of a map, the sum of the key that the focus asks for; other values as they are."""
        if self._plan is None or not self._plan.selected or not isinstance(value, dict):
            return value
        key = self._plan.selected
        return value.get(key[0] if len(key) == 1 else (key[0], key[1]), 0)

    @property
    def _picks_one(self) -> bool:
        """Whether its value is that of one thread, the least or the most."""
        return self._plan is not None and self._definition.aggregate != "sum"

    @cached_property
    def needs_births(self) -> bool:
        """Whether it matters to the value which thread has measured what."""
        return needs_births(self._definition, self._focus, self._by)

    @property
    def _is_by_thread(self) -> bool:
        return self._by is not None and self._by.key is None

    def _by_thread(self) -> Raw:
        """The value of each thread, by its id; of timers in nanoseconds."""
        assert self.node is not None
        assert self._plan is not None
        probe, found = self.node.probes[0], Counter[Any]()
        for pid, tid in self._threads():
            value = self._selected(probe.value(self._plan.datum, process=pid, thread=tid))
            found[tid] += value.ns if isinstance(value, Timer) else int(number(value))
        return dict(found)

    def _threads(self) -> list[tuple[int, int]]:
        """The threads that the focus asks for, each with its process."""
        assert self.node is not None
        process, thread = self._focus.of("Process"), self._focus.of("Thread")
        wanted = process[0] if process else "*"
        return [
            (pid, tid)
            for pid, tid in self.node.probes[0].threads()
            if wanted in ("*", str(pid)) and (not thread or self._names.are_called(tid, thread[0]))
        ]

    def _by_owner(self) -> dict[tuple[Process, int | None], tuple[int, Raw]]:
        """How often each thread has come by, and its value."""
        if self._plan is None or self.node is None:
            return {}
        probe, name, found = self.node.probes[0], self._plan.datum, {}
        for pid, tid in self._owners():
            hits = probe.value(TAKES_PART, process=pid, thread=tid)
            assert isinstance(hits, int)
            found[pid, tid] = hits, probe.value(name, process=pid, thread=tid)
        return found

    def _owners(self) -> list[tuple[Process, int | None]]:
        """The processes that the focus asks for, or their threads where it matters which one."""
        assert self.node is not None
        probe = self.node.probes[0]
        process, thread = self._focus.of("Process"), self._focus.of("Thread")
        if not process and not thread and self._definition.aggregate == "sum":
            return [("all", None)]
        processes = [
            pid for pid in probe.processes() if not process or process[0] in ("*", str(pid))
        ]
        if not thread and self._definition.aggregate == "sum":
            return [(pid, None) for pid in processes]
        return [*self._threads()]

    def _records(self) -> int:
        assert self.node is not None
        assert self._plan is not None
        from weft import _native

        sampler = _native.Sampler(self._engine.target, [(self.node.number, self._plan.datum)])
        return sampler.read()[0]

    def _minus(self, raw: Raw) -> Raw:
        """What was measured since this metric was asked for: another may have been before."""
        return less(raw, self._first)

    def _shown(self, raw: Raw) -> Value:
        if isinstance(raw, Timer):
            return raw.seconds
        if isinstance(raw, dict):
            names = [self._names.shown] if self._is_by_thread else self._namings
            return named(raw, names, self._scale)
        if isinstance(raw, Histogram):
            return raw
        if self.kind == "rate":
            return raw * self._scale / max(self.seconds, _SHORTEST)
        return raw if self._scale == 1.0 else raw * self._scale

    def by_key(self) -> MapValue:
        """The value of a map by its keys as the target has them: numbers, or pairs of them."""
        raw = self._now()
        return raw if isinstance(raw, dict) else {}

    def by_function(self) -> dict[str, int | float]:
        """The value of each function of the focus, by its path; empty when it is not known.

        It is known when the metric was asked for with ``by_function=True``. Of times, recursion
        counts every call, not only the outermost.
        """
        if self._plan is None or self.node is None or self._plan.by_function in ("", "key"):
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
            if self._scale != 1.0:
                return {path: count * factor * self._scale for path, count in counts.items()}
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

    @property
    def functions(self) -> list[str]:
        """The paths of the functions that :meth:`by_function` has values of, if it counts."""
        if self._plan is None or self._plan.by_function != "point":
            return []
        return list(dict.fromkeys(filter(None, self._paths_by_point)))

    def forget_points(self) -> None:
        """Its points have changed."""
        for known in ("_paths_by_point", "_paths_by_address", "_missing_points"):
            self.__dict__.pop(known, None)

    @cached_property
    def _paths_by_point(self) -> list[str]:
        """The function of each point that counts; empty where it was never woven."""
        assert self.node is not None
        probe = self.node.probes[0]
        never_woven = probe._never_woven
        return ["" if point in never_woven else point.path for point in probe.points]

    @cached_property
    def _paths_by_address(self) -> dict[int, str]:
        assert self.node is not None
        points = (point for probe in self.node.probes for point in probe.points)
        return {point.address: point.path for point in points}

    # Its course.

    def history(self) -> list[Sample]:
        """Return the samples so far, the oldest first. When there are many, they get further apart.

        Of histograms the value is how many there were, of maps the sum; of rates, how much per
        second since the sample before.
        """
        is_whole = self._definition.base.type not in TIMERS and self._scale == 1.0
        return self._history.samples(is_rate=self.kind == "rate", is_whole=is_whole)

    def _newest(self) -> float:
        return self._history.totals[-1] if len(self._history) else 0.0

    def stream(self, interval: float = 1.0, limit: int | None = None) -> Iterator[Sample]:
        """Sample every ``interval`` seconds: all metrics of the session; yield this one's.

        When the target ends, the stream ends with its last values. Where nothing is measured any
        more, since the session is over or the metric was removed, there is no stream but an error.
        """
        course = Course(self, interval)
        for _ in itertools.count() if limit is None else range(limit):
            time.sleep(course.pace.rest())
            if (sample := course.next()) is None:
                return
            yield sample

    async def samples(
        self, interval: float = 1.0, limit: int | None = None
    ) -> AsyncIterator[Sample]:
        """Sample like :meth:`stream`, for ``async for``."""
        # It takes as long as much of what is needed always.
        import asyncio

        course = Course(self, interval)
        for _ in itertools.count() if limit is None else range(limit):
            await asyncio.sleep(course.pace.rest())
            if (sample := course.next()) is None:
                return
            yield sample

    def total_now(self) -> float:
        """The value as one number."""
        return self._total(self._now())

    @property
    def is_removed(self) -> bool:
        """Whether its value is kept as it was."""
        return self._last is not None

    @property
    def is_over(self) -> bool:
        """Whether it is not measured any more: removed, or the session is over."""
        return self._last is not None or self._engine.session.has_ended

    def require(self) -> None:
        """Raise an error if it is not measured any more."""
        self._engine.session.require()
        if self._last is not None:
            raise InvalidArgument(f"{self.path} was removed", "", "ask for it again")

    def since(self, before: tuple[float, float]) -> Sample:
        """Sample all metrics, and return how this one has grown since a time and a total."""
        # Another stream may have noted the last values already.
        with suppress(TargetGone):
            self._engine.sample()
        now, raw = time.time(), self._now()
        change, seconds = self._total(raw) - before[1], now - before[0]
        value = self._shown(raw)
        if self.kind == "rate":
            value = change / seconds if seconds > 0 else 0.0
        return Sample(now, value, change, seconds, self.completeness)

    # Its end.

    def remove(self) -> None:
        """Stop measuring it. Its last value can still be read."""
        self._engine.remove([self])

    def __repr__(self) -> str:
        try:
            value, status = self.value, self.completeness.status
        except WeftError as error:
            return f"<weft.Metric {self.path}: {error}>"
        shown = f"{value.count} values" if isinstance(value, Histogram) else str(value)
        doubt = "" if status == "exact" else f", {status}"
        return f"<weft.Metric {self.path}: {f'{shown} {self.unit}'.rstrip()}{doubt}>"


def _facts(session: Probing) -> TargetFacts:
    """Whom it is about, while that can be asked: values are read when the target has ended, too."""
    with suppress(WeftError):
        return TargetFacts(session.pid, session.program(), session.command())
    return TargetFacts(session.pid, "")
