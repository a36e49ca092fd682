"""Weaves and unweaves busy programs at random; nobody who is served by them may notice.

    python -m tests.soak.probes [--seconds N] [--long]

Redis under redis-benchmark and PostgreSQL under pgbench have probes inserted, enabled, disabled and
removed, and weft itself attached and detached, for as many seconds altogether; the clients must see
no error, and get as much done afterwards as with a server that nobody touched. Then programs that
count themselves, with signals, threads, children and libraries that come and go, are compared with
a probe that counts all the while that others come and go: a cycle per second asked for, at least 25
and at most 500.
"""

from __future__ import annotations

import random
import re
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import weft
from tests.e2e import test_servers as servers
from tests.e2e.builder import Builder
from tests.e2e.harness import answers, free_port, server
from tests.e2e.test_probes import come_and_go, woven
from tests.e2e.test_servers import Command
from tests.probing import HAS_WEAVER, Kind, Probe, weaver
from tests.soak import how_many
from weft import errors

SHORT, LONG = 20, 1500
FEWEST, MOST = 25, 500

COUNTING = ["counts", "counts_cpp", "counts_rs", "counts_go", "signals", "coroutines", "churn"]
COUNTING += ["forks", "naps"]

KINDS: list[Kind] = ["entry", "exit", "call", "after", "block", "edge", "insn"]
COUNTERS = ["counter calls\ncalls += 1", "counter calls shared\ncalls += 1"]
WITH_ARGUMENTS = [
    "histogram sizes log2\nsizes << arg(0)",
    "map by_size[1] 256\nby_size[arg(1) & 255] += 1",
    "ring log(argument, when) 1024\nemit log(arg(0), now)",
]
"""What can be asked only where a function is called or entered."""
TIMER = "timer busy wall\nat entry { start busy }\nat exit { stop busy }"
MANY = 500
"""How many points a probe has at most."""

SLOWER = 0.7
"""How much of what another does must be done afterwards, on a machine that others use, too."""
TRIES = 10
"""How often both may try in the short form, whose benchmarks take a second."""


@dataclass
class Restless:
    """Somebody who cannot leave a process alone."""

    pid: int
    chance: random.Random
    acts: dict[str, int] = field(default_factory=dict)

    def visit(self, until: Callable[[], bool]) -> None:
        """Attach, do this and that until it is enough, and leave whatever is there."""
        with weft.attach(self.pid) as session:
            woven, probes = weaver(session), list[Probe]()
            module = Path(session.program()).name
            self._did("attach")
            for _ in range(self.chance.randint(5, 50)):
                if until():
                    break
                act = self.chance.choice(
                    ["insert", "insert", "remove", "disable", "enable", "read"]
                )
                if act == "insert":
                    letter = self.chance.choice(string.ascii_lowercase)
                    name = self.chance.choice([module, module, "libc.so.6"])
                    text, kinds = self._snippet()
                    pattern = f"/Code/{name}/{letter}*"
                    try:
                        points = [point for kind in kinds for point in woven.points(pattern, kind)]
                    except errors.InvalidArgument:
                        # No function begins with this letter.
                        continue
                    if text != TIMER and len(points) > MANY:
                        points = self.chance.sample(points, MANY)
                    if not points:
                        continue
                    order = self.chance.choice(["append", "prepend"])
                    probes.append(woven.insert(points, text, order=order))
                    assert all(refusal.reason for refusal in probes[-1].refused)
                elif not probes:
                    continue
                elif act == "remove":
                    probes.pop(self.chance.randrange(len(probes))).remove()
                elif act == "disable":
                    self.chance.choice(probes).disable()
                elif act == "enable":
                    self.chance.choice(probes).enable()
                else:
                    probe = self.chance.choice(probes)
                    assert sum(probe.tactics.values()) <= len(probe.points)
                self._did(act)

    def _snippet(self) -> tuple[str, list[Kind]]:
        """Return something to measure, and at which kinds of points."""
        chance = self.chance.random()
        if chance < 0.2:
            return TIMER, ["entry", "exit"]
        if chance < 0.5:
            return self.chance.choice(WITH_ARGUMENTS), [self.chance.choice(["entry", "call"])]
        return self.chance.choice(COUNTERS), [self.chance.choice(KINDS)]

    def _did(self, act: str) -> None:
        self.acts[act] = self.acts.get(act, 0) + 1


Disturb = Callable[[list[int], Callable[[], bool]], dict[str, int]]
"""Does something to processes until it is enough, and says what, and how often."""


def restlessness(chance: random.Random) -> Disturb:
    """Return what Restless does to one of several processes at a time."""

    def disturb(pids: list[int], until: Callable[[], bool]) -> dict[str, int]:
        restless = Restless(chance.choice(pids), chance)
        try:
            restless.visit(until)
        except (errors.NoSuchProcess, errors.ZombieTarget, errors.TargetGone):
            # What serves one client only may end when the client does.
            assert not Path(f"/proc/{restless.pid}/exe").exists()
        except errors.Timeout:
            # It hangs in a write that cannot be interrupted without a trace.
            restless.acts["came in vain"] = 1
        return restless.acts

    return disturb


@dataclass(frozen=True)
class Service:
    """A server that runs, and a benchmark of it."""

    targets: Callable[[], list[int]]
    client: Command
    rate: Callable[[str], float]
    """Reads from what the benchmark printed how much it got done; fails if it saw an error."""
    brief: Command
    """A benchmark for a server that is disturbed: one of so many requests would take very long."""


