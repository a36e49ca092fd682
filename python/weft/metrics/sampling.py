"""Estimates of what is duty-cycled, measured in short intervals only, to stay within a budget.

Times are those for which the target ran on processors: what else the machine does, and that the
target is stopped for a few milliseconds, then makes no difference.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from weft.model.measured import Interval

__all__ = ["DEAREST", "HITS", "Moment", "RunTime", "Sampling", "estimate"]

HITS = "weft_hits"
"""The counter that tells how often a piece of code is hit."""

CONFIDENCE = 0.99
DEAREST = 0.75
"""How much of the time that a moment takes can be the cost of measuring."""
_SHORTEST = 0.2e-9
"""How long at least a hit takes the program itself: a cycle of a fast processor."""
_UNSEEN = -math.log(1 - CONFIDENCE)
"""How many hits to expect at most where none is seen."""
_SLOP = 40e-6
"""How well one knows when a stopped thread ran again."""
_WHOLE_PROCESS = 2
"""The last bits of the number of a clock: that of a process, as the scheduler counts."""


class RunTime:
    """How long the threads of a process have run on processors, those that have ended included.

    The kernel tells it exactly as of when threads were last stopped or gave up their processors,
    which is when moments begin and end.
    """

    def __init__(self, pid: int) -> None:
        # What clock_getcpuclockid(3) makes of a process.
        self._clock = (~pid << 3) | _WHOLE_PROCESS
        self._last = 0.0

    def seconds(self) -> float:
        """How long until now; as far as is known, when the process has ended."""
        with suppress(OSError):
            self._last = time.clock_gettime(self._clock)
        return self._last


class Moment(NamedTuple):
    """A time in which something was measured that is not measured otherwise."""

    hits: int
    seconds: float
    """How long the target ran in it."""
    lost: float
    """How much of that measuring took, as predicted: of all that was measured in this moment."""


@dataclass
class Sampling:
    """What is known of something that is not measured all the time."""

    run_time: RunTime
    began: float
    """How long the target had run when it began."""
    since: float
    """When that was, in seconds since 1970."""
    rate_before: float
    """Hits per second when it was last measured all the time."""
    moments: list[Moment] = field(default_factory=list)
    ended: float | None = None
    """How long it had run when it ended: it is measured all the time again, or no longer."""

    @property
    def seconds_on(self) -> float:
        """How long it was measured."""
        return sum(moment.seconds for moment in self.moments)

    def rate_if(self, scale: float) -> float:
        """Hits per second when nothing is measured, if that costs a share of what is predicted."""
        hits = sum(moment.hits for moment in self.moments)
        lost = scale * sum(moment.lost for moment in self.moments)
        own = max(self.seconds_on - lost, (1 - DEAREST) * self.seconds_on, 1e-9)
        return hits / own

    def _highest(self) -> float:
        """Hits per second if measuring costs twice what is predicted.

        That may be all of the time that a moment takes, or more: then next to nothing is known.
        """
        hits = sum(moment.hits for moment in self.moments)
        own = self.seconds_on - 2 * sum(moment.lost for moment in self.moments)
        return hits / max(own, hits * _SHORTEST, 1e-9)

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
        return self.rate_if(1.0) if self.moments else self.rate_before

    def rates(self) -> tuple[float, float]:
        """The lowest and the highest rate that what was seen can come from."""
        count = len(self.moments)
        total = sum(moment.hits for moment in self.moments)
        if count < 3:
            # The clock runs on when a hypervisor takes the processor away, perhaps for most of a
            # moment: one or two say nothing of the highest rate.
            return 0.0, 1 / _SHORTEST
        if not total:
            return 0.0, _UNSEEN / self.seconds_on
        # A ratio of two sums: what each moment is off by, if the rate were the same in all.
        mean = total / self.seconds_on
        squares = sum((moment.hits - mean * moment.seconds) ** 2 for moment in self.moments)
        spread = math.sqrt(squares * count / (count - 1)) / total
        # Each moment begins and ends a little earlier or later than one knows.
        off = _student(count - 1) * spread + _SLOP * count / self.seconds_on
        # What a hit costs is a prediction: it may be nothing, the processor hides much, or more.
        return self.rate_if(0.0) * max(1 - off, 0.0), self._highest() * (1 + off)

    def end(self) -> None:
        """Note that it is over."""
        if self.ended is None:
            self.ended = self.run_time.seconds()


def _student(freedom: int) -> float:
    """The factor for a two-sided interval of 99%, by Student's distribution; a little too much."""
    known = {1: 63.7, 2: 9.93, 3: 5.85, 4: 4.61, 5: 4.04, 6: 3.71, 7: 3.5, 8: 3.36, 9: 3.25}
    return known.get(freedom, 2.58 * (1 + 2.1 / freedom))


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
