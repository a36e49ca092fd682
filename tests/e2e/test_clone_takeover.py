"""Running processes that are taken over by the clone engine, and let go."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import weft
from tests.e2e.harness import Background, need
from tests.soak import probes, takeover
from tests.soak.metrics import mappings
from weft import errors

Build = Callable[[str], Path]

COMMAND = [sys.executable, "-m", "weft", "attach", "--weaver", "clone"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A program that sleeps, and has not ended in the end."""
    with subprocess.Popen(["sleep", "60"]) as program:
        try:
            yield program
            assert program.poll() is None
        finally:
            program.kill()


@pytest.mark.watchdog(120)
def test_a_program_that_does_a_bit_of_everything_notices_nothing(build: Build) -> None:
    command: list[str | Path] = [build("clone_longlived"), "a_bit_of_everything"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout and program.stdout.readline() == "here\n"
        try:
            for _ in range(15):
                with weft.attach(program.pid, weaver="clone") as cloned:
                    time.sleep(0.1)
                    assert mappings(program.pid)
                assert cloned.stats().blocks > 0
                assert not cloned.reports()
                assert not mappings(program.pid)
                assert program.poll() is None
            rest, _ = program.communicate(timeout=30)
        finally:
            program.kill()
    assert (program.returncode, rest) == (0, "a_bit_of_everything: well\n")


@pytest.mark.watchdog(120)
def test_a_busy_program_is_as_it_was(build: Build) -> None:
    assert takeover.soak(build("invariants"), 5, random.Random(1)) > 5


@pytest.mark.alone
@pytest.mark.watchdog(120)
def test_a_busy_program_is_let_go_where_it_hardly_has_its_turn(build: Build) -> None:
    others = 2 * len(os.sched_getaffinity(0))
    with ExitStack() as machine:
        for _ in range(others):
            other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            machine.callback(other.wait)
            machine.callback(other.kill)
        assert takeover.soak(build("invariants"), 5, random.Random(1)) > 5


@pytest.mark.watchdog(120)
def test_restartable_sequences_start_again(build: Build) -> None:
    with Background([build("rseq")]) as background:
        for _ in range(20):
            with weft.attach(background.pid, weaver="clone"):
                time.sleep(0.05)
        assert background.finish() == (7, "ready\nall additions are there\n")


@pytest.mark.alone
@pytest.mark.watchdog(300)
def test_clients_of_a_server_notice_nothing(public_folder: Path) -> None:
    need(*probes.NEEDED["redis"])
    folder = public_folder / "takeover"
    folder.mkdir(mode=0o755)
    rates = probes.soak("redis", folder, 3, takeover.takeovers(random.Random(1)))
    assert rates.acts["takeover"] > 0


def test_the_command_takes_over_and_releases(sleeper: subprocess.Popen[bytes]) -> None:
    command = [*COMMAND, str(sleeper.pid), "--for", "0.3", "--stats", "--format", "json"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "nothing of weft is left" in said.stderr
    document = json.loads(said.stderr[said.stderr.index("{") : said.stderr.rindex("}") + 1])
    assert document["blocks"] > 0
    assert not mappings(sleeper.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_releases_when_it_is_ended(
    sleeper: subprocess.Popen[bytes], number: int
) -> None:
    command = [*COMMAND, str(sleeper.pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as attached:
        assert attached.stderr and "runs from a clone" in attached.stderr.readline()
        assert mappings(sleeper.pid)
        attached.send_signal(number)
        assert "nothing of weft is left" in attached.stderr.read()
    assert attached.returncode == 0
    assert not mappings(sleeper.pid)


def test_of_two_wefts_the_second_is_refused(sleeper: subprocess.Popen[bytes]) -> None:
    with weft.attach(sleeper.pid, weaver="clone"):
        with pytest.raises(errors.AlreadyTraced, match="clone"):
            weft.attach(sleeper.pid)
        with pytest.raises(errors.AlreadyTraced):
            weft.attach(sleeper.pid, weaver="clone")
    with weft.attach(sleeper.pid), pytest.raises(errors.AlreadyTraced):
        weft.attach(sleeper.pid, weaver="clone")


def test_only_who_starts_a_program_learns_how_it_ends(sleeper: subprocess.Popen[bytes]) -> None:
    with (
        weft.attach(sleeper.pid, weaver="clone") as cloned,
        pytest.raises(errors.InvalidArgument, match="not started"),
    ):
        cloned.wait()
