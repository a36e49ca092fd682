"""Keeps what a target loses to measuring within a budget.

What a probe costs is its predicted time for one hit, times how often it is hit: that is counted
along with what it measures. When all probes together cost more than they may, the one that costs
most is measured for moments only, and what is measured then stands for the rest; its value becomes
an estimate with an interval. What cannot be estimated is taken out, and says since when it is
incomplete. When there is room again, it is put back.

The moments are short, at irregular times, and each of them costs two stops of the target, which are
part of what is accounted for.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from weft import _native
from weft.errors import WeftError
from weft.metrics.model import Interval, Shed

if TYPE_CHECKING:
    from weft.metrics.engine import Engine, Node

__all__ = ["Budget", "Sampling"]

CONFIDENCE = 0.99
HITS = "weft_hits"
"""The counter that tells how often an instrument is hit."""

_LEARNING = 0.02
"""How long to look before anything is known about a probe, in seconds."""
_CALM = 0.25
"""How long to look when all is well."""
_MOMENT = 0.005
"""How long a probe is in the code when it is sampled."""
_LONGEST = 2.0
"""How long it is out at most."""
_SLOP = 40e-6
"""How well one knows when a stopped thread ran again."""
_DEAREST = 0.75
"""How much of the time that a moment takes can be the cost of measuring."""
_RESERVE = 0.7
"""What part of the budget sampling aims at: predictions are rough, and a stop takes its time."""
_ROOM = 0.5
"""What part of the budget must be enough to put something back."""


class RunTime:
    """How long the threads of a process have run on processors, those that have ended included.

    What the kernel tells of a thread is exact as of when it was last stopped or gave up its
    processor, which is when moments begin and end.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._threads: dict[str, int] = {}

    def seconds(self) -> float:
        """How long until now; as far as is known, when the process has ended."""
        for file in Path(f"/proc/{self._pid}/task").glob("*/schedstat"):
            try:
                self._threads[file.parent.name] = int(file.read_text().split()[0])
            except (OSError, IndexError, ValueError):
                # The thread has just ended.
                continue
        return sum(self._threads.values()) / 1e9


@dataclass
class Sampling:
    """What is known of an instrument that is not measured all the time.

    Times are those for which the target ran on processors: what else the machine does, and that the
    target is stopped for moments, then makes no difference.
    """

    run_time: RunTime
    began: float
    """How long the target had run when it began."""
    since: float
    """When that was, in seconds since 1970."""
    cost: float
    """Predicted seconds of a hit: so much longer does the target take when it is measured."""
    rate_before: float
    """Hits per second when it was last measured all the time."""
    moments: list[tuple[int, float]] = field(default_factory=list)
    """The hits of each moment, and how long the target ran in it."""
    ended: float | None = None
    """How long it had run when it ended: it is measured all the time again, or no longer."""

    @property
    def seconds_on(self) -> float:
        """How long it was measured."""
        return sum(seconds for _, seconds in self.moments)

    def rate_if(self, cost: float) -> float:
        """Hits per second when it is not measured, if a hit costs so many seconds."""
        hits = sum(hits for hits, _ in self.moments)
        own = max(self.seconds_on - hits * cost, (1 - _DEAREST) * self.seconds_on, 1e-9)
        return hits / own

    @property
    def seconds(self) -> float:
        """How long the target ran in all."""
        end = self.run_time.seconds() if self.ended is None else self.ended
        return max(end - self.began, self.seconds_on, 1e-9)

    @property
    def share(self) -> float:
        """The part of the time that it was measured."""
        return self.seconds_on / self.seconds

    @property
    def rate(self) -> float:
        """Hits per second when it is not measured, as far as one can say."""
        return self.rate_if(self.cost) if self.moments else self.rate_before

    def rates(self) -> tuple[float, float]:
        """The lowest and the highest rate that what was seen can come from."""
        count = len(self.moments)
        total = sum(hits for hits, _ in self.moments)
        if count < 3 or not total:
            return 0.0, 2 * self.rate
        # A ratio of two sums: what each moment is off by, if the rate were the same in all.
        mean = total / self.seconds_on
        squares = sum((hits - mean * seconds) ** 2 for hits, seconds in self.moments)
        spread = math.sqrt(squares * count / (count - 1)) / total
        # Each moment begins and ends a little earlier or later than one knows.
        off = _student(count - 1) * spread + _SLOP * count / self.seconds_on
        # What a hit costs is a prediction: it may be nothing, the processor hides much, or more.
        return self.rate_if(0.0) * max(1 - off, 0.0), self.rate_if(2 * self.cost) * (1 + off)

    def end(self) -> None:
        """Note that it is over."""
        if self.ended is None:
            self.ended = self.run_time.seconds()


