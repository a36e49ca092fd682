"""Fleets under random faults: totals are exact or say that they are not, and no server is harmed.

    python -m tests.soak.fleet [--schedules N] [--long] [--seed N]

As root, for each host is a network namespace. Each has servers of Redis, of nginx and in Go that
have work all the time, and its `weft host`. One request measures the requests of all of them, while
random things go wrong at random moments for random times:

- services of hosts, and the broker, are killed and started again; services are stopped for a while
- links are cut, lose packets, or are slow
- messages are repeated, old ones too, with and without what they say that they replace
- servers are ended and started again, workers of nginx are killed, or replaced by new ones

What the fleet says in the end is compared with what each server has counted itself. Schedule number
N of a seed is the first of that seed plus N.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.harness import eventually
from tests.fleet_servers import Nginx, Process, Server
from tests.fleets import Host, Namespaces, counted, finished, harmed, problems
from tests.matrix.commands import take_usual_signals

SHORT, LONG = 4, 100
SEED = 20261118
HOSTS = 8
SECONDS = 4.0
"""How long the servers are busy at least; things begin to go wrong in the first half."""
LONGEST = {"host": 3.0, "broker": 3.0, "pause": 10.0, "server": 2.0, "repeat": 5.0}
LONGEST_CUT = 5.0
LONGEST_CUT_LONG = 30.0
SHORTEST = 0.1
WHERE = "exe in (redis-server, nginx, counted_server)"
PATIENCE = 60.0
FRONT_PATIENCE = 20
"""How long a front end waits for hosts that do not answer, in seconds. One that was killed and saw
nothing of the request when it came back never does."""

KINDS = {
    "host": 3,
    "broker": 2,
    "pause": 2,
    "link": 4,
    "loss": 2,
    "slow": 1,
    "repeat": 3,
    "server": 2,
    "worker": 1,
    "reload": 1,
}
"""What goes wrong, and how often."""
OF_ALL = ("broker", "repeat")
LOSING = ("host", "server")
"""What is marked: something was not measured."""


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong, and is put right again."""

    kind: str
    number: int
    """Of which host."""
    at: float
    until: float
    which: int = 0
    """Which of its servers."""
    share: float = 0.0
    """Of the packets that are lost."""

    def __str__(self) -> str:
        what = self.kind if self.kind in OF_ALL else f"{self.kind} {self.number}"
        if self.kind == "server":
            what += "." + ("redis", "nginx", "go")[self.which]
        if self.kind == "loss":
            what += f" {100 * self.share:.0f}%"
        return f"{what} {self.at:.1f}-{self.until:.1f}"


def schedule(chance: random.Random, longest_cut: float) -> list[Fault]:
    """Two to seven faults; no two of the same thing, and most of them overlap."""
    found: dict[tuple[str, int], Fault] = {}
    for _ in range(chance.randint(2, 7)):
        (kind,) = chance.choices([*KINDS], [*KINDS.values()])
        number = 0 if kind in OF_ALL else chance.randint(1, HOSTS)
        at = chance.uniform(0.0, SECONDS / 2)
        longest = LONGEST.get(kind, longest_cut)
        # As many short ones as long ones.
        lasts = SHORTEST * (longest / SHORTEST) ** chance.random()
        found[kind, number] = Fault(
            kind, number, at, at + lasts, chance.randrange(3), chance.uniform(0.05, 0.6)
        )
    return [*found.values()]


class Faults:
    """Has things go wrong in a fleet."""

    def __init__(self, fleet: Namespaces, repeater: subprocess.Popen[str]) -> None:
        self._fleet = fleet
        self._repeater = repeater
        self._paused: dict[int, int] = {}

    def fail(self, fault: Fault) -> None:
        fleet, number = self._fleet, fault.number
        if fault.kind == "broker":
            fleet.broker.end(signal.SIGKILL)
        elif fault.kind == "repeat":
            self._tell("go")
        elif fault.kind == "link":
            fleet.cut(number)
        elif fault.kind == "loss":
            fleet.lose(number, fault.share)
        elif fault.kind == "slow":
            fleet.slow(number, 32_000)
        elif fault.kind == "host":
            self._service(fault).end(signal.SIGKILL)
        elif fault.kind == "pause":
            self._service(fault).send(signal.SIGSTOP)
        elif fault.kind == "server":
            server = self._server(fault)
            server.lock.acquire()
            server.end()
        elif fault.kind in ("worker", "reload"):
            nginx = self._fleet.hosts[number - 1].servers[1]
            assert isinstance(nginx, Nginx)
            with nginx.lock:
                (nginx.kill_worker if fault.kind == "worker" else nginx.reload)()

    def mend(self, fault: Fault) -> None:
        fleet, number = self._fleet, fault.number
        if fault.kind == "broker":
            fleet.broker.start()
            fleet.broker.wait_until_ready()
        elif fault.kind == "repeat":
            self._tell("rest")
        elif fault.kind == "link":
            fleet.mend(number)
        elif fault.kind == "loss":
            fleet.lose_nothing(number)
        elif fault.kind == "slow":
            fleet.slow_no_more(number)
        elif fault.kind == "host":
            self._service(fault).start()
        elif fault.kind == "pause":
            self._service(fault).send(signal.SIGCONT)
        elif fault.kind == "server":
            server = self._server(fault)
            server.start()
            server.lock.release()

    def go_wrong(self, faults: list[Fault]) -> None:
        """Let things go wrong when it is time, and be put right; then all of them are."""
        events = [(one.at, self.fail, one) for one in faults]
        events += [(one.until, self.mend, one) for one in faults]
        began = time.monotonic()
        for at, act, fault in sorted(events, key=lambda event: event[0]):
            time.sleep(max(began + at - time.monotonic(), 0.0))
            act(fault)
        time.sleep(max(began + SECONDS - time.monotonic(), 0.0))

    def _service(self, fault: Fault) -> Process:
        return service_of(self._fleet.hosts[fault.number - 1])

    def _server(self, fault: Fault) -> Server:
        return self._fleet.hosts[fault.number - 1].servers[fault.which]

    def _tell(self, word: str) -> None:
        assert self._repeater.stdin is not None
        self._repeater.stdin.write(word + "\n")
        self._repeater.stdin.flush()


