"""Estimates of what was measured for short times only."""

from __future__ import annotations

import os

import pytest

from weft.metrics.sampling import Moment, RunTime, Sampling, estimate
from weft.program import sampler, tasks


@pytest.mark.parametrize("cost", [1e-9, 10e-9, 100e-9, 400e-9, 2e-6])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 10])
@pytest.mark.parametrize("off", [0.5, 1.0, 2.0])
def test_the_truth_is_in_the_interval(cost: float, count: int, off: float) -> None:
    """However much of a moment measuring takes, if it is predicted to a factor of two."""
    own, moment, whole = 30e-9, 2e-3, 1.0
    hits = round(moment / (own + cost))
    lost = min(hits * cost / off, 0.75 * moment)
    sampling = Sampling(RunTime(os.getpid()), 0.0, 0.0, hits / moment, ended=whole)
    sampling.moments += [Moment(hits, moment, lost)] * count
    seen = hits * count
    _, interval = estimate(seen, [sampling], seen or 1)
    truth = seen + (whole - count * moment) / own
    if seen:
        assert interval.low <= truth <= interval.high


@pytest.mark.parametrize("count", [1, 2])
def test_moments_that_a_hypervisor_took_do_not_bound_the_rate(count: int) -> None:
    """What ran on paper for 100 ms and really for 3 says nothing of what happens otherwise."""
    sampling = Sampling(RunTime(os.getpid()), 0.0, 0.0, 0.0, ended=5.0)
    sampling.moments += [Moment(1_000_000, 0.1, 0.001)] * count
    seen = 1_000_000 * count
    _, interval = estimate(seen, [sampling], seen)
    assert interval.low == seen
    assert interval.high > 3_000_000_000


def test_what_was_not_seen_in_many_moments_may_have_happened() -> None:
    sampling = Sampling(RunTime(os.getpid()), 0.0, 0.0, 0.0, ended=10.0)
    sampling.moments += [Moment(0, 0.1, 0.0)] * 10
    low, high = sampling.rates()
    assert low == 0
    assert 1 < high < 10


def test_own_work_counts_where_no_processor_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all are taken, each program that runs gives the same part of its time for it."""
    idle = 0.0
    monkeypatch.setattr(tasks, "idle_time", lambda: idle)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    crowding = sampler._Crowding()
    began = crowding._seen[0]
    assert crowding.share == 0.25
    idle = 1.5
    crowding.see(began + 1.0)
    assert crowding.share == 0.0
    # What the kernel counts in ticks is not asked about moments.
    crowding.see(began + 1.1)
    assert crowding.share == 0.0
    idle = 2.0
    crowding.see(began + 2.0)
    assert crowding.share == pytest.approx(0.125)
    crowding.see(began + 3.0)
    assert crowding.share == 0.25


def test_processors_that_weft_may_use_were_idle_for_some_time() -> None:
    assert tasks.idle_time() > 0