@contextmanager
def redis(folder: Path, seconds: int) -> Iterator[Service]:
    port = free_port()
    quiet = ["--save", "", "--appendonly", "no", "--loglevel", "warning"]
    address = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    command: Command = ["redis-server", *address, *quiet]
    with server(command, lambda: answers(port), stdout=subprocess.DEVNULL) as pid:

        def client(number: int) -> Command:
            requests = ["-n", str(number), "-c", "20", "-t", "set,get,incr,lpush,mset", "--csv"]
            return ["redis-benchmark", "-p", str(port), *requests]

        yield Service(
            lambda: [pid], client(20_000 * seconds), redis_rate, brief=client(4_000 * seconds)
        )


def redis_rate(output: str) -> float:
    """Return the requests per second, of all kinds of requests on average."""
    assert "error" not in output.lower(), output
    rates = [float(rate) for rate in re.findall(r'^"[^"]+","([\d.]+)"', output, re.MULTILINE)]
    assert len(rates) == 5 and all(rates), output
    # Each kind was asked for equally often, so it is their times that are to be averaged.
    return len(rates) / sum(1 / rate for rate in rates)


@contextmanager
def postgres(folder: Path, seconds: int, *options: str) -> Iterator[Service]:
    with (
        (folder / "postgres.log").open("wb") as log,
        servers.postgres(folder / "postgres", free_port(), stdout=log, stderr=log) as (
            targets,
            client,
        ),
    ):
        command: Command = [*client, "-c", "4", "-T", str(seconds), *options, "postgres"]
        yield Service(targets, command, postgres_rate, brief=command)


def postgres_rate(output: str) -> float:
    """Return the transactions per second."""
    assert re.search(r"number of failed transactions: 0 ", output), output
    rate = re.search(r"^tps = ([\d.]+)", output, re.MULTILINE)
    assert rate and float(rate[1]) > 0, output
    return float(rate[1])


SERVICES: dict[str, Callable[[Path, int], AbstractContextManager[Service]]] = {
    "redis": redis,
    "postgres": postgres,
    # A connection for each transaction: a process that is forked, woven with its parent, and ends.
    "postgres-forks": lambda folder, seconds: postgres(folder, seconds, "-C"),
}
"""Servers, by their folder and by how many seconds a benchmark of them takes, roughly."""
NEEDED = {"redis": ["redis-server", "redis-benchmark"]}
"""Programs that are looked for in the path; PostgreSQL looks for its own."""


@dataclass
class Rates:
    """How much was done per second alone, while it was woven at random, and afterwards.

    What it does afterwards is compared with one of its kind that nobody has touched, at the same
    time: others use the machine, too.
    """

    before: float
    during: list[float]
    after: float
    untouched: float
    acts: dict[str, int]

    def __str__(self) -> str:
        acts = ", ".join(f"{act} {number}" for act, number in sorted(self.acts.items()))
        during = f"{min(self.during):.0f} to {max(self.during):.0f}"
        after = f"{self.after:.0f} after beside {self.untouched:.0f} of one untouched"
        return f"{self.before:.0f}/s before, {during} during, {after}; {acts}"


def soak(name: str, folder: Path, seconds: float, disturb: Disturb) -> Rates:
    """Have a server disturbed for some seconds while its clients work."""

    def work(service: Service, disturbed: bool = False) -> float:
        command = service.brief if disturbed else service.client
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as client:
            try:
                while disturbed and client.poll() is None:
                    done = disturb(service.targets(), lambda: client.poll() is not None)
                    for act, number in done.items():
                        acts[act] = acts.get(act, 0) + number
                output, _ = client.communicate(timeout=120)
            finally:
                client.kill()
        assert client.returncode == 0, output
        return service.rate(output)

    acts: dict[str, int] = {}
    folders = [folder / f"{name}-{kind}" for kind in ("restless", "untouched")]
    for one in folders:
        one.mkdir(mode=0o755)
    start, length = SERVICES[name], max(1, min(5, round(seconds / 5)))
    is_long = length > 1
    with start(folders[0], length) as service:
        # The first one warms up; what it does afterwards is compared with another one's.
        before = max(work(service) for _ in range(2 if is_long else 1))
        during: list[float] = []
        end = time.monotonic() + seconds
        while not during or time.monotonic() < end:
            during.append(work(service, disturbed=True))
        with start(folders[1], length) as other:
            after, untouched = 0.0, 0.0
            for number in range(3 if is_long else TRIES):
                after, untouched = max(after, work(service)), max(untouched, work(other))
                # Others may have had the machine in the one's time: then both have another try, and
                # one that is really slower never gets as far as the other at its best. In the long
                # form they have all tries in any case, for the numbers to be good ones.
                if number and not is_long and after > SLOWER * untouched:
                    break
    rates = Rates(before, during, after, untouched, acts)
    assert after > SLOWER * untouched, rates
    return rates


def count_on(builder: Builder, name: str, threads: int, cycles: int, chance: random.Random) -> None:
    """Compare what a program counts with a probe, while other probes come and go."""
    with woven(builder.build, name, threads) as (program, session):
        come_and_go(program, session, name, cycles, chance)


def main() -> None:
    seconds = how_many(__doc__, "seconds", SHORT, LONG)
    if not HAS_WEAVER:
        sys.exit("this build of weft cannot weave")
    seed = random.randrange(1 << 32)
    print(f"chance began with {seed}")
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="weft-") as directory:
        folder = Path(directory)
        folder.chmod(0o755)
        for name in SERVICES:
            rates = soak(name, folder, seconds / len(SERVICES), restlessness(chance))
            print(f"{name}: {rates}", flush=True)
        cycles = max(FEWEST, min(MOST, seconds))
        for name in COUNTING:
            for threads in (1, 2, 16):
                count_on(Builder(folder), name, threads, cycles, chance)
            print(f"{name}: {cycles} cycles under load, and every count was right", flush=True)


if __name__ == "__main__":
    main()
