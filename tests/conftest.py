"""What holds for every test: it may not hang, and where all is installed it may not be skipped."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator

import pytest

from tests.matrix.commands import take_usual_signals
from tests.watchdog import watch

PATIENCE = 120.0

MAY_SKIP = os.environ.get("WEFT_TESTS") != "all"
"""Whether a test may be skipped because something that it needs is not there. ``WEFT_TESTS=all``
says that everything is installed: then a skipped test is one that nobody has run."""


_CLONES = "WEFT_CLONES"
_made: list[str] = []


def pytest_configure() -> None:
    """Answer Ctrl-C and a hangup as usual, where a shell's background or nohup ignores them.

    What is kept of clones goes where all tests of a session find it, and is deleted with that.
    """
    take_usual_signals()
    if _CLONES not in os.environ:
        folder = tempfile.mkdtemp(prefix="weft-clones-")
        _made.append(folder)
        os.environ[_CLONES] = folder


def pytest_unconfigure() -> None:
    """Delete what was kept."""
    for folder in _made:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Let the watchdog look after each test; ``@pytest.mark.watchdog(seconds)`` gives it longer."""
    mark = item.get_closest_marker("watchdog")
    seconds: float = mark.args[0] if mark else PATIENCE
    with watch(seconds, lambda text: item.add_report_section("call", "native backtraces", text)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count a test that was skipped as failed, unless it may be."""
    report = yield
    if report.skipped and not MAY_SKIP and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, though nothing may be missing: {report.longrepr}"
    return report
