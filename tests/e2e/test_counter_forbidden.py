"""Programs that may not read the time stamp counter, by which times are measured."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clone import outcome, session_of
from tests.e2e.harness import Background
from weft.errors import UnsupportedTarget

Build = Callable[[str], Path]

FOCUS = "/Code/counter_forbidden/work"
TIMES = ("latency", "inclusive_time")
BEFORE, AFTER = 5, 10
"""How often the function is called before the counter is forbidden, and after it."""


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_times_of_one_that_has_forbidden_it_are_refused(build: Build, weaver: str) -> None:
    with Background([str(build("counter_forbidden")), "waits"]) as background:
        background.wait_for_line(b"ready")
        with session_of(background.pid, weaver) as session:
            for name in TIMES:
                with pytest.raises(UnsupportedTarget, match="time stamp counter"):
                    session.metric(name, FOCUS)
            calls = session.metric("calls", FOCUS)
            status, output = background.finish()
            session.metrics.sample()
            assert calls.value == AFTER
        assert (status, output) == (0, "ready\n2\n")


@pytest.mark.parametrize("name", TIMES)
def test_one_that_forbids_it_while_times_are_measured_leaves_its_clone(
    build: Build, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = [str(build("counter_forbidden"))]
    done = outcome(
        [
            sys.executable,
            "-m",
            "weft",
            "run",
            "--weaver",
            "clone",
            "-m",
            f"{name}@{FOCUS}",
            "--",
            *command,
        ]
    )
    assert (done.status, done.stdout) == (0, "2\n"), done.stderr
    assert "time stamp counter" in done.stderr and "incomplete" in done.stderr


def test_one_that_forbids_it_is_counted_to_its_end(build: Build) -> None:
    command = ["--", str(build("counter_forbidden"))]
    done = outcome(
        [sys.executable, "-m", "weft", "run", "--weaver", "clone", "-m", f"calls@{FOCUS}", *command]
    )
    assert done.status == 0 and "left its clone" not in done.stderr
    assert re.search(rf"^calls .* {BEFORE + AFTER} +calls", done.stderr, re.MULTILINE)
