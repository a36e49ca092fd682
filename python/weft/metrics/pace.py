"""When samples are due: at multiples of an interval, whatever each of them takes."""

from __future__ import annotations

import math
import time

from weft.errors import InvalidArgument

__all__ = ["Pace"]


class Pace:
    """Moments that are a whole number of intervals away from a beginning.

    What comes too late for a moment is not made up for: the next one is in the future, so that a
    sample that takes longer than the interval leaves time for something else.
    """

    def __init__(self, interval: float, began: float | None = None) -> None:
        if not (math.isfinite(interval) and interval >= 0):
            raise InvalidArgument(f"{interval} is no interval", "", "give seconds: 1.0")
        self._interval = interval
        self._began = time.monotonic() if began is None else began
        self._count = 0

    def next(self) -> float:
        """Return when the next sample is due, by the monotonic clock."""
        passed = time.monotonic() - self._began
        missed = int(passed / self._interval) if self._interval else 0
        self._count = max(self._count, missed) + 1
        return self._began + self._count * self._interval

    def rest(self) -> float:
        """Return for how many seconds to wait for the next sample."""
        return max(0.0, self.next() - time.monotonic())
