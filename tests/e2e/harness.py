"""Running programs beside the tests, without sleeping and without leaving any behind."""

from __future__ import annotations

import hashlib
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import pytest

PROGRAMS = Path(__file__).parent.parent / "programs"

NOBODY = 65534
"""A user who owns nothing."""


def need(*programs: str | Path) -> None:
    """Skip the test where a program is not installed."""
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")


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
        """End what still runs, and what it has started."""
        kill_family(self.process)
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
        # Long enough for others to get on, short beside what takes a process to start.
        time.sleep(0.0005)


def children(pid: int) -> list[int]:
    """Return the processes that the first thread of a process has started."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def kill_family(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children, unless it has ended: then others may have their ids."""
    if process.poll() is None:
        for pid in (*children(process.pid), process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def threads(pid: int) -> set[int]:
    """Return the ids of all threads of a process."""
    return {int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()}


def is_blocked(pid: int) -> bool:
    """Say whether every thread of a process sleeps in a system call."""

    def sleeps(tid: int) -> bool:
        call = Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()[0]
        return call.isdigit() and status(tid)["State"].startswith("S")

    return all(map(sleeps, threads(pid)))


def code(pid: int) -> dict[str, str]:
    """Return a hash of every executable mapping of a process."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        return {line: _hash(memory, line) for line in maps if _is_code(line)}


@dataclass(frozen=True)
class Footprint:
    """What must be the same before and after of a process in which nothing moves."""

    maps: tuple[str, ...]
    code: dict[str, str]
    descriptors: dict[str, str]
    threads: dict[int, dict[str, str]]
    """Of every thread: its signals and its tracer."""

    @classmethod
    def of(cls, pid: int) -> Footprint:
        folder = Path(f"/proc/{pid}")
        fields = ("SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "TracerPid")
        return cls(
            maps=tuple((folder / "maps").read_text().splitlines()),
            code=code(pid),
            descriptors={fd.name: str(fd.readlink()) for fd in (folder / "fd").iterdir()},
            threads={tid: {key: status(tid)[key] for key in fields} for tid in threads(pid)},
        )

    def differences(self, other: Footprint) -> list[str]:
        """Return what is not the same in both, in words."""
        found = [f"mapping {m}" for m in sorted(set(self.maps) ^ set(other.maps))]
        if self.code != other.code:
            found.append("executable memory")
        if self.descriptors != other.descriptors:
            found.append(f"descriptors {self.descriptors} and {other.descriptors}")
        # What is pending comes and goes by itself.
        for tid in self.threads.keys() & other.threads.keys():
            for field in ("SigBlk", "SigIgn", "SigCgt", "TracerPid"):
                if self.threads[tid][field] != other.threads[tid][field]:
                    values = (one.threads[tid][field] for one in (self, other))
                    found.append(f"{field} of thread {tid} ({', then '.join(values)})")
        return found


def _is_code(line: str) -> bool:
    # The page at the end of the address space cannot be read, only called.
    is_ours = "/memfd:weft" in line
    return line.split()[1][2] == "x" and "[vsyscall]" not in line and not is_ours


def _hash(memory: IO[bytes], line: str) -> str:
    start, end = (int(word, 16) for word in line.split()[0].split("-"))
    memory.seek(start)
    digest = hashlib.sha256()
    while start < end:
        chunk = memory.read(min(end - start, 1 << 20))
        digest.update(chunk)
        start += len(chunk)
    return digest.hexdigest()


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Say whether somebody listens on a port of the loopback interface."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def server(command: Sequence[str | Path], ready: Callable[[], bool], **popen: Any) -> Iterator[int]:
    """Run a server: its process id. It must end well when it is asked to."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, **popen) as process:
        try:
            eventually(ready)
            yield process.pid
            process.terminate()
            code = process.wait(timeout=30)
            assert code == 0, f"it ended with {code}"
        finally:
            kill_family(process)


@contextmanager
def redis_clients(port: int, *kinds: str) -> Iterator[None]:
    """Have clients ask redis-server, round after round until it is enough; none sees an error."""
    load = ["redis-benchmark", "-p", str(port), "-n", "20000", "-c", "20", "--csv"]
    enough = threading.Event()

    def rounds() -> Iterator[subprocess.CompletedProcess[str]]:
        while not enough.is_set():
            yield subprocess.run(
                [*load, "-t", ",".join(kinds)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=120,
                check=False,
            )

    with ThreadPoolExecutor(1) as beside:
        asking = beside.submit(lambda: list(rounds()))
        try:
            yield
        finally:
            enough.set()
    for done in asking.result():
        assert done.returncode == 0, done.stdout
        assert "error" not in done.stdout.lower(), done.stdout
        rates = re.findall(r'^"(\w+)","[\d.]+"', done.stdout, re.MULTILINE)
        assert [rate.lower() for rate in rates] == list(kinds), done.stdout


def status(pid: int) -> Mapping[str, str]:
    """Return the fields of ``/proc/PID/status``."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _open(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
