"""A session that is over: an error or the end of a stream, never a value."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import weft
from tests.e2e.harness import Background
from weft.errors import InvalidArgument, TargetGone

Build = Callable[[str], Path]
PLAIN = "/Code/incomplete/plain"
COUNT = "counter calls; calls += 1"


@pytest.fixture
def program(build: Build) -> Iterator[Background]:
    with Background([build("incomplete")]) as running:
        yield running


def uses(session: weft.Session) -> dict[str, Callable[[], object]]:
    """All that one may ask of a target."""
    return {
        "metric": lambda: session.metric("calls", PLAIN),
        "a metric of the kernel": lambda: session.metric("page_faults"),
        "insert": lambda: session.insert(PLAIN, COUNT),
        "points": lambda: session.points(PLAIN),
        "refresh": session.refresh,
        "sample": session.metrics.sample,
        "threads": session.threads,
        "modules": session.modules,
        "maps": session.maps,
        "ping": session.ping,
        "registers": session.registers,
        "read": lambda: session.read(0x1000, 1),
        "syscall": lambda: session.syscall(39),
        "program": session.program,
    }


def check_over(session: weft.Session) -> None:
    for name, use in uses(session).items():
        with pytest.raises(TargetGone):
            pytest.fail(f"{name} gave {use()!r}")


def test_a_session_that_was_left(program: Background) -> None:
    session = weft.attach(program.pid)
    metric, probe = session.metric("calls", PLAIN), session.insert(PLAIN, COUNT)
    stream = metric.stream(interval=0.0)
    next(stream)
    session.detach()
    check_over(session)
    assert list(stream) == []
    with pytest.raises(TargetGone):
        next(metric.stream(interval=0.0))
    # What was measured until then can be read.
    assert (metric.value, probe.value()) == (0, 0)
    session.detach()


def test_a_target_that_was_killed(program: Background) -> None:
    with weft.attach(program.pid) as session:
        metric, probe = session.metric("calls", PLAIN), session.insert(PLAIN, COUNT)
        kernel = session.metric("page_faults")
        streams = [metric.stream(interval=0.0), kernel.stream(interval=0.0)]
        for stream in streams:
            next(stream)
        assert program.process.stdin
        program.process.stdin.write(b"go\n")
        program.process.stdin.flush()
        program.wait_for_line(b"done")
        program.process.kill()
        # The kernel lets go of it before anybody has asked how it ended.
        while not session.has_ended:
            pass
        last = [list(stream) for stream in streams]
        # Its last values, and then the end.
        assert [sample.value for sample in last[0]] == [1]
        assert len(last[1]) <= 1
        check_over(session)
        program.process.wait()
        check_over(session)
        with pytest.raises(TargetGone):
            next(metric.stream(interval=0.0))

        async def samples() -> list[weft.Completeness]:
            return [sample.completeness async for sample in metric.samples(interval=0.0)]

        with pytest.raises(TargetGone):
            asyncio.run(samples())
        assert (metric.value, probe.value()) == (1, 1)
    assert (metric.value, probe.value()) == (1, 1)


def test_a_metric_that_was_removed(program: Background) -> None:
    with weft.attach(program.pid) as session:
        metric = session.metric("calls", PLAIN)
        metric.remove()
        assert metric.value == 0
        with pytest.raises(InvalidArgument, match="was removed"):
            next(metric.stream(interval=0.0))
