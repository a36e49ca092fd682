"""Programs that allow themselves fewer system calls, by seccomp, than weft's snippets make."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clone import Outcome, outcome, session_of
from tests.e2e.harness import Background
from weft.errors import SeccompForbids

Build = Callable[[str], Path]

FOCUS = "/Code/confined/work"
CALLS = 10
"""How often each thread calls the function."""


def _run(program: Path, weaver: str, metric: str, mode: str) -> Outcome:
    words = ["run", "--weaver", weaver, "-m", f"{metric}@{FOCUS}", "--", str(program), mode]
    return outcome([sys.executable, "-m", "weft", *words])


@pytest.mark.parametrize(
    ("mode", "calls"), [("later", 2 * CALLS), ("child", CALLS), ("few", CALLS)]
)
def test_a_filter_that_comes_later_does_no_harm(build: Build, mode: str, calls: int) -> None:
    done = _run(build("confined"), "patch", "calls", mode)
    assert (done.status, done.stdout) == (7, "unharmed\n"), done.stderr
    assert re.search(rf"^calls .* {calls} +calls", done.stderr, re.MULTILINE), done.stderr


@pytest.mark.parametrize("mode", ["later", "child", "few"])
def test_a_program_leaves_its_clone_before_a_filter_that_forbids_what_it_needs(
    build: Build, mode: str
) -> None:
    done = _run(build("confined"), "clone", "calls", mode)
    assert (done.status, done.stdout) == (7, "unharmed\n"), done.stderr
    assert "seccomp" in done.stderr and "incomplete" in done.stderr


def test_the_strict_mode_that_comes_later_does_no_harm(build: Build) -> None:
    done = _run(build("confined"), "patch", "calls", "strict")
    assert (done.status, done.stdout) == (7, "unharmed\n"), done.stderr
    assert re.search(rf"^calls .* {CALLS} +calls", done.stderr, re.MULTILINE), done.stderr


def test_what_needs_system_calls_leaves_its_clone_before_a_filter_comes(build: Build) -> None:
    done = _run(build("confined"), "clone", "cpu_time", "mild")
    assert (done.status, done.stdout) == (7, "unharmed\n"), done.stderr
    assert "seccomp" in done.stderr and "incomplete" in done.stderr


@pytest.mark.parametrize("metric", ["calls", "latency"])
def test_what_needs_none_stays_in_its_clone(build: Build, metric: str) -> None:
    done = _run(build("confined"), "clone", metric, "mild")
    assert (done.status, done.stdout) == (7, "unharmed\n"), done.stderr
    assert "incomplete" not in done.stderr


def test_what_a_filter_forbids_is_refused(build: Build) -> None:
    with Background([str(build("confined")), "early"]) as background:
        background.wait_for_line(b"ready")
        with pytest.raises(SeccompForbids, match="gettid"), session_of(background.pid, "clone"):
            pass
        with session_of(background.pid, "patch") as session:
            with pytest.raises(SeccompForbids, match="clock_gettime"):
                session.metric("cpu_time", FOCUS)
            calls = session.metric("calls", FOCUS)
            status, output = background.finish()
            session.metrics.sample()
            assert calls.value == 2 * CALLS
        assert (status, output) == (7, "ready\nunharmed\n")
