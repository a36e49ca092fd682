"""Keeps what a target loses to measuring within a budget.

What is asked for is not woven at once: how often its code would be hit is tried for a few
milliseconds, by a counter that costs a nanosecond. That, times the predicted time of a hit, is what
it will cost. What fits into the budget is measured, the cheapest first. A counter that does not fit
is duty-cycled, and its value is an estimate with an interval; what cannot be estimated is
left out, and says so, with how often it would be hit. Moments tell when there is room again.

What everything costs is accounted for, weft's own use of processors included: see
:mod:`weft.metrics.ledger`. Whatever is optional waits until the account allows it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

from weft import _native
from weft.base.numbers import percent
from weft.errors import WeftError
from weft.metrics.ledger import OWN, Ledger, Loss
from weft.metrics.sampling import DEAREST, HITS, Moment, Sampling
from weft.model.measured import Shed

if TYPE_CHECKING:
    from weft.metrics.engine import Engine
    from weft.metrics.metric import Metric
    from weft.metrics.nodes import Node

__all__ = ["Budget"]

_SOON = 0.01
"""How long to wait before looking again after a change, in seconds; then ever longer."""
_CALM = (0.1, 0.25)
"""How long at least and at most when all is well: the more looking costs, the longer."""
_LOOKS = 0.1
"""What part of the budget may be spent on looking."""
_MOMENT = (0.001, 0.005)
"""How long at least and at most something is in the code that is measured for a moment."""
_FIRST_BATCH = 512
"""How many points are tried together at first; each time that goes well, twice as many."""
_SHORTEST_RUN = 0.0002
"""How long the target has to run for its rates to be known."""
_TRIES = 50
"""How often it is tried at most what something costs."""
_MOST = 0.85
"""What part of the budget is planned for: predictions are rough."""
_MOMENTS = 0.3
"""What part of it is kept for duty cycles, where there are any."""
_LEAST = 0.2
"""What part of it is there for probes, whatever else weft spends."""
_ROOM = 0.6
"""What part of what there is must be enough to measure something again."""
_LONGEST_PACE = 30.0
"""How long at most between two samples or pictures, in seconds, unless longer was asked for."""
_PROMPT = 1
"""How many samples come in time after something new was asked for, whatever they cost."""
_PATIENCE = 2.0
"""How long something stays shed at least, in seconds; each time it is shed, twice as long."""
_MOST_PATIENCE = 120.0
_LATE = 1.0
"""How long something may wait until it is known what it costs without that being said."""


@dataclass(eq=False)
class _Meter:
    """A piece of code in the target, and how often it was hit."""

    number: int
    cost: float
    """Predicted seconds of a hit."""
    stands_for: float
    """The same of what would be measured, if this only tries how often it would be hit."""
    users: int = 1
    hits: int = 0
    fresh: int = 0
    """How many of them since the last look."""


@dataclass(eq=False)
class _Unit:
    """What is measured or shed as a whole: an instrument with the predicates that it needs."""

    node: Node
    meters: list[_Meter]
    scouts: list[_Meter]
    """Counts how often it would be hit; `None` where it can be duty-cycled itself."""
    state: Literal["waiting", "on", "sampled", "removed"] = "waiting"
    load: float | None = None
    """The part of the target's time that it takes when it is measured; not known at first."""
    tried: int = 0
    """How often it was tried what it costs."""
    sampling: Sampling | None = None
    missed: float = 0.0
    """How long it was removed before, or waited, in seconds."""
    asked: float = field(default_factory=time.time)
    """When it was asked for."""
    shed_at: float = 0.0
    patience: float = _PATIENCE

    @property
    def is_shed(self) -> bool:
        """Whether it is not measured all the time."""
        return self.state in ("sampled", "removed")

    @property
    def tries(self) -> list[_Meter]:
        """What is put into the code for a moment."""
        return self.scouts or self.meters

    @property
    def points(self) -> int:
        """How many places in the code it is about."""
        return sum(len(weaving.points) for weaving in self.node.instrument.weavings)


