from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.watchdog import descendants, watch


def test_a_quick_body_is_left_alone() -> None:
    with watch(60, pytest.fail):
        pass


def test_a_hung_body_fails_with_the_backtraces_of_what_it_waits_for() -> None:
    reports: list[str] = []
    with (
        pytest.raises(TimeoutError, match="hung"),
        subprocess.Popen(["sleep", "600"]) as sleeper,
        watch(0.2, reports.append),
    ):
        sleeper.wait()
        time.sleep(60)  # the signal arrives here if the wait ended first
    assert f"process {sleeper.pid}: sleep 600" in reports[0]
    assert "nanosleep" in reports[0]
    assert not Path(f"/proc/{sleeper.pid}").exists()


def test_descendants_are_found_in_any_depth() -> None:
    script = "import subprocess; subprocess.run(['sh', '-c', 'echo ready; read x; true'])"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin and parent.stdout
        assert parent.stdout.readline() == "ready\n"
        below = descendants(parent.pid)
        parent.stdin.write("\n")
    assert len(below) == 1
