"""A history of constant size: when it is full, every other sample goes."""

from __future__ import annotations

from array import array

__all__ = ["History"]

LARGEST = 512


class History:
    """Totals at moments. As they are totals, leaving some out loses detail, but no amounts."""

    __slots__ = ("_every", "_since", "times", "totals")

    def __init__(self) -> None:
        self.times = array("d")
        self.totals = array("d")
        self._every = 1
        self._since = 0

    def add(self, time: float, total: float) -> None:
        """Note a total, unless it is too soon for this history's step."""
        self._since += 1
        if self._since < self._every:
            return
        self._since = 0
        self.times.append(time)
        self.totals.append(total)
        if len(self.times) >= LARGEST:
            # The newest stays, so that the next step is as long as the others.
            self.times = self.times[1::2]
            self.totals = self.totals[1::2]
            self._every *= 2

    def __len__(self) -> int:
        return len(self.times)