def _student(freedom: int) -> float:
    """The factor for a two-sided interval of 99%, by Student's distribution; a little too much."""
    known = {1: 63.7, 2: 9.93, 3: 5.85, 4: 4.61, 5: 4.04, 6: 3.71, 7: 3.5, 8: 3.36, 9: 3.25}
    return known.get(freedom, 2.58 * (1 + 2.1 / freedom))


@dataclass
class _Watched:
    """A node, and what it costs."""

    node: Node
    cost: float
    """Predicted nanoseconds of a hit."""
    hits: int = 0
    load: float = 0.0
    """The part of the target's time that it takes when it is measured all the time."""
    sampling: Sampling | None = None
    due: float = 0.0
    is_removed: bool = False

    @property
    def is_sampled(self) -> bool:
        """Whether it is measured in moments."""
        return self.sampling is not None and not self.is_removed


class Budget:
    """Watches the metrics of an engine, in a thread of its own."""

    def __init__(self, engine: Engine, share: float) -> None:
        self.share = share
        self.overhead = 0.0
        """What the target loses at the moment, from 0 to 1."""
        self._engine = engine
        self._watched: dict[int, _Watched] = {}
        self._chance = random.Random()
        self._end = threading.Event()
        self._looked = time.monotonic()
        self._run_time = RunTime(engine.session.pid)
        self._cpu = self._run_time.seconds()
        self._pauses = 0
        self._thread = threading.Thread(target=self._run, name="weft-budget", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching; what is shed stays as it is."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        rest = _LEARNING
        while not self._end.wait(rest):
            try:
                with self._engine.lock:
                    rest = self._step()
            except WeftError:
                # The target has ended, or is just ending: there is nothing left to keep.
                return

    def _step(self) -> float:
        """Look, decide, and do what is due; return for how long nothing will be."""
        self._follow()
        now = time.monotonic()
        is_new = any(one.load == 0.0 and one.sampling is None for one in self._watched.values())
        if now - self._looked >= (_LEARNING if is_new else _CALM) * 0.9:
            self._look(now)
            self._decide()
        for one in self._watched.values():
            if one.is_sampled and time.monotonic() >= one.due:
                self._moment(one)
        sampled = (one for one in self._watched.values() if one.is_sampled)
        dues = [one.due - time.monotonic() for one in sampled]
        return max(0.001, min([_LEARNING if is_new else _CALM, *dues]))

    def _follow(self) -> None:
        """Take note of instruments that have come or gone."""
        nodes = {id(node): node for node in self._engine.nodes()}
        for key in [key for key in self._watched if key not in nodes]:
            del self._watched[key]
        for key, node in nodes.items():
            if key not in self._watched:
                self._watched[key] = _Watched(node, node.cost(self._engine.target))

    def _look(self, now: float) -> None:
        """Measure what is spent."""
        watched = list(self._watched.values())
        hits = self._hits(watched)
        cpu = self._run_time.seconds()
        passed = now - self._looked
        used = cpu - self._cpu if cpu > self._cpu else passed
        spent = 0.0
        for one, count in zip(watched, hits, strict=True):
            if one.sampling is None:
                one.load = (count - one.hits) * one.cost / 1e9 / used
            spent += (count - one.hits) * one.cost / 1e9
            one.hits = count
        pauses = self._engine.session.pauses(self._pauses)
        stopped = sum(pause.seconds for pause in pauses)
        self._pauses += len(pauses)
        current = spent / used + stopped / passed
        # A moment's costs come in lumps.
        weight = min(1.0, passed / 2)
        is_all_measured = all(one.sampling is None for one in watched)
        self.overhead += (current - self.overhead) * (1.0 if is_all_measured else weight)
        self._looked, self._cpu = now, cpu

    def _hits(self, watched: Iterable[_Watched]) -> list[int]:
        data = [(one.node.number, HITS) for one in watched]
        return list(_native.Sampler(self._engine.target, data).read())

    def _decide(self) -> None:
        full = [one for one in self._watched.values() if one.sampling is None]
        shed = [one for one in self._watched.values() if one.sampling is not None]
        load = sum(one.load for one in full)
        allowed = self.share * (1.0 if not shed else 1.0 - _RESERVE / 2)
        while full and load > allowed:
            dearest = max(full, key=lambda one: one.load)
            full.remove(dearest)
            load -= dearest.load
            self._shed(dearest)
        for one in shed:
            if load + one.load < _ROOM * self.share:
                load += one.load
                self._restore(one)

    def _shed(self, one: _Watched) -> None:
        one.is_removed = not one.node.can_be_sampled
        self._switch(one.node, False)
        now, cost = self._run_time.seconds(), one.cost / 1e9
        rate = one.load / cost if cost else 0.0
        one.sampling = Sampling(self._run_time, now, time.time(), cost, rate)
        one.due = time.monotonic() + self._chance.uniform(0.0, _MOMENT)
        self._tell(one)

    def _restore(self, one: _Watched) -> None:
        assert one.sampling is not None
        self._switch(one.node, True)
        one.sampling.end()
        one.node.gaps.append(one.sampling)
        one.sampling, one.is_removed = None, False
        self._tell(one)

    def _moment(self, one: _Watched) -> None:
        """Measure for a moment."""
        assert one.sampling is not None
        before = self._pauses + len(self._engine.session.pauses(self._pauses))
        count = self._hits([one])[0]
        self._switch(one.node, True)
        began = self._run_time.seconds()
        time.sleep(_MOMENT)
        self._switch(one.node, False)
        seconds = self._run_time.seconds() - began
        hits = self._hits([one])[0] - count
        pauses = self._engine.session.pauses(before)
        one.sampling.moments.append((hits, seconds))
        lost = min(hits * one.cost / 1e9, _DEAREST * seconds)
        spent = sum(pause.seconds for pause in pauses) + lost
        if seconds > 0:
            one.load = hits * one.cost / 1e9 / seconds
        count = sum(other.sampling is not None for other in self._watched.values())
        rest = spent * count / (self.share * _RESERVE)
        one.due = time.monotonic() + min(rest, _LONGEST) * self._chance.uniform(0.75, 1.25)
        self._tell(one)

    def _switch(self, node: Node, is_on: bool) -> None:
        """Put an instrument into the code or take it out, with what only it needs."""
        node.is_on = is_on
        for one in (node, *(predicate for predicate in node.needs if predicate.users == 1)):
            for probe in one.probes:
                if is_on:
                    probe.enable()
                else:
                    probe.disable()

    def _tell(self, one: _Watched) -> None:
        """Let the metrics know what is done to their values."""
        for metric in self._engine.metrics:
            if metric.node is one.node:
                metric.sampling = one.sampling
                self._engine.forget_sampler()
                metric.shed = _shed(metric.name, metric.focus, one)


def _shed(name: str, focus: str, one: _Watched) -> Shed | None:
    sampling = one.sampling
    if sampling is None:
        return None
    since = sampling.since
    if one.is_removed:
        when = time.strftime("%H:%M:%S", time.localtime(since))
        return Shed(name, focus, "removed", since, 0.0, f"incomplete since {when}")
    return Shed(name, focus, "sampled", since, sampling.share, "the value is an estimate")


def estimate(seen: float, gaps: Iterable[Sampling], hits: int) -> tuple[float, Interval]:
    """Return what a total that was seen only partly comes to, and where the truth is.

    ``seen`` is the total that was measured, by ``hits`` hits; the amount of a hit is taken to be
    the same on average whether it was measured or not.
    """
    missed = least = most = 0.0
    for gap in gaps:
        unseen = max(gap.seconds - gap.seconds_on, 0.0)
        low, high = gap.rates()
        missed += gap.rate * unseen
        least += low * unseen
        most += high * unseen
    factor = seen / hits if hits else 0.0
    return seen + missed * factor, Interval(seen + least * factor, seen + most * factor, CONFIDENCE)
