"""What programs under load lose to weft within a budget: the throughput beside that without weft.

    python benchmarks/budget_servers.py [--rounds N] [--seconds S] [--only redis,nginx]

Redis serves redis-benchmark, PostgreSQL pgbench, nginx wrk, and a program calls a tiny function in
a loop. Each is measured by `weft attach` with a few metrics, by `weft attach` with the latencies of
the 30 functions that are called most, and by `weft top` with every key pressed again and again;
each with a budget of 1%, 2% and 5%. Windows with and without weft alternate, and each is compared
with the two around it, so that what else the machine does falls on both. Nothing is pinned: on a
machine that is busy, weft's own use of processors is part of the loss.

Printed are the median of the losses and the quartiles around it; the same for the first second
after weft has come, in which it finds out what can be measured; how much more processor time the
program took for the same work, which is what probes cost, whatever else the machine does; and how
much of a processor weft used. A negative loss is what the machine does otherwise.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parents[1]))

import weft
from benchmarks.metrics_servers import busy_redis
from tests.e2e import test_servers as servers
from tests.e2e.harness import answers, children, eventually, free_port, server
from tests.toolchain import compile_program
from weft.errors import IncompleteMetric

BUDGETS = (1, 2, 5)
MANY = 30
"""How many functions have their latency measured."""
KEYS = (
    b"t",
    b"b",
    b"s",
    b"l",
    b"\x1b[B",
    b"r",
    b"s",
    b"\r",
    b"\x1b",
    b"?",
    b"?",
    b"l",
    b"b",
    b"s",
    b"t",
)
"""Every key of `weft top` that changes what is measured or shown."""
CALLS_IN_A_PIECE = 4_000_000


@dataclass
class Target:
    """A process under load, and what it has done so far."""

    pid: int
    done: Callable[[], float]
    module: str
    metrics: Sequence[str]
    hottest: list[str] = field(default_factory=list)


@contextmanager
def redis(folder: Path) -> Iterator[Target]:
    with busy_redis(folder) as (pid, client):
        few = ["calls@/Code/redis-server/processCommand", "io_bytes", "alloc_bytes"]
        yield Target(pid, client.commands, "redis-server", few)


@contextmanager
def postgres(folder: Path) -> Iterator[Target]:
    """One connection: a backend is a process of its own."""
    folder.chmod(0o755)
    log = folder / "transactions"
    log.mkdir()
    with servers.postgres(folder / "data", free_port(), stdout=subprocess.DEVNULL) as (
        targets,
        client,
    ):
        load = [
            *client,
            "-S",
            "-c",
            "1",
            "-T",
            "100000",
            "-l",
            "--log-prefix",
            log / "log",
            "postgres",
        ]
        with subprocess.Popen(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as asking:
            try:
                lines = Lines(log)
                # The first connection is a short one, in which pgbench looks at the tables.
                eventually(lambda: lines.count() > 0 and len(targets()) == 2)
                few = ["calls@/Code/postgres/pg_plan_query", "io_bytes", "alloc_bytes"]
                yield Target(targets()[1], lines.count, "postgres", few)
            finally:
                asking.kill()


class Lines:
    """Counts the lines that are written to files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[Path, int] = {}
        self._count = 0

    def count(self) -> float:
        for path in self._folder.iterdir():
            with path.open("rb") as file:
                file.seek(self._places.get(path, 0))
                while block := file.read(1 << 20):
                    self._count += block.count(b"\n")
                self._places[path] = file.tell()
        return self._count


@contextmanager
def nginx(folder: Path) -> Iterator[Target]:
    port = free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    text = servers.NGINX.format(user=user, folder=folder, port=port)
    text = text.replace("worker_processes 2", "worker_processes 1")
    text = text.replace("location / ", "location /status { stub_status; }\n        location / ")
    (folder / "nginx.conf").write_text(text)
    command = ["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", "stderr"]
    with server(command, lambda: answers(port)) as master:
        eventually(lambda: len(children(master)) == 1)
        load = ["wrk", "-t1", "-c16", "-d100000s", f"http://127.0.0.1:{port}/"]
        with subprocess.Popen(load, stdout=subprocess.DEVNULL) as asking:

            def done() -> float:
                with urlopen(f"http://127.0.0.1:{port}/status") as answer:
                    return int(answer.read().split()[9])

            try:
                few = ["calls@/Code/nginx/ngx_http_process_request", "io_bytes", "alloc_bytes"]
                yield Target(children(master)[0], done, "nginx", few)
            finally:
                asking.kill()


@contextmanager
def loop(folder: Path) -> Iterator[Target]:
    program = compile_program("hot.c", folder / "hot", "-O2", "-pthread")
    pipe = subprocess.PIPE
    pieces = 0
    with subprocess.Popen([program, "1"], stdin=pipe, stdout=pipe, bufsize=0) as process:
        assert process.stdin and process.stdout
        process.stdout.readline()
        command = f"{CALLS_IN_A_PIECE}\n".encode()
        process.stdin.write(command)

        def work() -> None:
            nonlocal pieces
            assert process.stdin and process.stdout
            while process.stdout.readline():
                pieces += 1
                process.stdin.write(command)

        beside = threading.Thread(target=work, daemon=True)
        beside.start()
        try:
            yield Target(process.pid, lambda: pieces, "hot", ["calls@/Code/hot/tiny"])
        finally:
            process.kill()


TARGETS = {"redis": redis, "postgres": postgres, "nginx": nginx, "loop": loop}


