"""The clone engine as a user meets it: options, figures, and what it says when it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

import weft
from tests.clone import outcome, outcome_of_clone
from weft.errors import LaunchFailed

Build = Callable[[str], Path]


def weft_run(*options: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weft", "run", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd)


def test_figures_are_written_where_they_are_wanted(tmp_path: Path) -> None:
    file = tmp_path / "stats.json"
    clone = ("--weaver", "clone", "--no-kept")
    done = weft_run(*clone, "--stats", "--stats-file", file, "--", "echo", "hello")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    figures = json.loads(file.read_text())
    assert figures["schema"] == 1
    assert figures["blocks"] > 100 and figures["bytes"] > figures["blocks"]
    assert figures["lookups"] >= figures["misses"] == figures["blocks"]
    assert f"{figures['blocks']:,}" in done.stderr


def test_a_small_clone_is_thrown_away_now_and_then() -> None:
    command = [sys.executable, "-c", "import json; json.dumps([1])"]
    with weft.run(command, weaver="clone", cache_size=1 << 20, keeps=False) as program:
        assert program.wait(60) == 0
        assert program.stats().flushes > 0


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_output_that_nobody_wants(weaver: Literal["patch", "clone"]) -> None:
    with weft.run(["echo", "unwanted"], weaver=weaver, stdout=subprocess.DEVNULL) as program:
        assert program.wait(60) == 0


def test_other_programs_are_followed_unless_one_does_not_want_it() -> None:
    command = ["sh", "-c", "true; ls / > /dev/null; exit 5"]
    blocks = []
    for follows in (True, False):
        with weft.run(command, weaver="clone", follows=follows) as program:
            assert program.wait(60) == 5
            blocks.append(program.stats().blocks)
    assert blocks[0] > 1.3 * blocks[1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--stats"], "add --weaver clone"),
        (["--weaver", "clone", "--cache-size", "much"], "write 1048576, 1024K or 1M"),
        (["--weaver", "clone", "--cache-size", "1K"], "at least 256K"),
    ],
)
def test_what_makes_no_sense_is_refused(options: list[str], says: str) -> None:
    done = weft_run(*options, "--", "true")
    assert done.returncode == 2 and says in done.stderr


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(LaunchFailed):
        weft.run(["/no/such/program"], weaver="clone")


@pytest.mark.parametrize("call", ["direct", "register", "memory"])
def test_a_call_is_made_in_one_place(call: str, build: Build) -> None:
    """Blocks go on at the call that another has, and not any more when that one is gone."""
    command: list[str | Path] = [build("clone_shared_calls"), call]
    wanted = outcome(command)
    assert wanted.status == 0
    assert outcome_of_clone(command) == wanted


def test_system_calls_with_code_in_spare_registers_are_no_writes(build: Build) -> None:
    command: list[str | Path] = [build("clone_smc_memory"), "code_in_spare_registers"]
    with weft.run(command, weaver="clone", stdout=subprocess.DEVNULL) as program:
        assert program.wait(60) == 0
        # Each of a million calls would be one if the page were taken for one that changes.
        assert program.stats().agent_entries < 100_000


@pytest.mark.parametrize("weaver", ["patch", "clone"])
@pytest.mark.parametrize("link", ["pie", "static"])
def test_a_heap_has_room_wherever_it_begins(
    build: Build, link: str, weaver: Literal["patch", "clone"]
) -> None:
    for _ in range(12):
        with weft.run([str(build(f"clone_heap_{link}"))], weaver=weaver) as program:
            assert program.wait(60) == 0
