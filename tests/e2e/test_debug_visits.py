"""A debugger on a program that another weft measures in its clone."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import weft
from tests.e2e.harness import (
    Background,
    answers,
    eventually,
    free_port,
    need,
    redis_clients,
    server,
    status,
)
from tests.e2e.test_debug_command import words
from tests.gdb.rsp import Remote
from tests.toolchain import compile_program
from weft import clone
from weft.control import visits as _visits

WEFT = [sys.executable, "-m", "weft"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("gdb")
    output = tmp_path_factory.mktemp("visited") / "debugged"
    return compile_program("debugged.c", output, "-g", "-pthread")


def debugger(pid: int, *steps: str, options: Sequence[str] = ()) -> list[str]:
    """The command that has GDB do some steps in a process."""
    return [*WEFT, "debug", *options, "--gdb-args", shlex.join(words(*steps)), str(pid)]


def visit(pid: int, *steps: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Have GDB do some steps in a process."""
    return subprocess.run(
        debugger(pid, *steps, options=options),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@contextmanager
def measured(pid: int, output: Path, *metrics: str) -> Iterator[subprocess.Popen[bytes]]:
    """Have another weft measure a process in a clone, until it is enough."""
    options = [word for metric in metrics for word in ("-m", metric)]
    options += ["--weaver", "clone", "-o", str(output), "--format", "json"]
    with subprocess.Popen([*WEFT, "attach", str(pid), *options]) as other:
        try:
            eventually(lambda: "weft-values" in Path(f"/proc/{pid}/maps").read_text())
            yield other
        finally:
            other.send_signal(signal.SIGINT)
            assert other.wait(60) in (0, -signal.SIGKILL)


def test_a_measured_server_is_looked_at_and_left(tmp_path: Path) -> None:
    """Its clients see no error, and its commands are counted as it counts them itself."""
    need("gdb", "redis-server", "redis-benchmark", "redis-cli")
    port = free_port()
    options = ["--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(tmp_path)]
    options += ["--logfile", str(tmp_path / "log")]
    with server(["redis-server", *options], lambda: answers(port)) as pid:
        with weft.attach(pid, weaver="clone") as program:
            counted = program.session.metric("calls", "/Code/redis-server/setCommand")
            with redis_clients(port, "set"):
                first = visit(
                    pid,
                    *("info threads", "break setCommand", "continue", "bt 4", "stepi", "finish"),
                    *("monitor weft probes", "delete", "detach"),
                )
                second = visit(pid, "info threads", "break setCommand")
            info = ["redis-cli", "-p", str(port), "info", "commandstats"]
            stats = subprocess.run(info, capture_output=True, text=True, check=True).stdout
            value = counted.value
        maps = Path(f"/proc/{pid}/maps").read_text()
    for done in (first, second):
        assert done.returncode == 0, done.stderr
        assert re.search(r"^\* 1 .*redis-server", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"#0 .*setCommand.*\n#1 .* call ", first.stdout), first.stdout
    [own] = re.findall(r"cmdstat_set:calls=(\d+)", stats)
    assert value == int(own)
    assert "weft" not in maps


def test_a_program_that_is_visited_ends_as_it_would(program: Path) -> None:
    """Whoever has started it hears of its end, and nobody else."""
    command = [*WEFT, "run", "--weaver", "clone", "-m", "calls@/Code/debugged/add"]
    with Background([*command, "--", program, "wait"], stderr=subprocess.PIPE) as running:
        [pid] = map(int, children(running.pid))
        done = visit(
            pid,
            "print add(2, 2)",
            "monitor weft metric calls@/Code/debugged/work",
            "monitor weft probes",
        )
        assert done.returncode == 0, done.stderr
        assert "$1 = 4" in done.stdout
        assert re.search(r"calls +/Code/debugged/work +0", done.stderr), done.stderr
        code, said = running.finish()
    assert code == 3, said


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def await_breakpoint(session: subprocess.Popen[str], pid: int) -> None:
    """Wait until a debugger has set a breakpoint in a process that sleeps, and lets it go on."""
    assert session.stdout is not None
    for line in session.stdout:
        if line.startswith("Breakpoint 1 at"):
            break
    eventually(lambda: status(pid)["TracerPid"] != "0" and status(pid)["State"][0] == "S")


def test_a_program_ends_under_the_debugger(program: Path) -> None:
    command = [*WEFT, "run", "--weaver", "clone"]
    with Background([*command, "--", program, "wait"]) as running:
        [pid] = map(int, children(running.pid))
        command = debugger(pid, "break work", "continue", "continue")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as session:
            await_breakpoint(session, pid)
            code, said = running.finish()
            shown, _ = session.communicate(timeout=60)
    assert "Breakpoint 1, work" in shown
    assert "exited with code 03" in shown
    assert code == 3, said


def test_two_hear_how_a_program_ends() -> None:
    """Who has started it, and its debugger, whoever of them is first."""
    for _ in range(40):
        given, giving = os.pipe()
        command = ["sh", "-c", "read line; exit 3"]
        with clone.launch(command, streams=(given, None, None)) as program:
            os.close(given)
            ours, theirs = socket.socketpair()
            with ours, theirs, program.debugged() as stopped:
                served = threading.Thread(target=stopped.serve, args=(theirs,))
                served.start()
                remote = Remote(ours)
                remote.send("vCont;c")
                os.close(giving)
                code = program.wait(60)
                heard = remote.receive()
                ours.shutdown(socket.SHUT_RDWR)
                served.join()
        assert (code, heard) == (3, f"W03;process:{program.pid:x}")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_other_weft_goes_first(how: signal.Signals, program: Path, tmp_path: Path) -> None:
    """The debugger is sent away, and the program goes on, past what was a breakpoint."""
    with Background([program, "wait"]) as waiting:
        with measured(waiting.pid, tmp_path / "out", "calls@/Code/debugged/add") as other:
            command = debugger(waiting.pid, "break add", "continue", "print a")
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as session:
                await_breakpoint(session, waiting.pid)
                other.send_signal(how)
                other.wait(60)
                assert session.wait(60) == 1
        if how == signal.SIGINT:
            assert "weft" not in Path(f"/proc/{waiting.pid}/maps").read_text()
        assert waiting.finish()[0] == 3


def test_a_debugger_is_killed(program: Path) -> None:
    """The program goes on past what was a breakpoint."""
    with Background([program, "wait"]) as waiting:
        command = debugger(waiting.pid, "break add", "continue")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as session:
            await_breakpoint(session, waiting.pid)
            session.kill()
        assert waiting.finish()[0] == 3


def test_who_cannot_be_visited_is_said(program: Path, tmp_path: Path) -> None:
    with Background([program, "wait"]) as waiting:
        options = ["-m", "calls@/Code/debugged/add", "-o", str(tmp_path / "out")]
        with subprocess.Popen([*WEFT, "attach", str(waiting.pid), *options]) as other:
            maps = Path(f"/proc/{waiting.pid}/maps")
            eventually(lambda: "weft-values" in maps.read_text())
            done = visit(waiting.pid, "info threads")
            assert done.returncode != 0
            assert "another weft is in process" in done.stderr
            other.send_signal(signal.SIGINT)
            assert other.wait(60) == 0
        with measured(waiting.pid, tmp_path / "out", "calls@/Code/debugged/add"):
            done = visit(waiting.pid, "info threads", options=["-m", "calls"])
            assert done.returncode == 2
            assert "monitor weft metric" in done.stderr
        assert waiting.finish()[0] == 3


SQUATTER = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
taken = []
for end in ("", "-", "-00"):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\\0weft-debug-{sys.argv[1]}{end}")
    listener.listen(1)
    taken.append(listener)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_name_that_somebody_else_takes_is_not_trusted() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    pid = os.getpid()
    with Background([sys.executable, "-c", SQUATTER, str(pid)]):
        assert _visits.knock(pid) is None
        # Nor does it keep the right one from being found.
        visits = _visits.Visits(pid, lambda: pytest.fail("nobody comes to debug"))
        try:
            peer = _visits.knock(pid)
            assert peer is not None
            with peer:
                size = struct.calcsize("3i")
                credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
                assert struct.unpack("3i", credentials)[0] == pid
        finally:
            visits.close()
