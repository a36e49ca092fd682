"""What holds for every test: it may not hang."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.watchdog import watch

PATIENCE = 120.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Let the watchdog look after each test; ``@pytest.mark.watchdog(seconds)`` gives it longer."""
    mark = item.get_closest_marker("watchdog")
    seconds: float = mark.args[0] if mark else PATIENCE
    with watch(seconds, lambda text: item.add_report_section("call", "native backtraces", text)):
        return (yield)