@dataclass
class _Decision:
    """What is to change."""

    on: list[_Unit] = field(default_factory=list)
    off: list[_Unit] = field(default_factory=list)


class Budget:
    """Watches the metrics of an engine, in a thread of its own.

    With ``counts_process`` all processor time of this process counts as weft's own.
    """

    def __init__(self, engine: Engine, share: float, *, counts_process: bool = False) -> None:
        self.share = share
        self._engine = engine
        self.ledger = Ledger(
            engine.session.pid, share, engine.session.pauses, counts_process=counts_process
        )
        self._units: dict[int, _Unit] = {}
        self._meters: dict[int, _Meter] = {}
        self._sampler: _native.Sampler | None = None
        self._spent = 0.0
        """How much of its time the target last spent in probes, as predicted."""
        self._chance = random.Random()
        self._batch = _FIRST_BATCH
        self._length = max(_MOMENT[0], min(self.ledger.burst, _MOMENT[1]))
        self._expected = 0.0
        """What a moment costs, in seconds; as the last one did."""
        self._due = 0.0
        self._rest = _SOON
        self._paced: float | None = None
        """What weft had used when the pace was last asked for, beside keeping the budget."""
        self._owed = 0.0
        """What sampling and drawing have cost and is still to be made up for, in seconds."""
        self._prompt = _PROMPT
        self._kept = 0.0
        """What keeping the budget has cost, in seconds."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="weft-budget", daemon=True)
        self._thread.start()

    @property
    def overhead(self) -> float:
        """What the target loses at the moment, from 0 to 1."""
        return self.ledger.overhead

    def set_share(self, share: float) -> None:
        """Keep what the target loses below another part of its time from now on."""
        self.share = self.ledger.share = share

    def close(self) -> None:
        """Stop watching; what is shed stays as it is."""
        self._end.set()
        self._thread.join()

    def pace(self, interval: float) -> float:
        """How long to wait before the next round of sampling and drawing.

        It is longer than ``interval`` where rounds have cost the target too much. The first after
        something new was asked for does not wait for that: it is made up for later.
        """
        # Keeping the budget costs the same however seldom something is drawn.
        used = self.ledger.own.seconds() - self._kept
        if self._paced is not None:  # before the first round, weft was only started
            self._owed += max(used - self._paced, 0.0)
        self._paced = used
        if self._prompt:
            self._prompt -= 1
            return interval
        allowed = OWN * self.share
        rest = max(interval, min(self._owed / allowed, _LONGEST_PACE))
        self._owed = max(self._owed - allowed * rest, 0.0) if rest < _LONGEST_PACE else 0.0
        return rest

    def admit(self) -> None:
        """Begin to measure what has been asked for, as far as it fits into the budget."""
        is_first = not self._units
        self._prompt = _PROMPT
        with self.ledger.own.preparing():
            self._follow()
        if is_first:
            self.ledger.begin()
        self._tell(self._units.values())
        while waiting := self._waiting():
            self._try()
            has_begun = any(unit.tried for unit in waiting if unit.state == "waiting")
            if self.ledger.balance < self._expected and not has_begun:
                # The rest is tried when the account allows it.
                break
        self._rest = _SOON

    def _run(self) -> None:
        while not self._end.wait(self._rest):
            try:
                with self._engine.lock, self.ledger.own.working():
                    began = time.thread_time()
                    self._step()
                    used = time.thread_time() - began
                    self._kept += used * self.ledger.own.contention
            except WeftError:
                # The target has ended, or is just ending: there is nothing left to keep.
                return

    def _step(self) -> None:
        """Look, decide, and do what is due."""
        began = time.thread_time()
        self._follow()
        if not self._units:
            self._rest = _CALM[1]
            return
        if self._engine.target.is_stopped():
            # It may go on at any time, and nothing is known of it yet.
            self._rest = _SOON
            return
        self._look()
        looking = (time.thread_time() - began) / (_LOOKS * self.share)
        self._decide()
        can_spend = self.ledger.balance >= min(self._expected, self.ledger.burst)
        if can_spend and self._waiting():
            self._try()
        elif can_spend and time.monotonic() >= self._due:
            self._sample([unit for unit in self._units.values() if unit.is_shed])
        self._rest = min(2 * self._rest, max(_CALM[0], min(looking, _CALM[1])))
        if self._due and can_spend:
            self._rest = max(0.001, min(self._rest, self._due - time.monotonic()))

    # What there is.

    def _follow(self) -> None:
        """Take note of instruments that have come, gone or grown."""
        bases = {id(node): node for node in self._engine.bases() if node.has_hits}
        known = {key: len(unit.meters) for key, unit in self._units.items()}
        if known == {key: len(node.numbers) for key, node in bases.items()}:
            return
        meters: dict[int, _Meter] = {}
        units: dict[int, _Unit] = {}
        for key, node in bases.items():
            own = [self._meter(number, meters) for number in node.numbers]
            scouts = [
                self._meter(probe.numbers[0], meters, meters[real].cost)
                for probe, real in node.scouts
            ]
            unit = self._units.get(key) or _Unit(node, own, scouts)
            unit.meters, unit.scouts = own, scouts
            units[key] = unit
        self._meters, self._units = meters, units
        self._sampler = None

    def _meter(
        self, number: int, meters: dict[int, _Meter], stands_for: float | None = None
    ) -> _Meter:
        meter = meters.get(number)
        if meter is not None:
            meter.users += 1
            return meter
        meter = self._meters.get(number)
        if meter is None:
            cost = self._cost(number)
            meter = _Meter(number, cost, cost if stands_for is None else stands_for)
        meter.users = 1
        meters[number] = meter
        return meter

    def _cost(self, number: int) -> float:
        return self._engine.target.probe_cost(number) / 1e9

    def _waiting(self) -> list[_Unit]:
        return [unit for unit in self._units.values() if unit.state == "waiting"]

    # What it costs.

    def _read(self) -> None:
        """Read how often everything was hit."""
        if self._sampler is None:
            data = [(number, HITS) for number in self._meters]
            self._sampler = _native.Sampler(self._engine.target, data)
        for meter, hits in zip(self._meters.values(), self._sampler.read(), strict=True):
            change = hits - meter.hits
            meter.hits = hits
            meter.fresh += change
            self._spent += change * meter.cost

    def _look(self) -> Loss:
        """Note what was spent since the last look."""
        self._read()
        loss = self.ledger.note(self._spent)
        self._spent = 0.0
        own = max(loss.ran - loss.probes, (1 - DEAREST) * loss.ran)
        for unit in self._units.values():
            if unit.state == "on" and loss.ran >= _SHORTEST_RUN:
                cost = sum(meter.fresh * meter.cost / meter.users for meter in unit.meters)
                unit.load = cost / own
        for meter in self._meters.values():
            meter.fresh = 0
        return loss

    def _moment(self, units: Iterable[_Unit]) -> dict[int, Moment]:
        """Put units into the code for one interval, and return what they cost, by node."""
        units = list(units)
        tried = list(dict.fromkeys(meter for unit in units for meter in unit.tries))
        numbers = [meter.number for meter in tried]
        self._look()
        began = time.thread_time()
        before = {meter: meter.hits for meter in tried}
        ran = self._engine.target.enable_probes_for(numbers, self._length)
        self._read()
        hits = {meter: meter.hits - before[meter] for meter in tried}
        lost = min(sum(count * meter.cost for meter, count in hits.items()), DEAREST * ran)
        moments = {}
        # One that has not run may also wait for its turn, on a busy machine.
        is_idle = ran < _SHORTEST_RUN and not self._is_runnable()
        for unit in units:
            if ran >= _SHORTEST_RUN:
                cost = sum(hits[meter] * meter.stands_for / meter.users for meter in unit.tries)
                unit.load = cost / (ran - lost)
            elif unit.load is None and (is_idle or unit.tried == _TRIES):
                # It does nothing at the moment. When it does, that is seen soon.
                unit.load = 0.0
            unit.tried += 1
            counted = unit.tries[:1] if unit.scouts else unit.tries
            moments[id(unit.node)] = Moment(sum(hits[meter] for meter in counted), ran, lost)
        loss = self._look()
        # What other threads of weft do meanwhile is not because of the moment.
        own = min(loss.own, time.thread_time() - began)
        self._expected = max(loss.seconds - loss.own, loss.stopped) + own
        # As long as may be spent at once, the two stops included.
        pace = max(self._expected - loss.stopped, 0.1 * loss.passed) / max(loss.passed, 1e-6)
        length = (self.ledger.burst - loss.stopped) / pace
        self._length = max(_MOMENT[0], min(length, _MOMENT[1]))
        return moments

    def _is_runnable(self) -> bool:
        return any(thread.state == "R" for thread in self._engine.session.threads())

    def _try(self) -> None:
        """Find out what some of the units that wait would cost, and decide about them."""
        batch: list[_Unit] = []
        room = self._batch
        for unit in self._waiting():
            if batch and unit.points > room:
                break
            batch.append(unit)
            room -= unit.points
        if self._engine.target.is_stopped():
            for unit in batch:
                unit.load = 0.0
            moments: dict[int, Moment] = {}
        else:
            moments = self._moment(batch)
            self._batch *= 2
        self._decide(moments)

    def _sample(self, shed: list[_Unit]) -> None:
        """Measure what is shed for a moment, and say when the next one is."""
        if not shed:
            self._due = 0.0
            return
        moments = self._moment(shed)
        for unit in shed:
            if unit.sampling is not None:
                unit.sampling.moments.append(moments[id(unit.node)])
        self._plan_moment()
        self._decide()

    def _plan_moment(self) -> None:
        load = sum(unit.load or 0.0 for unit in self._units.values() if unit.state == "on")
        spare = max(_MOST * self.share - load - self.ledger.own_share, _LEAST * self.share)
        rest = max(self._expected / spare, 2 * self._length)
        # At irregular times, so that a program with a rhythm does not always show the same of it.
        self._due = time.monotonic() + rest * self._chance.uniform(0.75, 1.25)

    # What follows from it.

    def _decide(self, moments: dict[int, Moment] | None = None) -> None:
        """Measure what there is room for, and shed what there is none for."""
        decision = _Decision()
        units = list(self._units.values())
        on = [unit for unit in units if unit.state == "on"]
        load = sum(unit.load or 0.0 for unit in on)
        limit = max(_MOST * self.share - self.ledger.own_share, _LEAST * self.share)
        new = [unit for unit in units if unit.state == "waiting" and unit.load is not None]
        with_new = load + sum(unit.load or 0.0 for unit in new)
        if with_new > limit or any(unit.is_shed for unit in units):
            limit = max(limit - _MOMENTS * self.share, _LEAST * self.share)
        # A burst is paid from the account.
        if load > limit and self.ledger.balance < self.ledger.burst / 2:
            for unit in sorted(on, key=lambda unit: -(unit.load or 0.0)):
                if load <= limit:
                    break
                load -= unit.load or 0.0
                decision.off.append(unit)
        now = time.monotonic()
        off = [*new, *(unit for unit in units if unit.is_shed)]
        for unit in sorted(off, key=lambda unit: unit.load or 0.0):
            is_new = unit.state == "waiting"
            if not is_new and now - unit.shed_at < unit.patience:
                continue
            if load + (unit.load or 0.0) <= limit * (1.0 if is_new else _ROOM):
                load += unit.load or 0.0
                decision.on.append(unit)
            elif is_new:
                decision.off.append(unit)
        self._carry_out(decision, moments or {})

    def _carry_out(self, decision: _Decision, moments: dict[int, Moment]) -> None:
        if not decision.on and not decision.off:
            return
        for unit in decision.on:
            self._restore(unit)
        for unit in decision.off:
            self._shed(unit, moments.get(id(unit.node)))
        wanted = {
            id(node)
            for unit in self._units.values()
            if unit.state == "on"
            for node in (unit.node, *unit.node.needs)
        }
        nodes = {
            id(node): node
            for unit in self._units.values()
            for node in (unit.node, *unit.node.needs)
        }
        for is_on in (False, True):
            switched = [
                node
                for key, node in nodes.items()
                if (key in wanted) == is_on and node.is_on != is_on
            ]
            numbers = [number for node in switched for number in node.own_numbers]
            if numbers:
                self._engine.target.set_probes_enabled(numbers, is_on)
            for node in switched:
                node.is_on = is_on
        self._tell([*decision.on, *decision.off])
        self._rest = _SOON
        self._plan_moment()

    def _restore(self, unit: _Unit) -> None:
        if unit.sampling is not None:
            unit.sampling.end()
            unit.node.gaps.append(unit.sampling)
            if unit.state == "removed":
                unit.missed += time.time() - unit.sampling.since
        elif unit.state == "waiting" and (waited := time.time() - unit.asked) > _LATE:
            unit.missed += waited
        unit.state, unit.sampling = "on", None

    def _shed(self, unit: _Unit, moment: Moment | None) -> None:
        if unit.state == "on":
            # Whatever comes and goes is not to be put in and taken out again and again.
            unit.patience = min(2 * unit.patience, _MOST_PATIENCE)
        run_time = self.ledger.run_time
        cost = sum(meter.stands_for for meter in unit.meters) / max(len(unit.meters), 1)
        rate = (unit.load or 0.0) / cost if cost else 0.0
        unit.sampling = Sampling(run_time, run_time.seconds(), time.time(), rate)
        if moment is not None:
            # What was tried is what is known first.
            unit.sampling.began -= moment.seconds
            unit.sampling.moments.append(moment)
        unit.state = "removed" if unit.scouts else "sampled"
        unit.shed_at = time.monotonic()

    def _tell(self, units: Iterable[_Unit]) -> None:
        """Let the metrics know what is done to their values."""
        by_node = {id(unit.node): unit for unit in units}
        for metric in self._engine.metrics:
            unit = by_node.get(id(metric.node))
            if unit is not None:
                metric.sampling = unit.sampling
                metric.say_shed = partial(_said, metric, unit)
        self._engine.forget_sampler()


def _said(metric: Metric, unit: _Unit) -> Shed | None:
    """What is done to a metric to stay within the budget, if anything is."""
    name, focus, sampling = metric.name, metric.focus, unit.sampling
    if unit.state == "waiting":
        return Shed(name, focus, "removed", time.time(), 0.0, _WAITING)
    if sampling is None:
        if not unit.missed:
            return None
        text = f"incomplete: {unit.missed:.1f} s were not measured"
        return Shed(name, focus, "removed", time.time() - unit.missed, 1.0, text)
    if unit.state == "sampled":
        return Shed(name, focus, "sampled", sampling.since, sampling.share, _ESTIMATE, unit.load)
    when = time.strftime("%H:%M:%S", time.localtime(sampling.since))
    costs = "" if unit.load is None else f": costs about {percent(unit.load)}"
    text = (
        f"{_NOT_WITHIN}{costs}, hit about {sampling.rate:,.0f} times per second;"
        f" incomplete since {when}"
    )
    return Shed(name, focus, "removed", sampling.since, 0.0, text, unit.load)


_WAITING = "not measured yet: what it costs has to be tried"
_ESTIMATE = "the value is an estimate"
_NOT_WITHIN = "not within the budget"
