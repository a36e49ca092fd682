"""Processes that are forked, that come late, or that others have left something in."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.e2e.harness import eventually, need
from tests.e2e.test_probes import needs_weaver
from tests.fleet_servers import PATIENCE, Nginx, Process, Redis
from tests.fleets import FUNCTION, SERVER, WEFT, Fleet
from weft.fleet.blocking import FleetMeasurement
from weft.fleet.results import FleetResult

pytestmark = [needs_weaver, pytest.mark.fleet, pytest.mark.watchdog(300)]

LEFT = "import sys, time, weft; s = weft.attach(int(sys.argv[1])); print('there'); time.sleep(1e6)"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A broker, and a host of programs of its own."""
    need(SERVER, "redis-server", "nginx")
    folder = tmp_path_factory.mktemp("fleet")
    for name in ("nginx", "redis-server"):
        program = shutil.which(name)
        assert program is not None
        shutil.copy(Path(program).resolve(), folder / name)
    with Fleet(folder, 0) as fleet:
        policy = folder / "all.toml"
        text = 'budget = "100%"\n[[allow]]\nrequester = "*"\nprocesses = "*"\nbudget = "50%"\n'
        policy.write_text(text)
        policy.chmod(0o600)
        options = ["--name", "h", "--policy", str(policy), "--only", f"exe={folder}/*"]
        command: list[str | Path] = [*WEFT, "host", "--nats", fleet.url_of(0), *options]
        host = Process(command, folder / "host.log", "h is ready")
        fleet.stack.callback(host.end, signal.SIGTERM)
        host.start()
        host.wait_until_ready()
        yield fleet


@pytest.fixture
def nginx(fleet: Fleet, tmp_path: Path) -> Iterator[Nginx]:
    server = Nginx(tmp_path, "n", program=fleet.folder / "nginx")
    try:
        server.start()
        yield server
    finally:
        server.process.end(signal.SIGTERM)


def measuring(asked: weft.Fleet, focus: str) -> FleetMeasurement:
    running = asked.start(f"calls@{focus}", seconds=600)
    eventually(lambda: running.now().hosts[0].state in ("measuring", "idle"), PATIENCE)
    return running


def stopped(running: FleetMeasurement) -> FleetResult:
    running.stop()
    return running.result()


def test_workers_that_are_forked_meanwhile_are_measured(fleet: Fleet, nginx: Nginx) -> None:
    with weft.Fleet(fleet.url_of(0)) as asked:
        for change in (nginx.reload, nginx.kill_worker):
            running = measuring(asked, Nginx.focus)
            nginx.begin_counting()
            nginx.serve(20)
            change()
            for _ in range(20):
                nginx.serve(5)
            nginx.end_counting()
            found = stopped(running)
            assert (found.totals[0].value, found.complete) == (nginx.expected, True)
            eventually(lambda: not nginx.is_harmed(), PATIENCE)


def test_workers_whose_master_was_killed_are_missing(fleet: Fleet, nginx: Nginx) -> None:
    with weft.Fleet(fleet.url_of(0)) as asked:
        running = measuring(asked, Nginx.focus)
        nginx.begin_counting()
        nginx.reload()
        nginx.serve(20)
        workers = nginx.workers
        try:
            nginx.process.end(signal.SIGKILL)
            nginx.serve(5)
            nginx.end_counting()
            found = stopped(running)
        finally:
            for worker in workers:
                os.kill(worker, signal.SIGTERM)
    (total,) = found.totals
    assert isinstance(total.value, int)
    assert 21 <= total.value <= nginx.expected
    assert not total.complete
    assert "missing processes (2): they still ran" in str(found.hosts[0].notes)


def test_what_a_killed_weft_has_left_in_a_child_does_not_hide_it(
    fleet: Fleet, nginx: Nginx
) -> None:
    other = subprocess.Popen(
        [sys.executable, "-uc", LEFT, str(nginx.workers[1])], stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    with other:
        assert other.stdout.readline() == b"there\n"
        other.kill()
    with weft.Fleet(fleet.url_of(0)) as asked:
        running = measuring(asked, Nginx.focus)
        nginx.begin_counting()
        for _ in range(20):
            nginx.serve(5)
        nginx.end_counting()
        found = stopped(running)
    assert found.hosts[0].processes == 3
    assert (found.totals[0].value, found.complete) == (nginx.expected, True)
    eventually(lambda: not nginx.is_harmed(), PATIENCE)


def test_what_comes_just_before_it_is_stopped_is_marked(fleet: Fleet, tmp_path: Path) -> None:
    with weft.Fleet(fleet.url_of(0)) as asked:
        running = measuring(asked, FUNCTION)
        server = Redis(tmp_path, "late", program=fleet.folder / "redis-server")
        try:
            server.start()
            server.serve(10)
            # It is looked for processes every second.
            found = stopped(running)
        finally:
            server.process.end(signal.SIGTERM)
    assert not found.complete
    assert "redis-server (" in str(found.hosts[0].notes)
