"""Running one cell, and judging what came of it."""

from __future__ import annotations

import re
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.matrix.commands import Command, Running
from tests.matrix.situations import Moment, Situation, full_disk
from tests.matrix.target import Harmed, Target

CALLS = 1000
REFUSALS = {1, 2, 3, 4}
"""The exit codes of a command that could not do what was asked: docs/reference/exit-codes.md."""
BAD = ("harmed", "wrong")


@dataclass(frozen=True)
class Verdict:
    """What came of a cell: see :mod:`tests.matrix`."""

    kind: str
    detail: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether this may not be."""
        return self.kind in BAD


class Wrong(Exception):
    """The command did something that it may never do."""


def under_limit(program: Path, command: Command, situation: Situation) -> Verdict:
    """Run a command on a target under a limit, or in a namespace."""
    with tempfile.TemporaryDirectory(prefix="matrix-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "empty").mkdir()
        limits = [text.format(empty=folder / "empty") for text in situation.limits]
        target = Target([program, *limits], situation.wrapper)
        return _judged(target, lambda: _measure(target, command, folder / "result"))


def on_full_disk(program: Path, command: Command) -> Verdict:
    """Run a command that writes its result where there is no room."""
    with tempfile.TemporaryDirectory(prefix="matrix-") as name:
        folder = Path(name)
        target = Target([program])
        return _judged(
            target,
            lambda: _measure(target, command, folder / "result", wrapper=full_disk(folder)),
        )


@dataclass(frozen=True)
class When:
    """A moment: some time after the command was started, or after it began to take the target."""

    seconds: float
    is_taken: bool


def at_moment(program: Path, command: Command, moment: Moment, when: When) -> Verdict:
    """Send signals at a moment of a command's life."""
    with tempfile.TemporaryDirectory(prefix="matrix-") as name:
        target = Target([program])
        return _judged(
            target, lambda: _interrupt(target, command, moment, when, Path(name, "result"))
        )


def time_to_begin(program: Path, command: Command) -> float:
    """Return how long a command takes until it measures, in seconds."""
    with tempfile.TemporaryDirectory(prefix="matrix-") as name:
        target = Target([program])
        running = _start(target, command, Path(name, "result"))
        try:
            began = time.monotonic()
            running.read_until(command.ready)
            return time.monotonic() - began
        finally:
            running.kill()
            target.kill()


def _judged(target: Target, cell: Callable[[], Verdict]) -> Verdict:
    try:
        return cell()
    except Harmed as error:
        return Verdict("harmed", str(error))
    except (Wrong, TimeoutError) as error:
        return Verdict("wrong", str(error))
    finally:
        target.kill()


def _start(target: Target, command: Command, file: Path, wrapper: tuple[str, ...] = ()) -> Running:
    words = command.words(target.pid, file)
    return Running(words, needs_terminal=command.needs_terminal, wrapper=wrapper)


def _measure(
    target: Target, command: Command, file: Path, wrapper: tuple[str, ...] = ()
) -> Verdict:
    running = _start(target, command, file, wrapper)
    try:
        if running.read_until(command.ready, other=command.refusal):
            target.work(CALLS)
            if command.name != "debug":
                running.stop()
        code = running.end()
    finally:
        running.kill()
    output = running.output
    check_output(code, output)
    target.check_untouched()
    target.finish()
    if code != 0:
        if code not in REFUSALS or not first_error(output):
            raise Wrong(f"exit code {code}, and it says {output[-300:]!r}")
        return Verdict("refused", first_error(output))
    if command.refusal is not None and command.refusal in output:
        return Verdict("refused", "on the screen")
    counted = command.count(output, file)
    if counted in (None, CALLS):
        return Verdict("right")
    if "note: " in output or "incomplete" in output:
        return Verdict("marked", output[-200:])
    raise Wrong(f"it counted {counted} instead of {CALLS}: {output[-300:]!r}")


def _interrupt(target: Target, command: Command, moment: Moment, when: When, file: Path) -> Verdict:
    running = _start(target, command, file)
    try:
        while when.is_taken and running.process.poll() is None and not target.is_taken():
            time.sleep(0.0005)
        with suppress(TimeoutError):
            running.read_until("\0", patience=when.seconds)
        if moment.is_for_target:
            target.kill()
        else:
            for number in moment.signals:
                running.signal(number)
        if command.name == "debug" and signal.SIGINT in moment.signals:
            # GDB answers Ctrl-C, and drops one that comes between two of its commands.
            running.press_until_end(signal.SIGINT)
        if command.needs_terminal and moment.is_for_target:
            # It shows the last values until somebody has seen them.
            running.leave()
        code = running.end()
    finally:
        running.kill()
    output = running.output
    if moment.is_for_target:
        check_output(code, output)
        return Verdict("right", f"exit code {code}")
    if moment.name == "weft SIGKILL":
        # Nobody is there to release it, but it runs on.
        target.work(CALLS)
        target.finish()
        return Verdict("right")
    check_output(code, output)
    target.work(CALLS)
    target.check_untouched()
    target.finish()
    return Verdict("right", f"exit code {code}")


def check_output(code: int, output: str) -> None:
    """Fail if a command has failed as only a fault of weft can."""
    # Nobody can catch a signal that comes while the interpreter itself is starting.
    is_traceback = "Traceback" in output and "/weft/" in output
    if is_traceback or "internal error" in output or "panicked" in output:
        raise Wrong(f"a fault of weft, exit code {code}: {output[-600:]!r}")


def first_error(output: str) -> str:
    """What it says that it could not do, and why; nothing if it does not."""
    output = re.sub(r"\x1b\[[0-9;]*m", "", output)  # a terminal has colours
    plain = r"error: (.*?)\r?\n(?:  why: (.*?)\r?\n)?"
    found = re.search(plain, output) or re.search(r'"what": "(.*?)", "why": "(.*?)"', output)
    return "" if not found else f"{found[1]} ({found[2] or 'no reason'})"
