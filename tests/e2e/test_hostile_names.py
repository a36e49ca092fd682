"""Names that a target chooses do not control the terminal on which weft prints them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

NAME = "e\x1b[31mX"


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[int]:
    """A process whose file, and so its name, has an escape sequence in it."""
    sleep = shutil.which("sleep")
    assert sleep is not None
    program = tmp_path / NAME
    shutil.copy(sleep, program)
    with subprocess.Popen([program, "600"]) as running:
        yield running.pid
        running.kill()


@pytest.mark.parametrize(
    "words",
    [
        "ps",
        "doctor {pid}",
        "points {pid}",
        "attach {pid} -m calls --for 0.1",
        "attach {pid} -m calls@nothing_there --for 0.1",
        "attach {pid} -m calls@/Code/nobody/here --for 0.1",
        "cov {pid} --for 0.1",
        "profile {pid} --for 0.1",
    ],
)
def test_no_escape_sequence_is_printed(words: str, hostile: int) -> None:
    command = [sys.executable, "-m", "weft", *words.format(pid=hostile).split()]
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    printed = done.stdout + done.stderr
    assert b"\x1b" not in printed
    assert printed