def hottest(target: Target) -> list[str]:
    """The functions that are called most, of those whose calls can be timed."""
    found: list[str] = []
    with weft.attach(target.pid) as session:
        calls = session.metric("calls", f"/Code/{target.module}/*", by_function=True)
        time.sleep(1)
        counts = calls.by_function()
        for path in sorted(counts, key=lambda path: -counts[path]):
            with suppress(IncompleteMetric):
                session.metric("latency", path)
                found.append(path)
            if len(found) == MANY:
                break
    return found


class Weft:
    """A weft command on a terminal of its own; it ends by a signal."""

    def __init__(self, end_signal: int, *command: str) -> None:
        self._end_signal = end_signal
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execv(sys.executable, [sys.executable, "-m", "weft", *command])
        self._output = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while select.select([self._terminal], [], [])[0]:
                self._output = (self._output + os.read(self._terminal, 65536))[-4000:]
        except (OSError, ValueError):
            return

    def has_begun(self) -> bool:
        """Whether it shows anything: on a busy machine that can take seconds."""
        return bool(self._output)

    def press(self, key: bytes) -> None:
        os.write(self._terminal, key)

    def used(self) -> float:
        """How long it has used processors, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        os.kill(self.pid, self._end_signal)
        status = os.waitpid(self.pid, 0)[1]
        os.close(self._terminal)
        if os.waitstatus_to_exitcode(status) != 0:
            raise SystemExit(self._output.decode(errors="replace"))


@dataclass(frozen=True)
class Window:
    """What a target has done in a second, and the processor time that it took for each."""

    rate: float
    cost: float


def run_time(pid: int) -> float:
    """How long the first thread of a process has run; all targets work in that one."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def throughput(target: Target, seconds: float, keys: Keys | None = None) -> Window:
    """What a target does in so many seconds, with keys pressed meanwhile."""
    done, began, ran = target.done(), time.monotonic(), run_time(target.pid)
    end = began + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 0.4))
        if keys is not None:
            keys.press_next()
    # Not what it takes to ask.
    took, ran = time.monotonic() - began, run_time(target.pid) - ran
    done = max(target.done() - done, 1)
    return Window(done / took, ran / done)


@dataclass
class Keys:
    """Presses one key after the other."""

    command: Weft
    pressed: int = 0

    def press_next(self) -> None:
        self.command.press(KEYS[self.pressed % len(KEYS)])
        self.pressed += 1


@dataclass
class Loss:
    """What was lost, window by window, as shares."""

    first: list[float] = field(default_factory=list)
    later: list[float] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)


def start(target: Target, way: str, budget: int) -> Weft:
    limit = ["--budget", f"{budget}%"]
    if way == "top":
        return Weft(signal.SIGTERM, "top", str(target.pid), *limit)
    latencies = [f"latency@{path}" for path in target.hottest]
    metrics = latencies if way == "latencies" else target.metrics
    words = [word for metric in metrics for word in ("-m", metric)]
    return Weft(signal.SIGINT, "attach", str(target.pid), *words, *limit)


def measure(target: Target, way: str, budget: int, seconds: float, rounds: int) -> Loss:
    loss = Loss()
    before = throughput(target, seconds)
    for _ in range(rounds):
        command = start(target, way, budget)
        eventually(lambda: "/memfd:weft" in Path(f"/proc/{target.pid}/maps").read_text())
        first = throughput(target, 1.0)
        eventually(command.has_begun)
        used = command.used()
        later = throughput(target, seconds, Keys(command) if way == "top" else None)
        loss.own.append((command.used() - used) / seconds)
        command.end()
        after = throughput(target, seconds)
        alone = (before.rate + after.rate) / 2
        loss.first.append(1 - first.rate / alone)
        loss.later.append(1 - later.rate / alone)
        loss.cost.append(2 * later.cost / (before.cost + after.cost) - 1)
        before = after
    return loss


def spread(values: list[float]) -> str:
    low, _, high = quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    return f"{100 * median(values):+6.2f}% ({100 * low:+.1f} to {100 * high:+.1f})"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=10, help="rounds of each")
    arguments.add_argument("--seconds", type=float, default=10, help="how long a round is")
    arguments.add_argument("--only", default=",".join(TARGETS), help="some of the targets")
    options = arguments.parse_args()
    # The servers end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    seconds, rounds = options.seconds, options.rounds
    for program in ("redis-server", "redis-benchmark", "nginx", "wrk"):
        if not shutil.which(program):
            sys.exit(f"this needs {program}")
    print(f"{rounds} rounds of {seconds:.0f} s with weft, between as long without")
    head = (
        "target",
        "weft",
        "budget",
        "loss (quartiles)",
        "first second",
        "cost",
        "weft's own use",
    )
    print("{:9} {:10} {:>6}  {:26} {:26} {:26} {}".format(*head))
    for name in options.only.split(","):
        with (
            tempfile.TemporaryDirectory(prefix="weft-") as folder,
            TARGETS[name](Path(folder)) as target,
        ):
            target.hottest = hottest(target)
            for way in ("metrics", "latencies", "top"):
                for budget in BUDGETS:
                    loss = measure(target, way, budget, seconds, rounds)
                    later, first, cost = map(spread, (loss.later, loss.first, loss.cost))
                    print(
                        f"{name:9} {way:10} {budget:5}%  {later:26} {first:26} {cost:26} "
                        f"{100 * median(loss.own):.1f}%",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
