"""Programs that run as clones: how they are started, and what must come of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import weft
from tests.toolchain import PROGRAMS

SOURCES = PROGRAMS / "clone"

SMALL_CACHE = ("--cache-size", str(256 << 10))


KNOWN = {
    "faults-code_beyond_addresses": "such a jump faults where it leads to, as on some processors",
    "smc_memory-by_a_ring": "the kernel writes to guarded pages later, and fails",
    "smc_memory-by_another_process": "another process cannot write to guarded pages",
    "smc_memory-by_proc_mem": "such writes do not ask for rights",
    "smc_memory-file_truncated": "a file's private mapping changes unseen",
    "smc_memory-private_file_rewritten": "a file's private mapping changes unseen",
}
"""What is not yet as it is natively, and why: ``docs/explanation/clone-engine.md``."""


def known(case: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a case."""
    return [pytest.mark.xfail(reason=KNOWN[case], strict=False)] if case in KNOWN else []


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
