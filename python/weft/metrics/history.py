"""A history of constant size: when it is full, every other sample goes."""

from __future__ import annotations

from array import array

from weft.model.completeness import EXACT, Completeness
from weft.model.measured import Sample, Value

__all__ = ["History"]

LARGEST = 512


class History:
    """Totals at moments. As they are totals, leaving some out loses detail, but no amounts.

    The newest is always there. When it is too soon for this history's step, the next one takes its
    place.
    """

    __slots__ = ("_every", "_since", "states", "times", "totals")

    def __init__(self) -> None:
        self.times = array("d")
        self.totals = array("d")
        self.states: list[Completeness] = []
        self._every = 1
        self._since = 0
        """How many were added since the last that stays, the newest included."""

    def add(self, time: float, total: float, state: Completeness = EXACT) -> None:
        """Note a total and how complete it is."""
        if 0 < self._since < self._every:
            self.times.pop()
            self.totals.pop()
            self.states.pop()
        else:
            self._since = 0
        self._since += 1
        self.times.append(time)
        self.totals.append(total)
        self.states.append(state)
        if len(self.times) >= LARGEST and self._since == self._every:
            # The newest stays, so that the next step is as long as the others.
            self.times = self.times[1::2]
            self.totals = self.totals[1::2]
            self.states = self.states[1::2]
            self._every *= 2
            self._since = 0

    def __len__(self) -> int:
        return len(self.times)

    def samples(self, *, is_rate: bool, is_whole: bool) -> list[Sample]:
        """Return them all, each with its difference to the one before; of rates, per second."""
        samples = []
        for index in range(1, len(self.times)):
            change = self.totals[index] - self.totals[index - 1]
            seconds = self.times[index] - self.times[index - 1]
            total: Value = int(self.totals[index]) if is_whole else self.totals[index]
            if is_rate:
                total = change / seconds if seconds > 0 else 0.0
            samples.append(Sample(self.times[index], total, change, seconds, self.states[index]))
        return samples
