"""What is freed counts once, also where threads end: glibc frees again what they have freed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import weft
from tests.e2e.harness import eventually, is_blocked
from tests.lockstep import Lockstep, lockstep

Build = Callable[[str], Path]


def batch(target: Lockstep) -> int:
    """Have threads come and go, and return how much more memory there is since then."""
    live = target.counts("batch 10")["live"]
    eventually(lambda: is_blocked(target.pid))
    return live


def test_what_a_thread_has_freed_is_not_freed_again_when_it_ends(build: Build) -> None:
    with lockstep(build("metric_thread_ends"), 1) as target:
        # The first thread has the C library allocate a table, which stays with the stack.
        batch(target)
        with weft.attach(target.pid) as session:
            metric = session.metric("live_bytes")
            expected = 0
            for _ in range(3):
                expected += batch(target)
                assert metric.value == expected
            assert metric.completeness.status == "exact"


def test_where_it_is_not_known_how_threads_end_the_value_says_so(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.metrics.glibc._MESSAGE", "no such message")
    with lockstep(build("metric_thread_ends"), 1) as target:
        batch(target)
        with weft.attach(target.pid) as session:
            metric = session.metric("live_bytes")
            assert metric.completeness.is_exact
            batch(target)
            (missing,) = metric.completeness.missing
            assert missing.what == "ends of threads"
            assert "when a thread ends" in missing.why
