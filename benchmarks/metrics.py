"""How long it takes until a metric is measured, and what measuring takes of weft.

    python benchmarks/metrics.py

On a Redis server that is asked all the while: the time from `weft attach PID -m ...` to the first
line that it prints, beside an interpreter that does nothing; the time that one request, or many at
once, take to come and to go; and the share of one core that weft takes to sample a thousand metrics
ten times a second. Wall time depends on what else the machine does; processor time hardly does.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import weft
from weft.metrics.engine import Engine

ROUNDS = 10
PAIRS = 1000
PER_SECOND = 10
SECONDS = 10
FUNCTION = "/Code/redis-server/processCommand"
REQUESTS = [("calls", FUNCTION), ("latency", FUNCTION), ("syscalls", FUNCTION), ("syscalls", "")]


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def busy_redis(folder: str) -> Iterator[int]:
    """Run a server with a client that asks it things, not as fast as it can."""
    port = free_port()
    options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", folder]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(["redis-server", *options], stdout=quiet) as server:
        try:
            with socket.socket() as probe:
                while probe.connect_ex(("127.0.0.1", port)):
                    time.sleep(0.01)
            client = ["redis-benchmark", "-p", str(port), "-c", "1", "-l", "-t", "get"]
            with subprocess.Popen(client, stdout=quiet) as asking:
                try:
                    yield server.pid
                finally:
                    asking.kill()
        finally:
            server.terminate()


def first_output(command: list[str]) -> tuple[float, float]:
    """Return the seconds until a command prints something, and its processor time in all."""
    before = sum(os.times()[2:4])
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        line = process.stdout.readline()
        taken = time.perf_counter() - begin
        process.stdout.read()
    if process.returncode or not line:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return taken, sum(os.times()[2:4]) - before


def timed(action: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds that something takes, and weft's processor time."""
    begin, cpu = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - begin, time.process_time() - cpu


def row(name: str, times: list[tuple[float, float]], more: str = "") -> None:
    cells = []
    for some in zip(*times, strict=True):
        cells += [f"{1000 * min(some):9.1f}", f"{1000 * statistics.median(some):9.1f}"]
    print(f"{name:44}", *cells, more, flush=True)


def start(pid: int) -> None:
    """Print how long it takes until the first value is there."""
    bare = [first_output([sys.executable, "-c", "print()"]) for _ in range(ROUNDS)]
    row("python -c 'print()'", bare)
    weft_command = [sys.executable, "-m", "weft", "attach", str(pid)]
    command = [*weft_command, "-m", f"calls@{FUNCTION}", "--for", "0.05"]
    times = [first_output(command) for _ in range(ROUNDS)]
    ratio = min(cpu for _, cpu in times) / max(min(cpu for _, cpu in bare), 0.01)
    row("weft attach PID -m calls@... --for 0.05", times, f"{ratio:5.1f}x the processor time")


def come_and_go(session: weft.Session) -> None:
    """Print how long requests take to be woven and to be taken out."""
    for name, focus in REQUESTS:
        coming, going = [], []
        for _ in range(ROUNDS):
            coming.append(timed(partial(session.metric, name, focus)))
            going.append(timed(session.metrics.metrics[-1].remove))
        title = f"{name} of one function" if focus else name
        row(f"{title}: enable", coming)
        row(f"{title}: disable", going)


def sample(session: weft.Session) -> None:
    """Print what sampling takes of a core."""
    functions = [
        f"/Code/{function.module.name}/{function.name}"
        for function in session.resources().modules[0].functions()
        if function.kind == "function"
    ]
    engine = session.metrics
    names = ["calls", "call_rate", "inclusive_time", "latency"]
    step = max(1, len(functions) * len(names) // PAIRS)
    definitions = [engine.definition(name) for name in names]
    wanted = [(metric, path) for path in functions[::step] for metric in definitions][:PAIRS]
    metrics = []
    row(
        f"{len(wanted)} at once: enable",
        [timed(lambda: metrics.extend(engine.request_all(wanted)))],
    )
    engine.sample()
    times = []
    due = time.monotonic()
    for _ in range(PER_SECOND * SECONDS):
        due += 1 / PER_SECOND
        time.sleep(max(0.0, due - time.monotonic()))
        times.append(timed(engine.sample))
    share = sum(cpu for _, cpu in times) / SECONDS
    row(f"{len(wanted)}: a sample", times, f"{100 * share:5.2f}% of a core, {PER_SECOND} a second")
    row(f"{len(wanted)}: disable", [timed(partial(remove_all, engine))])


def remove_all(engine: Engine) -> None:
    for metric in engine.metrics[::-1]:
        metric.remove()


def main() -> None:
    if not shutil.which("redis-server"):
        print("redis-server is not installed")
        return
    print(f"{'milliseconds':44} {'wall: best':>9} {'median':>8} {'cpu: best':>9} {'median':>9}")
    with tempfile.TemporaryDirectory() as folder, busy_redis(folder) as pid:
        start(pid)
        with weft.attach(pid) as session:
            come_and_go(session)
            sample(session)


if __name__ == "__main__":
    main()
