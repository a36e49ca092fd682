"""Metrics by lock: the lock is kept from where it is known to where it is needed."""

from __future__ import annotations

import pytest

from weft.errors import InvalidArgument
from weft.mdl import ast
from weft.mdl.loader import load
from weft.mdl.passes.scope import inserts
from weft.metrics.catalogue import library_files
from weft.metrics.locking import LOCK, by_lock

METRICS = load(*library_files()).metrics
OTHERS = sorted(METRICS.keys() - {"lock_wait", "lock_contention"})


@pytest.mark.parametrize("name", ["lock_wait", "lock_contention"])
def test_a_lock_is_kept_by_the_frame_of_its_call(name: str) -> None:
    metric, changed = METRICS[name], by_lock(METRICS[name])
    assert changed != metric
    assert set(changed.locals) > {*metric.locals, LOCK.name}
    entry, back = inserts(changed.base.body)
    before = [insert.code.body for insert in inserts(metric.base.body)]
    # What was there comes last.
    assert entry.code.body[-len(before[0]) :] == before[0]
    assert back.code.body[-len(before[1]) :] == before[1]
    assert (entry.constrained, back.constrained) == (True, False)
    first = back.code.body[0]
    assert isinstance(first, ast.Assign) and first.name == LOCK.name


@pytest.mark.parametrize("name", OTHERS)
def test_other_metrics_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} cannot be divided by lock"):
        by_lock(METRICS[name])