def service_of(host: Host) -> Process:
    assert host.service is not None
    return host.service


@contextmanager
def repeating(fleet: Namespaces, seed: int) -> Iterator[subprocess.Popen[str]]:
    """Have something on the broker's machine that repeats messages when it is told to."""
    command = [*fleet.inside(0), sys.executable, "-m", "tests.soak.repeating"]
    with subprocess.Popen(
        [*command, f"nats://127.0.0.1:{fleet.port}", str(seed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent.parent,
    ) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("what repeats messages has ended")
            yield process
        finally:
            process.kill()


def soak(
    folder: Path, schedules: int, seed: int, longest_cut: float = LONGEST_CUT
) -> tuple[Counter[str], list[str]]:
    """Run random schedules, and return what came of them: how many of what, and what was wrong."""
    tally: Counter[str] = Counter()
    wrong: list[str] = []
    with Namespaces(folder, HOSTS) as fleet:
        fleet.start_services()
        with repeating(fleet, seed) as repeater:
            # Programs that nobody has looked at before take longer to weave.
            finished(fleet.begin("--where", WHERE, "--for", "600"), stop=True)
            faults = Faults(fleet, repeater)
            for number in range(seed, seed + schedules):
                planned = schedule(random.Random(number), longest_cut)
                text = f"{number}: {', '.join(map(str, planned))}"
                print(text, flush=True)
                began = time.monotonic()
                found = measured(fleet, faults, planned)
                bad = problems(fleet, found) + unmarked(fleet, planned, found)
                bad += cleared(fleet)
                wrong += [f"{text}: {one}" for one in bad]
                tally["schedules"] += 1
                tally["wrong"] += bool(bad)
                tally.update(f"{one.kind} faults" for one in planned)
                count(tally, fleet, planned, found)
                totals = ", ".join(f"{one['value']:,}" for one in found["totals"])
                took = time.monotonic() - began
                print(f"    {totals} requests, {took:.0f} s", *bad, sep="\n    ", flush=True)
        for host in fleet.hosts:
            service_of(host).end(signal.SIGTERM)
        wrong += [f"{one} is not as it was" for one in harmed(fleet)]
    return tally, wrong


def measured(fleet: Namespaces, faults: Faults, planned: list[Fault]) -> dict[str, Any]:
    """What the fleet measures while things go wrong."""
    running = fleet.begin("--where", WHERE, "--for", "600", "--patience", str(FRONT_PATIENCE))
    with counted(fleet):
        faults.go_wrong(planned)
    found = finished(running, stop=True)
    for host in fleet.hosts:
        service_of(host).wait_until_ready()
    return found


def unmarked(fleet: Namespaces, planned: list[Fault], found: dict[str, Any]) -> list[str]:
    """What must have been marked, for something was not measured, and was not."""
    told = {one["host"]: one for one in found["hosts"]}
    wrong = []
    for one in planned:
        name = fleet.hosts[one.number - 1].name
        if one.kind in LOSING and all(each["complete"] for each in told[name]["totals"]):
            wrong.append(f"{one}, and {name} is said to be complete")
    return wrong


def cleared(fleet: Namespaces) -> list[str]:
    """Wait until nothing is measured any more, and say which servers are not as they were."""
    for one in fleet.requests():
        # It has ended, and somebody has repeated it.
        fleet.ask("stop", one["id"])
    hurt: list[str] = []

    def are_unharmed() -> bool:
        hurt[:] = harmed(fleet)
        return not hurt

    try:
        eventually(are_unharmed, PATIENCE)
    except TimeoutError:
        return [f"{one} is not as it was" for one in hurt]
    return []


def count(
    tally: Counter[str], fleet: Namespaces, planned: list[Fault], found: dict[str, Any]
) -> None:
    """Count which series are exact, and which are said to be."""
    lost = {fleet.hosts[one.number - 1].name for one in planned if one.kind in LOSING}
    told = {one["host"]: one for one in found["hosts"]}
    for host in fleet.hosts:
        values = {one["focus"]: one for one in told[host.name]["totals"]}
        marked = 0
        for server in host.servers:
            own = values.get(server.focus, {"value": 0, "complete": False})
            is_exact = own["value"] == server.expected
            tally["series"] += 1
            tally["exact series"] += is_exact
            tally["series said to be complete"] += own["complete"]
            marked += not own["complete"]
        if marked and host.name not in lost:
            tally["series marked though nothing was killed there"] += marked
            print(f"    {host.name}: {'; '.join(told[host.name]['notes'])[:300]}", flush=True)


def main() -> int:
    """Run as many schedules as the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--long", action="store_true", help=f"{LONG} schedules instead of {SHORT}")
    parser.add_argument("--schedules", type=int)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    take_usual_signals()
    for one in (signal.SIGINT, signal.SIGTERM):
        # Nothing is left behind: no namespace, no server.
        signal.signal(one, signal.default_int_handler)
    number = options.schedules or (LONG if options.long else SHORT)
    longest = LONGEST_CUT_LONG if options.long else LONGEST_CUT
    with tempfile.TemporaryDirectory(prefix="weft-fleet-") as folder:
        tally, wrong = soak(Path(folder), number, options.seed, longest)
    print(*wrong, sep="\n")
    print(", ".join(f"{count} {what}" for what, count in tally.items()))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
