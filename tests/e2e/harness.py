"""Running programs beside the tests, without sleeping and without leaving any behind."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

PROGRAMS = Path(__file__).parent.parent / "programs"

NOBODY = 65534
"""A user who owns nothing."""


class Background:
    """A program that has printed "ready" on a line and now runs beside the test.

    All programs of the zoo work until their standard input ends, then print what came of it.
    Leaving the context kills what still runs.
    """

    def __init__(self, command: Sequence[str | Path], patience: float = 60.0, **popen: Any) -> None:
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **popen
        )
        self.output = b""
        try:
            self.wait_for_line(b"ready", patience)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for_line(self, line: bytes, patience: float = 60.0) -> None:
        """Read on until the program has printed exactly this line."""
        deadline = time.monotonic() + patience
        while line not in self.output.splitlines():
            stdout = _open(self.process.stdout)
            if not select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"no {line!r} from {self.process.args!r}: {self.output!r}")
            chunk = os.read(stdout.fileno(), 65536)
            if not chunk:
                raise EOFError(f"{self.process.args!r} ended: {self.output!r}")
            self.output += chunk

    def finish(self, patience: float = 60.0) -> tuple[int, str]:
        """End the program's input: its exit code and everything that it printed."""
        rest, _ = self.process.communicate(timeout=patience)
        self.output += rest
        return self.process.returncode, self.output.decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()

    def __enter__(self) -> Background:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


def eventually(condition: Callable[[], bool], patience: float = 30.0) -> None:
    """Wait for something that only the kernel can tell, and that it tells only when asked."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen")
        os.sched_yield()


def status(pid: int) -> Mapping[str, str]:
    """Return the fields of ``/proc/PID/status``."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _open(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
