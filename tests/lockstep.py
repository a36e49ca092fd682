"""Programs that count themselves, in batches: ``tests/programs/lockstep.h`` says how."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias

Counts: TypeAlias = dict[str, int]
"""How often each function was called, by its name."""

ENDED_WELL = 7


class Lockstep:
    """A running program of that kind, by our ends of its standard input and output."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid = pid
        self._stdin = stdin
        self._stdout = stdout
        assert self._line() == "ready"

    def batch(self, rounds: int) -> Counts:
        """Have every worker do so many rounds, and return what they counted."""
        return self.counts(f"batch {rounds}")

    def go(self) -> None:
        """Let the workers work."""
        assert self.say("go") == "going"

    def rest(self) -> Counts:
        """Let the workers rest, and return what they counted since they began."""
        return self.counts("rest")

    def counts(self, command: str) -> Counts:
        """Say something that is answered with counts."""
        return parse_counts(self.say(command))

    def say(self, command: str) -> str:
        """Say something and return the answer, which is one line."""
        self.tell(command)
        return self._line()

    def tell(self, command: str) -> None:
        """Say something that is not answered."""
        self._stdin.write(command.encode() + b"\n")
        self._stdin.flush()

    def end(self) -> Counts:
        """End its input, and return all that it ever counted."""
        self._stdin.close()
        return parse_counts(self._line())

    def _line(self) -> str:
        line = self._stdout.readline().decode().strip()
        if not line or line.startswith("broken"):
            raise AssertionError(f"the program ended early, and said: {line}")
        return line


def parse_counts(line: str) -> Counts:
    """Read a line of JSON that says how often each function was called."""
    counts: dict[str, Any] = json.loads(line)
    assert counts and all(type(count) is int for count in counts.values()), line
    return counts


def total(batches: Sequence[Counts]) -> Counts:
    """Add up the counts of batches of the same program."""
    return {name: sum(batch[name] for batch in batches) for name in batches[0]}


@contextmanager
def lockstep(program: Path, threads: int) -> Iterator[Lockstep]:
    """Run the program for as long as the block takes; then it must end well."""
    process = subprocess.Popen(
        [program, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        try:
            assert process.stdin and process.stdout
            yield Lockstep(process.pid, process.stdin, process.stdout)
            process.stdin.close()
            process.stdout.read()
            code = process.wait(timeout=60)
            assert code == ENDED_WELL, f"{program.name} ended with {code}"
        finally:
            process.kill()
