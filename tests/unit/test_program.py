from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from weft.metrics import program
from weft.metrics.program import TargetProgram
from weft.model.points import Point, PointSelection
from weft.program.resources import ResourceTree
from weft.session import Session


class Asked:
    """A session that notes what it is asked for: functions that have ten points each."""

    pid = 0

    def __init__(self) -> None:
        self.functions: list[int] = []

    def resources(self) -> ResourceTree:
        return ResourceTree()

    def _points_of(
        self, functions: Mapping[int, tuple[str, str]], selection: PointSelection
    ) -> tuple[list[Point], list[Point]]:
        self.functions += functions
        names = functions.items()
        return [Point("block", at + n, *name) for at, name in names for n in range(10)], []


def test_points_are_kept_until_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_KEPT", 40)
    session = Asked()
    target = TargetProgram(cast(Session, session))

    def ask(*functions: int) -> int:
        return len(target.points({at: (f"f{at}", "m") for at in functions}, "block")[0])

    for function in (100, 200, 300, 100):
        assert ask(function) == 10
    assert session.functions == [100, 200, 300]
    # 200 was asked for the longest time ago.
    assert [ask(function) for function in (400, 100, 300, 200)] == [10] * 4
    assert session.functions == [100, 200, 300, 400, 200]
    # The newest is kept, however many it has, and nothing beside it.
    many = range(1000, 1100)
    assert ask(*many) == ask(*many) == 1000
    assert session.functions[5:] == [*many]
    assert ask(100) == 10
    assert session.functions[-1] == 100
