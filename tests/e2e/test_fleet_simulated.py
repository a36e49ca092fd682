"""Hosts whose measurements are made up, by the dozen: every total is known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import weft
from tests.e2e.harness import eventually, need
from tests.fleets import SERVER
from tests.simulated import ASKS, Simulation, name, total

pytestmark = [pytest.mark.fleet, pytest.mark.watchdog(300)]

HOSTS, PROCESSES = 20, 3
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "fleet.py"


def test_the_total_of_many_hosts_is_exact(tmp_path: Path) -> None:
    need(SERVER)
    with Simulation(tmp_path, HOSTS, PROCESSES) as simulation:
        with weft.Fleet(simulation.url, requester="tests") as fleet:
            running = fleet.start(map(str, ASKS), seconds=120, interval=0.2)
            eventually(lambda: all(one.state == "measuring" for one in running.now().hosts))
            running.stop()
            result = running.result()
        assert simulation.end() == []
    assert result.complete, result.hosts
    assert {one.host for one in result.hosts} == {name(number) for number in range(HOSTS)}
    for ask in ASKS:
        found = result.total(ask.metric, ask.focus)
        assert (found.value, found.hosts) == (total(ask.metric, range(HOSTS), PROCESSES), HOSTS)


def test_hosts_that_end_are_marked_and_the_others_are_exact(tmp_path: Path) -> None:
    need(SERVER)
    with Simulation(tmp_path, HOSTS, PROCESSES) as simulation:
        ended = {name(number) for number in simulation.numbers(1)}
        with weft.Fleet(simulation.url, requester="tests") as fleet:
            running = fleet.start(map(str, ASKS), seconds=120, interval=0.2, patience=2)
            eventually(lambda: all(one.state == "measuring" for one in running.now().hosts))
            simulation.parts[1].kill()
            running.stop()
            result = running.result()
    states = {one.host: one.state for one in result.hosts}
    assert {host for host, state in states.items() if state == "lost"} == ended
    assert not result.complete
    assert not any(one.complete for one in result.totals)
    for host in result.hosts:
        if host.host not in ended:
            (number,) = [one for one in range(HOSTS) if name(one) == host.host]
            assert host.complete, host
            found = {(one.metric, one.focus): one.value for one in host.totals}
            assert found == {
                (one.metric, one.focus): total(one.metric, [number], PROCESSES) for one in ASKS
            }


def test_the_benchmark_finds_its_totals_right() -> None:
    need(SERVER)
    options = ["--hosts", str(HOSTS), "--seconds", "1", "--settle", "0", "--only", "growth"]
    done = subprocess.run(
        [sys.executable, BENCHMARK, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "| right |" in done.stdout, done.stdout
