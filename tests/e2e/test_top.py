"""`weft top` on real programs, driven as a person would drive it."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Awaitable, Callable
from fcntl import ioctl
from pathlib import Path

import pytest
from textual.pilot import Pilot

import weft
from tests.e2e.harness import Footprint
from tests.lockstep import lockstep
from tests.toolchain import compile_program
from weft.model.values import Histogram
from weft.ui.source import Request, SessionSource
from weft.ui.top import Top

Build = Callable[[str], Path]
Steps = Callable[[Top, "Pilot[None]"], Awaitable[None]]

MODULE = "/Code/counts"
CALLS = Request("calls", f"{MODULE}/*")
PATIENCE = 60.0


def watch(pid: int, steps: Steps, budget: float | None = None) -> Top:
    """Watch a process until the steps are done, and leave it by the key."""

    async def run() -> Top:
        app = Top(SessionSource(weft.attach(pid), budget=budget), interval=0.2)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(app, lambda: bool(values(app)))
            await steps(app, pilot)
            await pilot.press("q")
            await until(app, lambda: not app.is_running)
        assert app.fault is None
        return app

    return asyncio.run(run())


async def until(app: Top, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, str(app._status.content)
        await asyncio.sleep(0.05)


def values(app: Top) -> dict[Request, object]:
    return dict(app.board.reading.values) if app.board.reading else {}


def numbers(app: Top, request: Request) -> dict[str, float]:
    found = values(app).get(request, {})
    assert isinstance(found, dict)
    return {path.rpartition("/")[2]: number for path, number in found.items()}


def shown(app: Top) -> dict[str, list[str]]:
    """The rows of the table: the cells of each, by its first."""
    # Rows are written when they come to the screen.
    rows = [[str(cell) for cell in row] for row in app._cells]
    return {row[0]: row[1:] for row in rows}


def notes(app: Top) -> str:
    return "\n".join(str(note) for note in app._shown_notes)


def has_weft(pid: int) -> bool:
    return "/memfd:weft" in Path(f"/proc/{pid}/maps").read_text()


def test_counts_are_true_and_grow_and_nothing_is_left(build: Build) -> None:
    with lockstep(build("counts"), 2) as program:
        # Threads begin with all signals blocked: these have begun.
        program.batch(1)
        before = Footprint.of(program.pid)

        async def steps(app: Top, pilot: Pilot[None]) -> None:
            truth: dict[str, int] = {}
            for _ in range(2):
                for name, count in program.batch(500).items():
                    truth[name] = truth.get(name, 0) + count
                await until(app, lambda: numbers(app, CALLS)["normal"] == truth["normal"])
                seen = numbers(app, CALLS)
                assert {name: seen[name] for name in truth if name in seen} == {
                    name: count for name, count in truth.items() if name in seen
                }
                assert len(seen.keys() & truth.keys()) > 20
            assert shown(app)["normal"][1] == "4.0k"
            assert has_weft(program.pid)

        watch(program.pid, steps)
        assert not has_weft(program.pid)
        assert before.differences(Footprint.of(program.pid)) == []


def test_times_callers_and_latency(build: Build) -> None:
    with lockstep(build("counts"), 2) as program:

        async def steps(app: Top, pilot: Pilot[None]) -> None:
            path = f"{MODULE}/recursive"
            times = Request("inclusive_time", path)
            await pilot.press("t")
            await pilot.press("slash", *"recursive", "enter")
            await until(app, lambda: list(shown(app)) == ["recursive"])
            # What is on the screen is measured.
            await until(app, lambda: times in values(app))
            await pilot.press("l", "enter")
            latency, callers = Request("latency", path), Request("callers", path)
            await until(app, lambda: {latency, callers} <= values(app).keys())
            truth = program.batch(700)["recursive"]
            await until(app, lambda: sum(numbers(app, callers).values()) == truth)
            # It calls itself from one to six times, and is called once in each round.
            assert numbers(app, callers)["recursive"] == truth - 2 * 700
            assert "counts/recursive" in shown(app)
            histogram = values(app)[latency]
            assert isinstance(histogram, Histogram)
            assert histogram.count == truth
            assert 0 < numbers(app, times)["recursive"] < 60
            await pilot.press("escape")
            await until(app, lambda: callers not in values(app))

        watch(program.pid, steps)
        assert not has_weft(program.pid)


def test_the_calls_of_each_thread(build: Build) -> None:
    with lockstep(build("counts"), 2) as program:

        async def steps(app: Top, pilot: Pilot[None]) -> None:
            truth = program.batch(300)["normal"]
            await until(app, lambda: numbers(app, CALLS)["normal"] == truth)
            reading = app.board.reading
            assert reading is not None
            seen = {}
            for number in range(len(reading.threads)):
                await pilot.press(*(("tab", "end") if number == 0 else ("up",)), "enter")
                thread = app.board.thread
                request = Request("calls", CALLS.path, thread)
                await until(app, lambda: request in values(app))  # noqa: B023
                seen[thread] = numbers(app, request)["normal"]
            assert seen.keys() == set(reading.threads)
            assert sorted(seen.values()) == [0, truth / 2, truth / 2]

        watch(program.pid, steps)


def test_the_last_values_stay_when_the_program_ends(build: Build) -> None:
    with lockstep(build("counts"), 1) as program:

        async def steps(app: Top, pilot: Pilot[None]) -> None:
            truth = program.batch(100)["normal"]
            await until(app, lambda: numbers(app, CALLS)["normal"] == truth)
            program.end()
            await until(app, lambda: app.has_ended)
            assert "it has ended" in str(app._status.content)
            assert numbers(app, CALLS)["normal"] == truth
            await pilot.press("s", "r", "t", "enter")

        watch(program.pid, steps)


@pytest.mark.alone
@pytest.mark.watchdog(600)
def test_every_key_within_the_budget(tmp_path: Path) -> None:
    """What is called most cannot be timed within it, and is not: from the first key on."""
    mills = compile_program("mills.c", tmp_path / "mills", "-O1", "-pthread")

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        source = app._source
        assert isinstance(source, SessionSource)
        budget = source.session.metrics.budget
        assert budget is not None
        ledger = budget.ledger
        await pilot.press("t")
        await until(app, lambda: shown(app)["mill_10"][2] == "too hot")
        assert shown(app)["mill_10"][3].startswith("cost")
        assert "functions not within the budget: cost about" in notes(app)
        # How often it is called is an estimate.
        await until(app, lambda: shown(app)["mill_10"][0].startswith("~"))
        # Of what is not on the screen, nothing is measured; unless it may have to be, by the order.
        rare = Request("inclusive_time", "/Code/mills/mill_39")
        assert rare not in values(app)
        await pilot.press("s", "s")
        await until(app, lambda: rare in values(app))
        await until(app, lambda: shown(app)["mill_39"][2] not in ("too hot", "-"))
        for key in ("b", "s", "l", "down", "r", "s", "enter", "l", "escape", "c", "t", "c", "t"):
            await pilot.press(key)
            await asyncio.sleep(0.2)  # as a person would
            assert ledger.probes <= 0.02 * ledger.ran, key
        # Stopping and drawing may take long on a busy machine; then there is less of it.
        await until(app, lambda: ledger.overhead <= 0.02)

    pipe = subprocess.PIPE
    with subprocess.Popen([mills], stdin=pipe, stdout=pipe) as program:
        assert program.stdout
        program.stdout.readline()
        try:
            watch(program.pid, steps, budget=0.02)
            assert not has_weft(program.pid)
        finally:
            program.kill()


class Terminal:
    """A terminal of 80 by 24 characters without true colour, and a command in it."""

    def __init__(self, *command: str) -> None:
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": ""}
            os.execve(sys.executable, [sys.executable, "-m", "weft", *command], environment)
        ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.output = b""

    def wait_for(self, text: bytes) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in self.output:
            left = deadline - time.monotonic()
            assert select.select([self._descriptor], [], [], max(0.0, left))[0], self.output
            self.output += os.read(self._descriptor, 65536)

    def press(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def hang_up(self) -> int:
        """Take the terminal away, as a lost connection does, and return the exit code."""
        os.close(self._descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def end(self) -> int:
        """Read what is left, and return the exit code."""
        try:
            while chunk := os.read(self._descriptor, 65536):
                self.output += chunk
        except OSError:  # nobody has the other end any more
            pass
        os.close(self._descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_the_command_attaches_and_leaves(build: Build) -> None:
    with lockstep(build("counts"), 1) as program:
        terminal = Terminal("top", str(program.pid), "--interval", "0.2")
        terminal.wait_for(b"calls/s")
        assert has_weft(program.pid)
        terminal.press(b"q")
        assert terminal.end() == 0
        assert b"38;2;" not in terminal.output, "it must do without true colour"
        assert not has_weft(program.pid)
        assert program.batch(10)["normal"] > 0


def test_a_lost_connection_leaves_the_target(build: Build) -> None:
    with lockstep(build("counts"), 1) as program:
        terminal = Terminal("top", str(program.pid), "--interval", "0.1")
        terminal.wait_for(b"calls/s")
        assert terminal.hang_up() == 128 + signal.SIGHUP
        assert not has_weft(program.pid)
        assert program.batch(10)["normal"] > 0


def test_a_terminal_that_nobody_has_any_more(build: Build) -> None:
    """It controls no process, so no signal tells that it is gone."""
    with lockstep(build("counts"), 1) as program:
        ours, its = pty.openpty()
        command = [sys.executable, "-m", "weft", "top", str(program.pid), "--interval", "0.1"]
        environment = {**os.environ, "TERM": "xterm-256color"}
        with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment) as top:
            os.close(its)
            output = b""
            while b"calls/s" not in output:
                assert select.select([ours], [], [], PATIENCE)[0], output
                output += os.read(ours, 65536)
            os.close(ours)
            assert top.wait(PATIENCE) == 128 + signal.SIGHUP
        assert not has_weft(program.pid)
        assert program.batch(10)["normal"] > 0


def test_the_command_starts_a_program(build: Build) -> None:
    terminal = Terminal(
        "top", "--interval", "0.2", "--budget", "50%", "--", str(build("counts")), "2", "9"
    )
    terminal.wait_for(b"it has ended with code 7")
    assert b"budget" in terminal.output
    assert b'"normal"' not in terminal.output, "what the program prints stays off the screen"
    terminal.press(b"q")
    assert terminal.end() == 0


def test_a_program_that_was_started_runs_on() -> None:
    terminal = Terminal("top", "--", "sleep", "600")
    terminal.wait_for(b"calls/s")
    terminal.press(b"q")
    assert terminal.end() == 0
    assert b"runs on, without weft in it" in terminal.output
    pid = int(terminal.output.rpartition(b"(process ")[2].split(b")")[0])
    assert not has_weft(pid)
    os.kill(pid, signal.SIGKILL)


def test_what_is_wrong_is_said_on_one_screen() -> None:
    terminal = Terminal("top", "999999999")
    assert terminal.end() == 3
    assert b"Traceback" not in terminal.output
    assert b"try:" in terminal.output
