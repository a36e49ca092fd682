"""What a requester that asks for everything costs a server: its own processor time for a command.

    python -m tests.soak.fleet_greedy [--rounds N] [--seconds S]

Two hosts, each with a server of Redis under redis-benchmark, and a requester that asks for every
metric of the library, on every process, again and again, by more requests than it may have. The
processor time that the kernel counts for a server is divided by the commands that the server
counts, alone and while it is measured, one after the other, several times. What is asked of the
budget is the slowdown of the worst server, by medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import weft
from tests.e2e.harness import eventually
from tests.fleets import Fleet, Host, harmed
from weft.fleet.blocking import FleetMeasurement
from weft.metrics.catalogue import library_files, metrics_in

BUDGET = 0.02
POLICY = f"""
budget = "10%"

[[allow]]
requester = "*"
processes = "*"
budget = "{100 * BUDGET:g}%"
"""
REQUESTS = 12
"""How many requests there are at a time: a requester may have four."""


@dataclass
class Tally:
    """What has become of the requests, and what it cost."""

    states: Counter[str] = field(default_factory=Counter)
    """How often a host has ended a request like that."""
    slowdowns: dict[str, list[float]] = field(default_factory=dict)
    """Of each server, how much more of its time a command took in each round."""

    @property
    def worst(self) -> float:
        return max(statistics.median(one) for one in self.slowdowns.values())


def everything() -> list[str]:
    """Every metric that comes with weft."""
    return sorted(name for file in library_files() for name in metrics_in(file))


def processor_time(pid: int) -> float:
    """The processor time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def costs(hosts: list[Host], seconds: float) -> dict[str, float]:
    """What a command costs each server, in seconds of a processor."""
    before = [(one.commands(), processor_time(one.redis.pid)) for one in hosts]
    time.sleep(seconds)
    after = [(one.commands(), processor_time(one.redis.pid)) for one in hosts]
    return {
        host.name: (new[1] - old[1]) / (new[0] - old[0])
        for host, old, new in zip(hosts, before, after, strict=True)
    }


@contextmanager
def busy(hosts: list[Host]) -> Iterator[None]:
    """Have the servers do all that they can."""
    with ExitStack() as stack:
        for host in hosts:
            command = ["redis-benchmark", "-s", str(host.socket), "-t", "get,set", "-c", "5", "-l"]
            running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            stack.callback(running.wait)
            stack.callback(running.kill)
        yield


def ask(asked: weft.Fleet) -> list[FleetMeasurement]:
    """Ask for everything, more often than one may."""
    return [asked.start(everything(), where="*", seconds=600) for _ in range(REQUESTS)]


def greedy(folder: Path, rounds: int, seconds: float) -> Tally:
    """Compare servers that are measured with servers that are not."""
    tally = Tally()
    with Fleet(folder, 2) as fleet:
        fleet.policy.write_text(POLICY)
        fleet.start_services()
        with busy(fleet.hosts), weft.Fleet(fleet.url_of(0), requester="greedy") as asked:
            for _ in range(rounds):
                alone = costs(fleet.hosts, seconds)
                running = ask(asked)
                measured = costs(fleet.hosts, seconds)
                for one in running:
                    one.stop()
                for one in running:
                    tally.states.update(host.state for host in one.result().hosts)
                for name, cost in measured.items():
                    tally.slowdowns.setdefault(name, []).append(cost / alone[name] - 1)
                print(
                    {name: f"{one[-1]:+.2%}" for name, one in tally.slowdowns.items()}, flush=True
                )
        for host in fleet.hosts:
            assert host.service is not None
            if not host.service.is_running:
                raise AssertionError(f"{host.name} has ended: {host.service.log.read_text()}")
        with suppress(TimeoutError):
            eventually(lambda: harmed(fleet) == [], 300)
        if hurt := harmed(fleet):
            raise AssertionError(f"these servers are not as they were: {hurt}")
    return tally


def main() -> int:
    """Measure as many rounds as the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weft-fleet-") as folder:
        tally = greedy(Path(folder), options.rounds, options.seconds)
    print(f"{len(everything())} metrics, {REQUESTS} requests: {dict(tally.states)}")
    for name, slowdowns in tally.slowdowns.items():
        shown = ", ".join(f"{one:+.1%}" for one in slowdowns)
        print(f"{name}: {statistics.median(slowdowns):+.1%} for each command ({shown})")
    print(f"worst: {tally.worst:+.1%}, and the budget is {BUDGET:.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
