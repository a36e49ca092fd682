"""``tests/programs/invariants.c`` at work: a program that notices when something is wrong."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.harness import eventually, status, threads


class Invariants:
    """The running program."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        assert self._line() == "ready"

    def rest(self) -> None:
        """Have it map no memory, open no files and handle no signals until it is told to go on."""
        assert self._say("rest") == "resting"
        # A signal is blocked until its handler has returned.
        eventually(lambda: all(int(status(tid)["SigBlk"], 16) == 0 for tid in threads(self.pid)))

    def go(self) -> None:
        """End the rest."""
        assert self._say("go") == "going"

    def check(self) -> None:
        """Fail if it has ended."""
        if self._process.poll() is not None:
            code, output = self._end()
            raise AssertionError(f"the target ended with {code}: {output}")

    def stop(self) -> int:
        """End it, and fail if it has noticed anything.

        Returns how many calls of epoll_wait were interrupted, which is no error but not nice.
        """
        code, output = self._end()
        if code != 7:
            raise AssertionError(f"the target noticed something, exit code {code}: {output}")
        return int(output.splitlines()[-1].split()[0])

    def _say(self, word: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            code, output = self._end()
            raise AssertionError(f"the target ended with {code}: {output}")
        return line

    def _end(self) -> tuple[int, str]:
        output, errors = self._process.communicate()
        return self._process.returncode, output + errors


@contextmanager
def invariants(program: Path, threads: int, churners: int) -> Iterator[Invariants]:
    """Run the program for as long as the block takes, and end it whatever happens."""
    process = subprocess.Popen(
        [program, str(threads), str(churners)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Invariants(process)
        finally:
            process.kill()
