"""Programs that tests drive weft on: building them, running them, and what they look like inside."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


def build(source: str, directory: Path, *flags: str) -> Path:
    """Compile one C program of ``tests/programs`` and return it."""
    program = directory / source.removesuffix(".c")
    warnings = ["-Wall", "-Wextra", "-Werror"]
    command = ["gcc", "-O2", *warnings, "-o", program, PROGRAMS / source, "-pthread", *flags]
    subprocess.run([str(word) for word in command], check=True)
    return program


@dataclass(frozen=True)
class Snapshot:
    """All of a process that weft promises to leave as it was."""

    maps: tuple[str, ...]
    descriptors: tuple[str, ...]
    code: str
    """A hash of all executable memory."""

    @classmethod
    def of(cls, pid: int) -> Snapshot:
        """Take a snapshot; the process should be at rest."""
        process = Path(f"/proc/{pid}")
        maps = process.joinpath("maps").read_text().splitlines()
        code = hashlib.sha256()
        with process.joinpath("mem").open("rb") as memory:
            for line in maps:
                addresses, permissions = line.split()[:2]
                if "x" in permissions and "[vsyscall]" not in line:
                    start, end = (int(text, 16) for text in addresses.split("-"))
                    memory.seek(start)
                    code.update(memory.read(end - start))
        links = sorted(
            f"{link.name} {link.readlink()}" for link in process.joinpath("fd").iterdir()
        )
        return cls(tuple(maps), tuple(links), code.hexdigest())

    def differences(self, other: Snapshot) -> list[str]:
        """Return what is not the same in both, in words."""
        found = [f"mapping {m}" for m in sorted(set(self.maps) ^ set(other.maps))]
        found += [f"descriptor {d}" for d in sorted(set(self.descriptors) ^ set(other.descriptors))]
        if self.code != other.code:
            found.append("executable memory")
        return found


class Invariants:
    """``tests/programs/invariants.c`` at work: a program that notices when something is wrong."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        assert self._line() == "ready"

    def rest(self) -> None:
        """Have it map no memory and open no files until it is told to go on."""
        assert self._say("rest") == "resting"

    def go(self) -> None:
        """End the rest."""
        assert self._say("go") == "going"

    def stop(self) -> int:
        """End it, and fail if it has noticed anything.

        Returns how many calls of epoll_wait were interrupted, which is no error but not nice.
        """
        code, output = self._end()
        if code != 7:
            raise AssertionError(f"the target noticed something, exit code {code}: {output}")
        return int(output.splitlines()[-1].split()[0])

    def check(self) -> None:
        """Fail if it has ended."""
        if self._process.poll() is not None:
            code, output = self._end()
            raise AssertionError(f"the target ended with {code}: {output}")

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
