"""Several processes of one program: code is looked at once, and each has its own counts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import get_args

import pytest

import weft
from tests.lockstep import lockstep
from weft.model.points import PointSelection

Build = Callable[[str], Path]

KINDS = [kind for kind in get_args(PointSelection) if kind not in ("syscall", "sysreturn")]
METRICS = ["calls", "inclusive_time", "latency"]


def places(session: weft.Session, pattern: str, kind: PointSelection) -> list[object]:
    """The points of functions, relative to where their modules are."""
    biases = {module.name: module.bias for module in session.resources().modules}
    found: list[object] = []
    for list_ in (session.points(pattern, kind), session.uncertain(pattern, kind)):
        for point in list_:
            bias = biases[point.module]
            target = point.target - bias if point.kind == "edge" else point.target
            found.append((point.function, point.kind, point.address - bias, target))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_points_are_the_same_wherever_code_is(kind: PointSelection, build: Build) -> None:
    with ExitStack() as stack:
        programs = [stack.enter_context(lockstep(build("counts"), 1)) for _ in range(2)]
        sessions = [stack.enter_context(weft.attach(program.pid)) for program in programs]
        for pattern in ("/Code/counts/*", "/Code/libc.so.6/w*"):
            first, second = (places(session, pattern, kind) for session in sessions)
            assert first == second
        assert first


def test_each_process_has_its_own_counts(build: Build) -> None:
    with ExitStack() as stack:
        programs = [stack.enter_context(lockstep(build("counts"), 1)) for _ in range(5)]
        measured = []
        for program in programs:
            session = stack.enter_context(weft.attach(program.pid))
            measured.append([session.metric(name, focus="/Code/counts/normal") for name in METRICS])
        for number, (program, metrics) in enumerate(zip(programs, measured, strict=True)):
            truth = program.batch(10 + number)["normal"]
            calls, _, latency = metrics
            assert calls.value == truth
            assert latency.value.count == truth  # type: ignore[union-attr]
