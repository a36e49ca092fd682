"""The course of a metric over time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from weft.metrics.pace import Pace
from weft.model.measured import Sample

if TYPE_CHECKING:
    from weft.metrics.metric import Metric

__all__ = ["Course"]


class Course:
    """The samples of a metric, one after the other, until it is not measured any more."""

    def __init__(self, metric: Metric, interval: float) -> None:
        metric.require()
        self.pace = Pace(interval)
        self._metric = metric
        self._before = time.time(), metric.total_now()
        self._is_over = False

    def next(self) -> Sample | None:
        """Return the next sample; none when the last one was the last."""
        if self._is_over or self._metric.is_removed:
            return None
        # It is looked at first, so that the last sample has all that was measured.
        self._is_over = self._metric.is_over
        sample = self._metric.since(self._before)
        self._before = sample.time, self._before[1] + sample.change
        return sample
