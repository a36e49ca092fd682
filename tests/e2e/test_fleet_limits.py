"""What ends or refuses a request by itself: guards, the pressure on a machine, quotas, a moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.e2e.harness import code, eventually, need
from tests.e2e.test_probes import needs_weaver
from tests.fleet_servers import Load
from tests.fleets import FUNCTION, SERVER, WEFT, Fleet, Process, finished, harmed, redis_cli
from tests.soak.fleet import service_of
from weft.errors import InvalidArgument
from weft.fleet.health import pressure

pytestmark = [needs_weaver, pytest.mark.fleet, pytest.mark.watchdog(300)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    need(SERVER, "redis-server", "redis-benchmark", "redis-cli")
    with Fleet(tmp_path_factory.mktemp("fleet"), 2) as fleet:
        fleet.start_services()
        yield fleet


@contextmanager
def another(fleet: Fleet, folder: Path, policy: str, only: str, name: str) -> Iterator[Process]:
    """One more host, with a policy of its own."""
    file = folder / "policy.toml"
    file.write_text(policy)
    file.chmod(0o600)
    options = ["--name", name, "--policy", str(file), "--only", only]
    command = [*WEFT, "host", "--nats", fleet.url_of(0), *options]
    host = Process(command, folder / "host.log", f"{name} is ready")
    try:
        host.start()
        host.wait_until_ready()
        yield host
    finally:
        host.end(signal.SIGTERM)


def noted(host: Process, request: str) -> list[dict[str, Any]]:
    """The lines of the audit log, which goes to standard error, about a request."""
    lines = [one for one in host.log.read_text().splitlines() if one.startswith("{")]
    return [one for one in map(json.loads, lines) if one.get("request") == request]


# Guards.


def test_a_guard_ends_a_request_on_all_hosts(fleet: Fleet) -> None:
    first, second = fleet.hosts
    with weft.Fleet(fleet.url_of(0)) as asked:
        running = asked.start(
            f"calls@{FUNCTION}",
            where="exe=redis-server",
            seconds=600,
            guards=[f"calls@{FUNCTION} < 1000"],
        )
        eventually(lambda: {one.state for one in running.now().hosts} == {"measuring"}, 60)
        redis_cli(first.socket, "-r", "500", "ping")
        redis_cli(second.socket, "-r", "2000", "ping")
        found = running.result()
    assert found.halted == running.halted
    assert f"stopped at 2 of 2 hosts: h2: calls@{FUNCTION} < 1000 is violated" in found.halted
    assert [one.state for one in found.hosts] == ["stopped", "violated"]
    assert "is violated: it is " in found.hosts[1].notes[0]
    assert found.document()["halted"] == found.halted
    # What was measured until then is told.
    assert found.hosts[0].totals[0].value in range(500, 510)
    assert harmed(fleet) == []


def test_a_guard_stops_a_canary_at_its_first_host(fleet: Fleet) -> None:
    with Load([one.servers[0] for one in fleet.hosts]), weft.Fleet(fleet.url_of(0)) as asked:
        running = asked.start(
            f"latency@{FUNCTION}",
            where="exe=redis-server",
            seconds=600,
            first="1 then all",
            rest=60,
            guards=[f"latency.p99@{FUNCTION} < 1ns"],
        )
        found = running.result()
    assert "stopped at 1 of 2 hosts: h1: " in running.halted
    assert [one.state for one in found.hosts] == ["violated", "unasked"]
    assert running.request.id not in [one.get("request") for one in fleet.hosts[1].decisions()]


def test_a_guard_that_holds_changes_nothing(fleet: Fleet) -> None:
    words = ("--guard", f"calls@{FUNCTION} < 1000000000", "--guard", f"calls@{FUNCTION} >= 0")
    found = finished(fleet.begin("--where", "exe=redis-server", "--for", "600", *words), stop=True)
    assert "halted" not in found
    assert [one["state"] for one in found["hosts"]] == ["stopped"] * 2


def test_a_guard_that_cannot_be_decided_ends_it(fleet: Fleet) -> None:
    done = subprocess.run(
        fleet.fleet(
            *("run", "-m", f"calls@{FUNCTION}", "--where", "exe=redis-server", "--for", "600"),
            *("--guard", f"calls@{FUNCTION} < 2ms"),
        ),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0
    assert "cannot be decided: it is no time" in done.stderr
    assert "violated" in done.stdout


def test_a_guard_of_what_is_not_measured_is_refused(fleet: Fleet) -> None:
    with weft.Fleet(fleet.url_of(0)) as asked:
        before = len(asked.status())
        with pytest.raises(InvalidArgument, match="not measured"):
            asked.start("calls", guards=["latency.p99 < 1ms"])
        assert len(asked.status()) == before


# Pressure.


@contextmanager
def busy_processors() -> Iterator[None]:
    """Have more to do than there are processors, and leave these to whoever else wants them."""
    number = 2 * (os.cpu_count() or 1) + 2
    spinning = [
        subprocess.Popen(["nice", "-n", "19", sys.executable, "-c", "while True: pass"])
        for _ in range(number)
    ]
    try:
        yield
    finally:
        for one in spinning:
            one.kill()
            one.wait()


@pytest.mark.skipif(pressure("cpu") is None, reason="this kernel tells no pressure")
def test_a_machine_under_pressure_sheds_and_refuses(fleet: Fleet, tmp_path: Path) -> None:
    server = fleet.hosts[0].redis
    policy = '[health]\ncpu = "{}%"\n[[allow]]\nrequester = "*"\nprocesses = "*"\nbudget = "50%"\n'
    only = f"pid={server.pid}"
    service_of(fleet.hosts[0]).end(signal.SIGTERM)
    try:
        with weft.Fleet(fleet.url_of(0)) as asked, busy_processors():
            with another(fleet, tmp_path, policy.format(30), only, "a-tired") as host:
                running = asked.start(f"calls@{FUNCTION}", where="host=a-tired", seconds=600)
                shed = running.result()
                # It may have been so before, on a busy machine.
                assert shed.hosts[0].state in ("shed", "refused")
                assert "the machine is under pressure: processes wait for cpu" in str(shed.hosts)
                assert "and 30% are allowed" in str(shed.hosts[0].notes)
                assert not shed.complete
                lines = noted(host, running.request.id)
                assert lines[-1]["outcome"] in ("ended", "refused")
                assert any("under pressure" in one["why"] for one in lines if "why" in one)
            # Some kernels stop counting although processes wait: what they say falls then, so less
            # is allowed than they said a moment ago.
            with another(fleet, tmp_path, policy.format(1), only, "a-weary") as host:
                again = asked.start(
                    f"calls@{FUNCTION}", where="exe=redis-server", seconds=600, first="1 then all"
                )
                refused = again.result()
                assert "stopped at 1 of 2 hosts: a-weary has refused it" in again.halted
                assert [one.state for one in refused.hosts] == ["refused", "unasked"]
                (line,) = noted(host, again.request.id)
                assert (line["outcome"], "under pressure" in line["why"]) == ("refused", True)
        assert code(server.pid) == fleet.hosts[0].code
    finally:
        service_of(fleet.hosts[0]).start()
        service_of(fleet.hosts[0]).wait_until_ready()


# Quotas.


def test_a_requester_has_a_quota_of_processes(fleet: Fleet, tmp_path: Path) -> None:
    pids = [host.redis.pid for host in fleet.hosts]
    policy = '[[allow]]\nrequester = "*"\nprocesses = "*"\nbudget = "50%"\nmost_processes = 1\n'
    for one in fleet.hosts:
        service_of(one).end(signal.SIGTERM)
    try:
        only = f"pid in ({pids[0]}, {pids[1]})"
        with (
            another(fleet, tmp_path, policy, only, "quota") as host,
            weft.Fleet(fleet.url_of(0), requester="one") as asked,
            weft.Fleet(fleet.url_of(0), requester="other") as other,
        ):
            running = asked.start(f"calls@{FUNCTION}", where="host=quota", seconds=600)
            eventually(lambda: running.now().hosts[0].state == "measuring", 60)
            # The same process counts once, and others have a quota of their own.
            which = f"pid={min(pids)}"
            again = asked.run(f"calls@{FUNCTION}", where=which, seconds=0.5)
            assert (again.hosts[0].state, again.hosts[0].processes) == ("done", 1)
            which = f"pid={max(pids)}"
            its = other.run(f"calls@{FUNCTION}", where=which, seconds=0.5)
            assert (its.hosts[0].state, its.hosts[0].processes) == ("done", 1)
            running.stop()
            found = running.result()
        assert found.hosts[0].processes == 1
        said = "one has 1 measured already, of 1 at a time"
        assert said in str(found.hosts[0].notes)
        assert not found.complete
        lines = noted(host, running.request.id)
        assert [one["outcome"] for one in lines] == ["allowed", "allowed", "refused", "ended"]
        assert lines[2]["pid"] == max(pids)
        assert said in lines[2]["why"]
        assert lines[1]["budget"] == 0.5
    finally:
        for one in fleet.hosts:
            service_of(one).start()
            service_of(one).wait_until_ready()


# A moment.


def test_until_a_moment(fleet: Fleet) -> None:
    end = datetime.now(timezone.utc) + timedelta(minutes=10)
    until = end.strftime("%Y-%m-%dT%H:%M:%SZ")
    running = fleet.begin("--where", "exe=redis-server", "--until", until)
    (asked,) = [one for one in fleet.ask("status")["requests"] if one["age"] < 100]
    assert 400 < asked["seconds"] <= 600
    finished(running, stop=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--until", "14:30", "--for", "10s"], "--for and --until are given"),
        (["--until", "soon"], "no moment"),
        (["--until", "2001-01-01T00:00Z"], "is over"),
        (["--until", "2126-01-01T00:00Z"], "seconds is no number from 0 to 86400"),
        (["--guard", "calls"], "no guard"),
        (["--guard", "cals < 1"], "not measured"),
    ],
)
def test_limits_that_make_no_sense(fleet: Fleet, words: list[str], said: str) -> None:
    done = subprocess.run(
        fleet.fleet("run", "-m", "calls", *words), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
