"""A quick part of the matrix: see ``tests/matrix``."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.harness import need
from tests.matrix.cells import Verdict, When, at_moment, under_limit
from tests.matrix.commands import COMMANDS
from tests.matrix.situations import MOMENTS, SITUATIONS

BY_NAME = {command.name: command for command in COMMANDS}
SIGNALS = {moment.name: moment for moment in MOMENTS}
QUICK = {situation.name: situation for situation in SITUATIONS if situation.is_quick}

pytestmark = pytest.mark.watchdog(300)


def well(verdict: Verdict) -> None:
    assert not verdict.is_bad, f"{verdict.kind}: {verdict.detail}"


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("command", ["attach", "attach -m", "clone"])
def test_a_limited_target_is_unharmed(
    build: Callable[[str], Path], command: str, name: str
) -> None:
    if QUICK[name].wrapper:
        need(QUICK[name].wrapper[0])
    well(under_limit(build("limited"), BY_NAME[command], QUICK[name]))


@pytest.mark.parametrize("name", ["plain", "pid namespace"])
def test_a_debugged_target_is_unharmed(build: Callable[[str], Path], name: str) -> None:
    """A process has another number for itself than for who looks at it from outside."""
    need("gdb", "unshare")
    verdict = under_limit(build("limited"), BY_NAME["debug"], QUICK[name])
    assert verdict.kind == "right", verdict


@pytest.mark.parametrize("moment", ["SIGINT", "SIGTERM", "SIGHUP twice"])
@pytest.mark.parametrize("command", ["cov", "clone", "debug"])
def test_a_signal_while_a_target_is_taken_gives_it_back(
    build: Callable[[str], Path], command: str, moment: str
) -> None:
    need("gdb")
    when = When(0.01, is_taken=True)
    well(at_moment(build("limited"), BY_NAME[command], SIGNALS[moment], when))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_anything_is_held_has_the_exit_code_of_a_shell(
    number: signal.Signals,
) -> None:
    code = (
        "import os, weft.base.interrupts as i\n"
        "with i.orderly():\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    import click\n"
        "    print('never')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "")


def test_a_signal_in_a_finalizer_is_not_lost() -> None:
    """Every import ends with a callback in which Python cannot raise an exception."""
    code = (
        "import os, signal, weft.base.interrupts as i\n"
        "class Finalized:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGHUP)\n"
        "with i.orderly():\n"
        "    Finalized()\n"
        "    with i.interruptible():\n"
        "        print('never')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGHUP, "", "")


def test_a_signal_that_another_thread_gets_ends_the_wait() -> None:
    code = (
        "import os, signal, threading, time\n"
        "import weft.base.interrupts as i, weft.cli.measure as measure\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        "with i.orderly(), measure.waiting_for(os.getppid()) as wait, i.interruptible():\n"
        "    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    wait(None)\n"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, timeout=60, check=False).returncode == 128 + signal.SIGINT
