"""Processes that a debugged program makes: whom GDB stays with, and that the others go on.

Each test that names a side is done natively, too: so what is expected is what GDB does.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.harness import eventually, need, status
from tests.gdb.rsp import Remote, connected
from tests.gdb.sides import NATIVE, WEFT, commands, listening, run_gdb

Build = Callable[[str], Path]

SIDES = pytest.mark.parametrize("side", [NATIVE, WEFT])
ALL = "forked\nspawned\n"
FEATURES = "qSupported:multiprocess+;swbreak+;hwbreak+;fork-events+;vfork-events+;vContSupported+"


@pytest.fixture(autouse=True)
def debuggers() -> None:
    need("gdb", "gdbserver")


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """Where children leave their lines."""
    return tmp_path / "left"


@SIDES
@pytest.mark.parametrize("follow", ["parent", "child"])
def test_forks_are_followed(side: str, follow: str, build: Build) -> None:
    steps = commands(
        *(f"set follow-fork-mode {follow}", "tbreak ask_child", "continue", "break work"),
        *("continue", "bt 3"),
    )
    printed = run_gdb(side, steps, [build("debug_brood"), "2"])
    caller = "do_round" if follow == "parent" else "ask_child"
    assert re.search(rf"#1 .* in {caller}", printed)


@SIDES
def test_forks_are_caught(side: str, build: Build, left: Path) -> None:
    steps = commands("catch fork", "continue", "p $rax", "p $orig_rax", "continue")
    printed = run_gdb(side, steps, [build("debug_spawning"), left])
    (caught,) = re.findall(r"Catchpoint 1 \(forked process (\d+)\)", printed)
    assert f"[Detaching after fork from child process {caught}]" in printed
    assert re.findall(r"\$\d = (-?\d+)", printed) == ["-38", "56"], "as the kernel has them there"
    assert len(re.findall(r"\[Detaching after vfork from", printed)) == 2
    assert "exited normally" in printed
    assert left.read_text() == ALL


@SIDES
def test_vforks_are_caught(side: str, build: Build, left: Path) -> None:
    """What is set meanwhile is there when the child has given the memory back."""
    steps = commands(
        *("catch vfork", "continue", "bt 2", "break end_of", "continue", "bt 2"),
        *("continue", "continue", "bt 2", "delete", "continue"),
    )
    printed = run_gdb(side, steps, [build("debug_spawning"), left])
    assert len(re.findall(r"Catchpoint 1 \(vforked process \d+\)", printed)) == 2
    assert re.search(r"#1 .* in by_vfork", printed)
    assert re.search(r"#0 +end_of .*\n#1 .* in by_vfork", printed)
    assert re.search(r"#0 +end_of .*\n#1 .* in by_spawn", printed)
    assert "exited normally" in printed
    assert left.read_text() == ALL


@SIDES
def test_a_child_is_stepped_through(side: str, build: Build, left: Path) -> None:
    """Its parent goes on alone, and ends."""
    steps = commands(
        *("set follow-fork-mode child", "tbreak by_fork", "continue", "next", "p child", "next"),
        *("watch file", "break leave", "continue", "bt 2", "next", "delete", "continue"),
    )
    printed = run_gdb(side, steps, [build("debug_spawning"), left])
    assert re.search(r"\$1 = 0\n", printed), "so it is in the child"
    assert re.search(r"#0 +leave .*\n#1 .* in by_fork", printed)
    assert "exited with code 03" in printed
    eventually(lambda: left.read_text() == ALL)


def test_a_child_that_has_borrowed_its_memory_is_not_followed(build: Build, left: Path) -> None:
    """That is said."""
    steps = commands(
        *("tbreak by_vfork", "continue", "set follow-fork-mode child", "continue", "echo over\\n"),
    )
    printed = run_gdb(WEFT, steps, [build("debug_spawning"), left])
    assert "weft debugs one process at a time" in printed


@SIDES
def test_a_child_of_a_step_goes_on(side: str, build: Build) -> None:
    """It must not believe that it is stepped itself."""
    steps = commands(
        *("catch fork", "continue", "delete", "tbreak *((long)$pc - 2)", "continue", "stepi"),
        *("info symbol $pc", "continue"),
    )
    for is_last in (False, False, True):
        try:
            printed = run_gdb(side, steps, [build("debug_brood"), "10"])
            break
        except AssertionError as error:
            # Known, and not understood yet: once in thirty runs the end of a child is told as
            # that of the program.
            if is_last or "exited with code 04" not in str(error):
                raise
    assert re.search(r"^_Fork \+ \d+ in section .text", printed, re.MULTILINE)
    assert "exited normally" in printed


def next_fork(remote: Remote) -> int:
    """Have the program go on until it forks, and return the child."""
    remote.ask(FEATURES)
    assert remote.ask("QPassSignals:14") == "OK", "GDB does not want to hear of SIGCHLD, either"
    answer = remote.ask("vCont;c")
    found = re.search(r";fork:p([0-9a-f]+)\.", answer)
    assert found, answer
    return int(found[1], 16)


def test_a_child_goes_on_when_the_debugger_hangs_up(build: Build, left: Path) -> None:
    with listening(WEFT, [build("debug_spawning"), left]) as address:
        with connected(address) as remote:
            child = next_fork(remote)
            assert status(child)["State"].startswith("t")
            assert not left.exists()
        eventually(lambda: left.exists() and left.read_text() == "forked\n")


def test_a_child_goes_on_when_nobody_says_what_to_do_with_it(build: Build, left: Path) -> None:
    with listening(WEFT, [build("debug_spawning"), left]) as address, connected(address) as remote:
        next_fork(remote)
        while not (answer := remote.ask("vCont;c")).startswith("W"):
            assert "vfork" in answer
        assert answer.startswith("W00")
    assert left.read_text() == ALL


def test_a_child_goes_on_when_weft_is_killed(build: Build, left: Path) -> None:
    with listening(WEFT, [build("debug_spawning"), left]) as address, connected(address) as remote:
        child = next_fork(remote)
        os.kill(int(status(child)["TracerPid"]), signal.SIGKILL)
        with suppress(EOFError, OSError):
            remote.receive()
        eventually(lambda: left.exists() and left.read_text() == "forked\n")
