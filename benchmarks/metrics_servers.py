"""What a server loses while metrics are measured: its throughput with them, over that without.

Redis serves a client that never rests. Short windows with and without the metrics alternate in the
same process, and each window is compared with the one before it, so that what else the machine does
falls on both; the ratio is the median over all pairs.
"""

from __future__ import annotations

import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import weft

PAIRS = 60
SECONDS = 0.5
METRICS: dict[str, Sequence[tuple[str, str]]] = {
    "nothing": [],
    "calls of commands": [("calls", "/Code/redis-server/processCommand")],
    "latency of commands": [("latency", "/Code/redis-server/processCommand")],
    "bytes of I/O": [("io_bytes", "")],
    "bytes allocated": [("alloc_bytes", "")],
}


class Redis:
    """A client that can ask a server how much it has done."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._answers = self._socket.makefile("rb")

    def ask(self, *words: str) -> str:
        """Say a command, and return the answer if it is one text or one line."""
        parts = [f"${len(word)}\r\n{word}\r\n" for word in words]
        self._socket.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
        line = self._answers.readline().decode()
        if not line.startswith("$"):
            return line.strip()
        return self._answers.read(int(line[1:]) + 2).decode()

    def close(self) -> None:
        """End the connection."""
        self._answers.close()
        self._socket.close()

    def info(self, section: str) -> dict[str, str]:
        """Return what it says about itself."""
        lines = self.ask("INFO", section).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def commands(self) -> int:
        """Return how many commands it has processed, this one not yet among them."""
        return int(self.info("stats")["total_commands_processed"])


def throughput_ratio(
    pid: int,
    work_done: Callable[[], int],
    metrics: Sequence[tuple[str, str]],
    pairs: int = PAIRS,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> float:
    """Return what a server does with metrics, as a part of what it does without.

    By another clock than that on the wall: what it does in a second of that clock.
    """

    def rate() -> float:
        done, began = work_done(), clock()
        time.sleep(seconds)
        return (work_done() - done) / (clock() - began)

    ratios = []
    with weft.attach(pid) as session:
        for number in range(pairs):
            # Whoever comes first in one pair comes second in the next.
            rates = {}
            for is_on in (True, False) if number % 2 else (False, True):
                measured = [session.metric(*one) for one in metrics] if is_on else []
                rates[is_on] = rate()
                for metric in measured:
                    metric.remove()
            ratios.append(rates[True] / rates[False])
    return statistics.median(ratios)


@contextmanager
def busy_redis(
    folder: Path, load: Sequence[str] = ("-t", "get,set")
) -> Iterator[tuple[int, Redis]]:
    """Run a server with a client that never rests: its process, and a way to ask it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    quiet = ["--save", "", "--appendonly", "no", "--loglevel", "warning"]
    address = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    benchmark = ["redis-benchmark", "-p", str(port), "-c", "20", *load, "-l", "-q"]
    with subprocess.Popen(["redis-server", *address, *quiet], stdout=subprocess.DEVNULL) as server:
        try:
            for _ in range(200):
                time.sleep(0.05)
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
            with subprocess.Popen(benchmark, stdout=subprocess.DEVNULL) as client:
                try:
                    with closing(Redis(port)) as redis:
                        yield server.pid, redis
                finally:
                    client.kill()
        finally:
            server.kill()


def main() -> None:
    if not (shutil.which("redis-server") and shutil.which("redis-benchmark")):
        sys.exit("this needs redis-server and redis-benchmark")
    print(f"throughput of redis with a metric over that without, median of {PAIRS} pairs")
    with tempfile.TemporaryDirectory() as folder, busy_redis(Path(folder)) as (pid, redis):
        for name, metrics in METRICS.items():
            print(f"{name:22} {throughput_ratio(pid, redis.commands, metrics):6.3f}", flush=True)


if __name__ == "__main__":
    main()
