"""Estimates of what was measured for short times only."""

from __future__ import annotations

import os

import pytest

from weft.metrics.sampling import Moment, RunTime, Sampling, estimate


@pytest.mark.parametrize("cost", [1e-9, 10e-9, 100e-9, 400e-9, 2e-6])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 10])
@pytest.mark.parametrize("off", [0.5, 1.0, 2.0])
def test_the_truth_is_in_the_interval(cost: float, count: int, off: float) -> None:
    """However much of a moment measuring takes, if it is predicted to a factor of two."""
    own, moment, whole = 30e-9, 2e-3, 1.0
    hits = round(moment / (own + cost))
    lost = min(hits * cost / off, 0.75 * moment)
    sampling = Sampling(RunTime(os.getpid()), 0.0, 0.0, hits / moment, 1e9, ended=whole)
    sampling.moments += [Moment(hits, moment, lost)] * count
    seen = hits * count
    _, interval = estimate(seen, [sampling], seen or 1)
    truth = seen + (whole - count * moment) / own
    if seen:
        assert interval.low <= truth <= interval.high
