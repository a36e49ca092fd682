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
_MOMENT = 0.01
"""How long a probe is in the code when it is sampled."""
_LONGEST = 2.0
"""How long it is out at most."""
_SLOP = 40e-6
"""How well one knows when a stopped thread ran again."""
_RESERVE = 0.7
"""What part of the budget sampling aims at: predictions are rough, and a stop takes its time."""
_ROOM = 0.5
"""What part of the budget must be enough to put something back."""


@dataclass
class Sampling:
    """What is known of an instrument that is not measured all the time."""

    since: float
    """When it began, on the clock of :func:`time.monotonic`."""
    hits_before: int
    """How often it had been hit by then: all of them were seen."""
    moments: list[tuple[int, float]] = field(default_factory=list)
    """The hits of each moment, and how long it was."""
    stopped: float = 0.0
    """How long the target has been stopped for it."""
    until: float | None = None
    """When it ended: it is measured all the time again."""

    @property
    def seconds_on(self) -> float:
        """How long it was measured."""
        return sum(seconds for _, seconds in self.moments)

    @property
    def seconds(self) -> float:
        """For how long the target ran meanwhile."""
        end = time.monotonic() if self.until is None else self.until
        return max(end - self.since - self.stopped, 1e-9)

    @property
    def share(self) -> float:
        """The part of the time that it was measured."""
        return min(1.0, self.seconds_on / self.seconds)

    @property
    def rate(self) -> float:
        """Hits per second."""
        return sum(hits for hits, _ in self.moments) / max(self.seconds_on, 1e-9)

    def uncertainty(self) -> float:
        """How far the mean of the moments may be from the truth, as a part of it."""
        count = len(self.moments)
        rate = self.rate
        if count < 2 or rate == 0:
            return 1.0
        rates = [hits / seconds for hits, seconds in self.moments]
        variance = sum((one - rate) ** 2 for one in rates) / (count - 1)
        spread = _student(count - 1) * math.sqrt(variance / count) / rate
        # Each moment begins and ends a little earlier or later than one knows.
        return spread + 2 * _SLOP * count / self.seconds_on


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
        self._cpu = _cpu_seconds(engine.session.pid)
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
            self._decide(now)
        for one in self._watched.values():
            if one.sampling is not None and not one.is_removed and time.monotonic() >= one.due:
                self._moment(one, one.sampling)
        dues = [
            one.due - time.monotonic()
            for one in self._watched.values()
            if one.sampling is not None and not one.is_removed
        ]
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
        cpu = _cpu_seconds(self._engine.session.pid)
        passed = now - self._looked
        # Threads that have ended take their time with them.
        used = cpu - self._cpu if cpu > self._cpu else passed
        spent = 0.0
        for one, count in zip(watched, hits, strict=True):
            if one.sampling is None:
                one.load = (count - one.hits) * one.cost / 1e9 / used
            spent += (count - one.hits) * one.cost / 1e9
            one.hits = count
        pauses = self._engine.session.pauses()
        stopped = sum(pause.seconds for pause in pauses[self._pauses :])
        self._pauses = len(pauses)
        current = spent / used + stopped / passed
        # A moment's costs come in lumps.
        weight = min(1.0, passed / 2)
        self.overhead += (current - self.overhead) * (1.0 if is_first(watched) else weight)
        self._looked, self._cpu = now, cpu

    def _hits(self, watched: Iterable[_Watched]) -> list[int]:
        data = [(one.node.number, HITS) for one in watched]
        return list(_native.Sampler(self._engine.target, data).read())

    def _decide(self, now: float) -> None:
        full = [one for one in self._watched.values() if one.sampling is None]
        shed = [one for one in self._watched.values() if one.sampling is not None]
        load = sum(one.load for one in full)
        allowed = self.share * (1.0 if not shed else 1.0 - _RESERVE / 2)
        while full and load > allowed:
            dearest = max(full, key=lambda one: one.load)
            full.remove(dearest)
            load -= dearest.load
            self._shed(dearest, now)
        for one in shed:
            if load + one.load < _ROOM * self.share:
                load += one.load
                self._restore(one)

    def _shed(self, one: _Watched, now: float) -> None:
        one.sampling = Sampling(now, one.hits)
        one.is_removed = not one.node.can_be_sampled
        self._switch(one.node, False)
        one.sampling.since = time.monotonic()
        one.due = time.monotonic() + self._chance.uniform(0.0, _MOMENT)
        self._tell(one)

    def _restore(self, one: _Watched) -> None:
        assert one.sampling is not None
        self._switch(one.node, True)
        one.sampling.until = time.monotonic()
        one.node.gaps.append(one.sampling)
        one.sampling, one.is_removed = None, False
        self._tell(one)

    def _moment(self, one: _Watched, sampling: Sampling) -> None:
        """Measure for a moment."""
        before = len(self._engine.session.pauses())
        count = self._hits([one])[0]
        self._switch(one.node, True)
        time.sleep(_MOMENT)
        self._switch(one.node, False)
        hits = self._hits([one])[0] - count
        pauses = self._engine.session.pauses()[before:]
        on, off = pauses[0], pauses[-1]
        seconds = max(off.began - (on.began + on.seconds), 1e-6)
        stopped = sum(pause.seconds for pause in pauses)
        sampling.moments.append((hits, seconds))
        sampling.stopped += stopped
        one.load = hits * one.cost / 1e9 / seconds
        spent = stopped + hits * one.cost / 1e9
        others = sum(
            other is not one and other.sampling is not None for other in self._watched.values()
        )
        rest = spent * (1 + others) / (self.share * _RESERVE)
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


def is_first(watched: Iterable[_Watched]) -> bool:
    """Whether nothing was shed yet."""
    return all(one.sampling is None for one in watched)


def _shed(name: str, focus: str, one: _Watched) -> Shed | None:
    sampling = one.sampling
    if sampling is None:
        return None
    since = time.time() - (time.monotonic() - sampling.since)
    if one.is_removed:
        when = time.strftime("%H:%M:%S", time.localtime(since))
        return Shed(name, focus, "removed", since, 0.0, f"incomplete since {when}")
    return Shed(name, focus, "sampled", since, sampling.share, "the value is an estimate")


def estimate(seen: float, gaps: Iterable[Sampling], hits: int) -> tuple[float, Interval]:
    """Return what a total that was seen only partly comes to, and where the truth is.

    ``seen`` is the total that was measured, by ``hits`` hits; the amount of a hit is taken to be
    the same on average whether it was measured or not.
    """
    missed = uncertain = 0.0
    for gap in gaps:
        unseen = gap.rate * max(gap.seconds - gap.seconds_on, 0.0)
        missed += unseen
        uncertain += unseen * min(gap.uncertainty(), 1.0)
    factor = seen / hits if hits else 0.0
    total = seen + missed * factor
    return total, Interval(total - uncertain * factor, total + uncertain * factor, CONFIDENCE)


def _cpu_seconds(pid: int) -> float:
    """How long the threads of a process have run on processors."""
    nanoseconds = 0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            nanoseconds += int(file.read_text().split()[0])
        except (OSError, IndexError, ValueError):
            # The thread has just ended.
            continue
    return nanoseconds / 1e9
