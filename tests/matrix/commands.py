"""The commands of weft that the matrix has, and how each is driven."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

WORK = "calls@/Code/limited/work"
PATIENCE = 60.0


@dataclass(frozen=True)
class Command:
    """A command on a process, until it is told to end."""

    name: str
    words: Callable[[int, Path], list[str]]
    ready: str | None
    """What it prints when it measures; nothing if it ends by itself."""
    count: Callable[[str, Path], int | None]
    """How often ``work`` was called, by output and file; nothing if that is not measured."""
    needs_terminal: bool = False
    refusal: str | None = None
    """What it prints when it cannot measure, where it does not end by that."""


def _no_count(_output: str, _file: Path) -> int | None:
    return None


def _of_table(output: str, _file: Path) -> int | None:
    found = re.search(r"^calls +/Code/limited/work +([\d,]+)", output, re.MULTILINE)
    return int(found[1].replace(",", "")) if found else -1


def covered(file: Path, name: str) -> int:
    """How often a function was executed, by a file of ``weft cov``; -1 if it is not in it."""
    for module in json.loads(file.read_text())["modules"]:
        for function in module["functions"]:
            if function["name"] == name:
                count: int = function["count"]
                return count
    return -1


def profiled(file: Path, name: str) -> int:
    """How often a function was called, by a file of ``weft profile``."""
    for function in json.loads(file.read_text())["functions"]:
        if function["name"] == name:
            calls: int = function["calls"]
            return calls
    return 0


def traced(file: Path, name: str) -> int:
    """How often a function was called, by a trace."""
    from weft import trace

    opened = trace.open(file)
    rows = [row for batch in opened.calls() for row in batch.to_pylist()]
    # Of a call that was not over when the trace ended, it is not known where it went.
    targets = [row["target"] for row in rows if row["kind"] == "call" and row["target"] is not None]
    return [opened.place(target)[1] for target in targets].count(name)


COMMANDS = [
    Command("attach", lambda pid, _: ["attach", str(pid)], None, _no_count),
    Command(
        "attach -m",
        lambda pid, _: ["attach", str(pid), "-m", WORK, "--interval", "3600"],
        "time=",
        _of_table,
    ),
    Command(
        *("top", lambda pid, _: ["top", str(pid)], "work", _no_count),
        needs_terminal=True,
        refusal="try:",
    ),
    Command(
        "cov",
        lambda pid, file: ["cov", str(pid), "--counts", "--format", "json", "-o", str(file)],
        "recording process",
        lambda _, file: covered(file, "work"),
    ),
    Command(
        "profile",
        lambda pid, file: ["profile", str(pid), "--format", "json", "-o", str(file)],
        "recording process",
        lambda _, file: profiled(file, "work"),
    ),
    Command(
        "trace",
        lambda pid, file: ["trace", str(pid), "-o", str(file)],
        "recording process",
        lambda _, file: traced(file, "work"),
    ),
    Command(
        "debug",
        lambda pid, _: [
            "debug",
            "--gdb-args",
            "-q -batch -ex 'break work' -ex 'echo GDB-IS-READY\\n' -ex continue"
            " -ex 'ignore 1 1000000' -ex 'print total' -ex detach",
            str(pid),
        ],
        "GDB-IS-READY",
        _no_count,
    ),
    Command(
        "clone",
        lambda pid, _: ["attach", str(pid), "--weaver", "clone"],
        "runs from a clone",
        _no_count,
    ),
    Command(
        "clone -m",
        lambda pid, _: [
            *("attach", str(pid), "--weaver", "clone", "-m", WORK, "--interval", "3600"),
        ],
        "time=",
        _of_table,
    ),
]


def take_usual_signals() -> None:
    """Have commands that are started answer the signals that whoever started this ignores."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


class Running:
    """A command that runs, and what it has printed so far."""

    def __init__(
        self, words: Sequence[str], *, needs_terminal: bool = False, wrapper: Sequence[str] = ()
    ) -> None:
        self.output = ""
        self._terminal = -1
        # As the command is installed: Ctrl-C is quiet from the first line on.
        weft = [*wrapper, sys.executable, "-c", "from weft_command import main; main()", *words]
        environment = {**os.environ, "TERM": "xterm", "PYTHONUNBUFFERED": "1", "COLUMNS": "120"}
        environment.pop("WEFT_DEBUG", None)
        if needs_terminal:
            self._terminal, slave = pty.openpty()
            self.process = subprocess.Popen(
                weft,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env=environment,
                start_new_session=True,
            )
            os.close(slave)
            self._reading = self._terminal
        else:
            self.process = subprocess.Popen(
                weft,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
            assert self.process.stdout
            self._reading = self.process.stdout.fileno()

    def read_until(
        self, text: str | None, patience: float = PATIENCE, other: str | None = None
    ) -> bool:
        """Read until it has printed a text, or another; says whether it has, before its end."""
        deadline = time.monotonic() + patience
        while not any(one is not None and one in self.output for one in (text, other)):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"it neither goes on nor ends: {self.output[-500:]!r}")
            if not select.select([self._reading], [], [], min(left, 1.0))[0]:
                # A child of it may still have the pipe.
                if self.process.poll() is not None:
                    return False
                continue
            try:
                chunk = os.read(self._reading, 65536)
            except OSError:  # a terminal whose last user has gone
                chunk = b""
            if not chunk:
                self.process.wait(timeout=max(1.0, deadline - time.monotonic()))
                return False
            self.output += chunk.decode(errors="replace")
        return True

    def stop(self) -> None:
        """Ask it to end, as a user would."""
        if self._terminal >= 0:
            os.write(self._terminal, b"q")
        else:
            self.signal(signal.SIGINT)

    def press(self, keys: str) -> None:
        """Type on its terminal, if somebody still listens there."""
        with suppress(OSError):
            os.write(self._terminal, keys.encode())

    def leave(self) -> None:
        """Leave a view: the key does so wherever nothing is being typed."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            for keys, patience in (("\x1b", 1.0), ("q", 5.0)):
                self.press(keys)
                with suppress(TimeoutError):
                    self.read_until(None, patience=patience)

    def press_until_end(self, number: signal.Signals) -> None:
        """Send it a signal again and again until it ends."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with suppress(TimeoutError):
                self.read_until(None, patience=2.0)
                return
            self.signal(number)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; what a terminal sends goes to all that run in it."""
        if number in (signal.SIGINT, signal.SIGHUP):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def end(self, patience: float = PATIENCE) -> int:
        """Read to its end, and return the exit code."""
        self.read_until(None, patience)
        return self.process.wait(timeout=patience)

    def kill(self) -> None:
        """End it, however it is."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        if self._terminal >= 0:
            os.close(self._terminal)
