"""Histories of constant size, and when samples are due."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from weft.errors import InvalidArgument
from weft.metrics.history import LARGEST, History
from weft.metrics.pace import Pace


def test_the_newest_is_always_there() -> None:
    history = History()
    for number in range(5 * LARGEST):
        history.add(float(number), 10.0 * number)
        assert (history.times[-1], history.totals[-1]) == (number, 10.0 * number)
        assert len(history) == len(history.totals) == len(history.states) <= LARGEST
        assert all(before < after for before, after in pairwise(history.times))


def test_what_stays_is_evenly_apart() -> None:
    history = History()
    for number in range(3 * LARGEST):
        history.add(float(number), 0.0)
    # All but the newest, for which it may be too soon.
    steps = {after - before for before, after in pairwise(history.times[:-1])}
    assert len(steps) == 1


@pytest.mark.parametrize("interval", [0.001, 0.01, 0.1, 1.0, 3600.0])
def test_what_is_due_is_in_the_future(interval: float) -> None:
    began = time.monotonic() - 12345.678
    pace = Pace(interval, began)
    for _ in range(50):
        before = time.monotonic()
        due = pace.next()
        assert due > before
        number = (due - began) / interval
        assert number == pytest.approx(round(number), abs=1e-3)


def test_a_pace_is_kept() -> None:
    pace = Pace(10.0)
    assert [round(pace.rest() / 10) for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("interval", [-1.0, float("nan"), float("inf")])
def test_what_is_no_interval(interval: float) -> None:
    with pytest.raises(InvalidArgument):
        Pace(interval)
