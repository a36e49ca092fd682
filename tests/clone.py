"""Programs that run as clones: how they are started, and what must come of it."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import weft
from tests.toolchain import PROGRAMS
from weft import trace
from weft.cli import main

SOURCES = PROGRAMS / "clone"

SMALL_CACHE = ("--cache-size", str(256 << 10))

IS_LONG = os.environ.get("WEFT_TORTURE") == "long"
"""Whether there is to be all of what is alike, and more of it, as ``make soak`` wants it."""

KNOWN = {
    "smc_memory-by_a_ring": "the kernel writes to guarded pages later, and fails",
    "smc_memory-by_another_process": "another process cannot write to guarded pages",
    "smc_memory-by_proc_mem": "such writes do not ask for rights",
    "smc_memory-file_truncated": "code that is cut off makes it leave its clone, with a report",
    "smc_memory-private_file_rewritten": "a file's private mapping changes unseen",
}
"""What is not yet as it is natively, and why: ``docs/explanation/clone-engine.md``."""


def known(case: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a case."""
    return [pytest.mark.xfail(reason=KNOWN[case])] if case in KNOWN else []


def cloned(*options: str) -> list[str]:
    """What to put before a command, for it to run as a clone.

    With ``WEFT_CLONE_PREFIX=none`` that is nothing: so the programs are tested alone.
    """
    if os.environ.get("WEFT_CLONE_PREFIX") == "none":
        return []
    return [sys.executable, "-m", "weft", "run", "--weaver", "clone", *options, "--"]


@dataclass(frozen=True)
class Outcome:
    """What can be seen of a program from outside."""

    status: int
    """Its exit code, or 128 and the signal that ended it, as shells have it."""
    stdout: str
    stderr: str


def outcome(command: Sequence[str | Path], patience: float = 30.0) -> Outcome:
    """Run a command to its end, and kill it with all its children if that does not come."""
    # What a failing engine writes shall not stay.
    with (
        tempfile.TemporaryDirectory(prefix="weft-") as folder,
        subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            stdout, stderr = process.communicate(timeout=patience)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return Outcome(status, stdout, stderr)


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.clone", "weft.cli.run"])


def outcome_apart(
    run: Callable[[list[str]], object], command: Sequence[str | Path], patience: float = 30.0
) -> Outcome:
    """Like :func:`outcome`, of a function that is given the command in a process of its own.

    That process is forked by one which has imported all that it takes: of a program that does next
    to nothing, most of the time would be Python's start.
    """
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        names = [f"{folder}-stdout", f"{folder}-stderr"]
        streams = [Path(name) for name in names]
        process = _FORKS.Process(
            target=_run_apart,
            # The one that it is forked by has the environment of its own start.
            args=(run, [str(word) for word in command], folder, names, dict(os.environ)),
        )
        process.start()
        assert process.pid
        try:
            process.join(patience)
            if process.exitcode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.join()
                raise subprocess.TimeoutExpired([*map(str, command)], patience)
            stdout, stderr = (stream.read_text() for stream in streams)
        finally:
            for stream in streams:
                stream.unlink(missing_ok=True)
    status = process.exitcode if process.exitcode >= 0 else 128 - process.exitcode
    return Outcome(status, stdout, stderr)


def _run_apart(
    run: Callable[[list[str]], object],
    command: list[str],
    folder: str,
    names: list[str],
    environment: dict[str, str],
) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    writing = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    files = [os.open("/dev/null", os.O_RDONLY), *(os.open(name, writing) for name in names)]
    for number, file in enumerate(files):
        os.dup2(file, number)
    # Those by which this process was asked for are not for the program.
    for link in Path("/proc/self/fd").iterdir():
        if int(link.name) >= len(files) and link.is_symlink():
            os.set_inheritable(int(link.name), False)
    run(command)


def run_weft(words: list[str]) -> None:
    """Be the command ``weft``."""
    main(words, prog_name="weft")


def run_blind(command: list[str]) -> None:
    """Run a program from a clone that does not look for changes of its code."""
    with weft.run(command, weaver="clone", sees_changes=False) as program:
        sys.exit(program.wait())


def run_counted(command: list[str]) -> None:
    """Run a program from a clone in which all is counted that it executes."""
    with weft.run(command, weaver="clone", records="counts") as program:
        sys.exit(program.wait())


def run_traced(command: list[str]) -> None:
    """Run a program from a clone in which all is written down that it executes."""
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        code, _ = trace.record(command, Path(folder) / "trace")
    sys.exit(code)


RECORDERS = {"counts": run_counted, "trace": run_traced}
"""How to run a program while something is recorded of it."""


def outcome_of_clone(
    command: Sequence[str | Path], options: Sequence[str] = (), patience: float = 30.0
) -> Outcome:
    """Run a command as a clone, as :func:`cloned` has it."""
    if not cloned():
        return outcome(command, patience)
    words = ["run", "--weaver", "clone", *options, "--", *command]
    return outcome_apart(run_weft, words, patience)


def cases(source: str) -> list[str]:
    """Return the names of all cases of a program, see ``check.h``."""
    text = (SOURCES / source).read_text()
    return re.findall(r"^CASE\((\w+)", text, flags=re.MULTILINE)


@contextmanager
def session_of(pid: int, weaver: str) -> Iterator[weft.Session]:
    """A session with a process, by one weaver or the other."""
    if weaver == "clone":
        with weft.attach(pid, weaver="clone") as cloned:
            yield cloned.session
    else:
        with weft.attach(pid) as session:
            yield session
