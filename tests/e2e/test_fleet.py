"""One request measures the processes of several hosts: exactly, or it says what is missing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import weft
from tests import fleets
from tests.e2e.harness import code, eventually, need
from tests.e2e.test_probes import needs_weaver
from tests.fleet_servers import Process
from tests.fleets import (
    FUNCTION,
    SERVER,
    WEFT,
    Fleet,
    Host,
    counted,
    finished,
    free_port,
    harmed,
    problems,
    redis_cli,
)
from tests.soak import fleet as soak
from weft.errors import InvalidArgument
from weft.fleet.blocking import FleetMeasurement
from weft.fleet.broker import Access, Broker, bucket_subject
from weft.fleet.names import HOSTS, REQUESTS, host_key, request_key
from weft.fleet.protocol import Ask, HostRecord, Request

# What is complete depends on how busy the machine is: hosts that get no turn for seconds say so.
pytestmark = [needs_weaver, pytest.mark.fleet, pytest.mark.watchdog(300)]

WHERE = ("--where", "exe=redis-server")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    need(SERVER, "redis-server", "redis-benchmark", "redis-cli")
    with Fleet(tmp_path_factory.mktemp("fleet"), 2) as fleet:
        fleet.start_services()
        yield fleet


def service(host: Host) -> Process:
    assert host.service is not None
    return host.service


def told(found: dict[str, Any], host: Host) -> dict[str, Any]:
    (own,) = [one for one in found["hosts"] if one["host"] == host.name]
    assert isinstance(own, dict)
    return own


def work(host: Host, times: int = 100) -> None:
    """Have a server process so many commands."""
    redis_cli(host.socket, "-r", str(times), "ping")


def url(fleet: Fleet) -> str:
    return fleet.url_of(0)


def refused(host: Host, request: str) -> str:
    """Why a request was refused, once that was noted."""
    found: list[str] = []

    def is_noted() -> bool:
        found[:] = [
            one["why"]
            for one in host.decisions()
            if one.get("request") == request and one["outcome"] == "refused"
        ]
        return bool(found)

    eventually(is_noted, 60)
    return found[0]


def measuring(asked: weft.Fleet, *metrics: str, where: str, **more: Any) -> FleetMeasurement:
    """A request that all hosts measure, or have refused."""
    running = asked.start(metrics, where=where, seconds=600, **more)
    eventually(lambda: {one.state for one in running.now().hosts} <= {"measuring", "refused"}, 60)
    return running


def assert_serving(asked: weft.Fleet) -> None:
    """The hosts measure what they are asked for."""
    running = measuring(asked, f"calls@{FUNCTION}", where=WHERE[1])
    running.stop()
    found = running.result()
    assert [one.state for one in found.hosts] == ["stopped"] * len(found.hosts)
    assert found.totals[0].hosts == len(found.hosts) > 0


# Totals.


def test_totals_are_what_the_servers_have_counted(fleet: Fleet) -> None:
    running = fleet.begin("--where", "exe=redis-server and label.zone=b", "--for", "600")
    with counted(fleet):
        for host in fleet.hosts:
            work(host, 5000)
    found = finished(running, stop=True)
    assert problems(fleet, found) == []
    assert found["schema"] == 1
    (total,) = found["totals"]
    assert set(total) == {"metric", "focus", "value", "unit", "hosts", "complete"}
    assert (total["metric"], total["focus"], total["unit"]) == ("calls", FUNCTION, "calls")
    assert total["hosts"] == 2
    assert [one["processes"] for one in found["hosts"]] == [1, 1]
    assert [one["state"] for one in found["hosts"]] == ["stopped"] * 2


def test_a_broker_that_goes_and_comes_back_changes_nothing(fleet: Fleet) -> None:
    running = fleet.begin(*WHERE, "--for", "600", "--patience", "60")
    with counted(fleet):
        fleet.broker.end(signal.SIGKILL)
        for host in fleet.hosts:
            work(host, 5000)
        fleet.broker.start()
        fleet.broker.wait_until_ready()
    found = finished(running, stop=True)
    assert problems(fleet, found) == []
    assert all(told(found, host)["totals"][0]["value"] > 5000 for host in fleet.hosts)


def test_a_request_is_stopped_although_the_broker_is_away(fleet: Fleet) -> None:
    with weft.Fleet(url(fleet)) as asked:
        running = measuring(asked, f"calls@{FUNCTION}", where=WHERE[1], patience=60)
        fleet.broker.end(signal.SIGKILL)
        running.stop()
        fleet.broker.start()
        fleet.broker.wait_until_ready()
        found = running.result()
    assert [one.state for one in found.hosts] == ["stopped"] * 2


def test_a_host_that_was_killed_says_so(fleet: Fleet) -> None:
    killed, other = fleet.hosts
    running = fleet.begin(*WHERE, "--for", "600")
    with counted(fleet):
        service(killed).end(signal.SIGKILL)
        work(killed)
        service(killed).start()
        service(killed).wait_until_ready()
        eventually(lambda: "has ended in between" in str(fleet.ask("status")), 60)
    found = finished(running, stop=True)
    assert problems(fleet, found) == []
    own = told(found, killed)
    assert not own["totals"][0]["complete"]
    assert "started anew" in str(own["notes"])
    assert told(found, other)["totals"][0]["complete"]
    assert harmed(fleet) == []


def test_what_a_killed_host_has_left_is_named_by_another(fleet: Fleet, tmp_path: Path) -> None:
    """One that is not for its processes leaves these alone, and says so."""
    killed, other = fleet.hosts
    options = ["--name", "narrow", "--only", f"pid={other.redis.pid}"]
    command = [*WEFT, "host", "--nats", url(fleet), "--policy", str(fleet.policy), *options]
    narrow = Process(command, tmp_path / "host.log", "narrow is ready")
    with weft.Fleet(url(fleet)) as asked:
        running = measuring(asked, f"calls@{FUNCTION}", where=f"host={killed.name}")
        service(killed).end(signal.SIGKILL)
        try:
            narrow.start()
            narrow.wait_until_ready()
            eventually(lambda: "has left probes" in narrow.log.read_text())
            assert f"to now: {killed.redis.pid};" in narrow.log.read_text()
            assert code(killed.redis.pid) != killed.code
        finally:
            narrow.end(signal.SIGTERM)
            service(killed).start()
            service(killed).wait_until_ready()
        running.stop()
        running.result()
    eventually(lambda: harmed(fleet) == [], 60)


def test_a_host_that_was_told_to_end_tells_what_it_has_measured(fleet: Fleet) -> None:
    ended = fleet.hosts[0]
    running = fleet.begin(*WHERE, "--for", "600")
    (server,) = ended.servers
    server.begin_counting()
    work(ended)
    server.end_counting()
    service(ended).end(signal.SIGTERM)
    found = finished(running, stop=True)
    assert service(ended).process is not None
    own = told(found, ended)
    assert own["totals"][0]["value"] == server.expected
    assert not own["totals"][0]["complete"]
    assert own["notes"] == ["the host's service was stopped"]
    assert code(ended.redis.pid) == ended.code
    service(ended).start()
    service(ended).wait_until_ready()


def test_a_request_ends_although_nobody_waits_for_it(fleet: Fleet) -> None:
    running = fleet.begin(*WHERE, "--for", "4")
    running.kill()
    eventually(lambda: set(fleet.states().values()) <= {"done"}, 60)
    eventually(lambda: harmed(fleet) == [], 60)


def test_a_process_that_comes_late_is_marked(fleet: Fleet, tmp_path: Path) -> None:
    name = "late-host"
    options = ["--name", name, "--policy", str(fleet.policy), "--only", "exe=*late-redis"]
    command = [*WEFT, "host", "--nats", url(fleet), *options]
    other = Process(command, tmp_path / "host.log", f"{name} is ready")
    program = tmp_path / "late-redis"
    program.symlink_to("/usr/bin/redis-server")
    server = Process(
        [program, "--port", "0", "--unixsocket", tmp_path / "sock", "--save", ""],
        tmp_path / "redis.log",
        "eady to accept connections",
    )
    policy = tmp_path / "policy.toml"
    text = 'budget = "100%"\n[[allow]]\nrequester = "*"\nprocesses = "*"\nbudget = "50%"\n'
    policy.write_text(text)
    policy.chmod(0o600)
    other.command[other.command.index(str(fleet.policy))] = str(policy)
    try:
        other.start()
        other.wait_until_ready()
        with weft.Fleet(url(fleet)) as asked:
            running = asked.start("calls@processCommand", where=f"host={name}", seconds=600)
            eventually(lambda: running.now().hosts[0].state == "idle", 60)
            server.start()
            server.wait_until_ready()
            eventually(lambda: running.now().hosts[0].processes == 1, 60)
            server.end(signal.SIGTERM)
            running.stop()
            found = running.result()
        assert "after it had started" in found.hosts[0].notes[0]
        assert not found.complete
    finally:
        server.end()
        other.end(signal.SIGTERM)


def test_two_hosts_of_one_machine_measure_a_process_once(fleet: Fleet, tmp_path: Path) -> None:
    first = fleet.hosts[0]
    only = f"pid={first.redis.pid}"
    options = ["--name", "twin", "--policy", str(fleet.policy), "--only", only]
    twin = Process([*WEFT, "host", "--nats", url(fleet), *options], tmp_path / "log", "is ready")
    try:
        twin.start()
        twin.wait_until_ready()
        with weft.Fleet(url(fleet)) as asked:
            where = f"host in (twin, {first.name})"
            running = asked.start(f"calls@{FUNCTION}", where=where, seconds=600)
            eventually(
                lambda: {one.state for one in running.now().hosts} == {"measuring", "idle"}, 60
            )
            before = first.commands()
            work(first)
            after = first.commands()
            running.stop()
            found = running.result()
        assert found.totals[0].value == after - before + 1
        assert found.totals[0].hosts == 1
    finally:
        twin.end(signal.SIGTERM)


def test_a_forked_child_is_counted_once(fleet: Fleet) -> None:
    host = fleet.hosts[0]
    with weft.Fleet(url(fleet)) as asked:
        running = measuring(asked, f"calls@{FUNCTION}", where=f"host={host.name}")
        before = host.commands()
        redis_cli(host.socket, "bgsave")
        eventually(lambda: "rdb_bgsave_in_progress:0" in redis_cli(host.socket, "info"), 60)
        after = host.commands()
        running.stop()
        found = running.result()
    assert found.hosts[0].processes == 1
    assert found.totals[0].value == after - before + 1


def test_several_requests_measure_the_same_function(fleet: Fleet) -> None:
    host = fleet.hosts[0]
    with weft.Fleet(url(fleet)) as asked:
        where = f"host={host.name}"
        one = measuring(asked, f"calls@{FUNCTION}", where=where)
        work(host, 7)
        other = asked.start([f"calls@{FUNCTION}", f"latency@{FUNCTION}"], where=where, seconds=600)
        eventually(lambda: other.now().hosts[0].state == "measuring", 60)
        before = host.commands()
        work(host)
        after = host.commands()
        other.stop()
        second = other.result()
        work(host, 5)
        one.stop()
        first = one.result()
    assert second.total("calls", FUNCTION).value == after - before + 1
    latency = second.total("latency", FUNCTION)
    assert isinstance(latency.value, weft.Histogram)
    # On a busy machine it may have been too dear for the budget.
    assert latency.value.count == after - before + 1 or not latency.complete
    assert first.total("calls", FUNCTION).value == after - before + 7 + 5 + 1
    assert code(host.redis.pid) == host.code


def test_what_cannot_be_measured_is_marked(fleet: Fleet) -> None:
    host = fleet.hosts[0]
    own, unknown = "/Code/redis-server/ping*", "/Code/redis-server/unknown"
    with weft.Fleet(url(fleet)) as asked:
        foci = (FUNCTION, own, unknown, "/Code/nginx/ngx_http_create_request")
        running = measuring(asked, *(f"calls@{one}" for one in foci), where=f"host={host.name}")
        before = host.commands()
        work(host)
        after = host.commands()
        running.stop()
        found = running.result()
    totals = [found.total("calls", one) for one in foci]
    assert [one.complete for one in totals] == [True, True, False, False]
    assert [one.value for one in totals] == [after - before + 1, 100, None, None]
    assert not found.complete
    notes = str(found.hosts[0].notes)
    assert f"no function matches {unknown}" in notes
    assert "ngx_http_create_request: no process has that module" in notes


def test_texts_are_woven_if_they_only_read(fleet: Fleet) -> None:
    host = fleet.hosts[0]
    with weft.Fleet(url(fleet)) as asked:
        where = f"host={host.name}"
        reads = measuring(asked, probes=["entry processCommand { n++ }"], where=where)
        before = host.commands()
        work(host)
        after = host.commands()
        reads.stop()
        assert reads.result().total("n").value == after - before + 1
        calls = "entry processCommand { n += getpid() }"
        found = asked.run(probes=[calls], where=where, seconds=0.5)
        assert found.hosts[0].state == "refused"
        assert "change what a process does" in found.hosts[0].notes[0]
        assert not found.complete
        with pytest.raises(InvalidArgument, match="cannot change what a process does"):
            asked.run(probes=["entry processCommand { $arg[0] = 1 }"], where=where, seconds=0.5)


def test_what_a_program_does_not_have_is_not_complete(fleet: Fleet) -> None:
    with weft.Fleet(url(fleet)) as asked:
        where = f"host={fleet.hosts[0].name}"
        running = measuring(asked, f"calls@{FUNCTION}", "calls@nothingLikeThis", where=where)
        running.stop()
        found = running.result()
    missing = found.total("calls", "nothingLikeThis")
    assert (missing.value, missing.hosts, missing.complete) == (None, 0, False)
    assert "nothingLikeThis" in str(found.hosts[0].notes)
    assert not found.complete


def test_the_result_as_a_table(fleet: Fleet, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file, words = tmp_path / "out.parquet", ("-m", f"calls@{FUNCTION}", *WHERE, "--for", "1")
    subprocess.run(fleet.fleet("run", *words, "-o", str(file)), check=True, timeout=90)
    rows = parquet.read_table(file).to_pylist()
    assert [(one["host"], one["metric"]) for one in rows] == [("h1", "calls"), ("h2", "calls")]
    assert {(one["state"], one["label.zone"]) for one in rows} == {("done", "b")}
    command = fleet.fleet("run", *words, "--format", "csv")
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=90).stdout
    head, *lines = said.splitlines()
    assert head.startswith(
        "host,state,label.zone,metric,focus,unit,complete,status,low,high,key,value,"
    )
    assert [line.split(",")[:4] for line in lines] == [
        ["h1", "done", "b", "calls"],
        ["h2", "done", "b", "calls"],
    ]


def test_with_asyncio(fleet: Fleet) -> None:
    async def measured() -> int:
        async with weft.AsyncFleet(url(fleet)) as asked:
            names = [one.record.host for one in await asked.hosts()]
            assert names == [host.name for host in fleet.hosts]
            request = asked.request(f"calls@{FUNCTION}", where=WHERE[1], seconds=600)
            running = await asked.start(request)
            async for found in running.updates(0.1):
                if {one.state for one in found.hosts} == {"measuring"}:
                    await running.stop()
            return len((await running.result()).hosts)

    assert asyncio.run(measured()) == 2


def test_a_few_hosts_are_asked_first(fleet: Fleet) -> None:
    with weft.Fleet(url(fleet)) as asked:
        running = asked.start(
            f"calls@{FUNCTION}", where=WHERE[1], seconds=600, first="1 then all", rest=0.5
        )
        eventually(lambda: [one.state for one in running.now().hosts] == ["measuring"] * 2, 60)
        running.stop()
        found = running.result()
    assert running.halted == ""
    assert [one.state for one in found.hosts] == ["stopped"] * 2
    began = [
        next(one["when"] for one in host.decisions() if one["request"] == running.request.id)
        for host in fleet.hosts
    ]
    assert began == sorted(began)


def test_no_more_hosts_are_asked_if_the_first_cannot_take_it(fleet: Fleet, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("")
    policy.chmod(0o600)
    options = ["--name", "a-first", "--policy", str(policy), "--only", "pid=1"]
    closed = Process([*WEFT, "host", "--nats", url(fleet), *options], tmp_path / "log", "is ready")
    try:
        closed.start()
        closed.wait_until_ready()
        with weft.Fleet(url(fleet)) as asked:
            running = asked.start(f"calls@{FUNCTION}", seconds=600, first="1 then all")
            found = running.result()
        assert "stopped at 1 of 3 hosts: a-first has refused it" in running.halted
        assert [one.state for one in found.hosts] == ["refused", "unasked", "unasked"]
        assert not found.complete
        for host in fleet.hosts:
            assert running.request.id not in [one["request"] for one in host.decisions()]
    finally:
        closed.end(signal.SIGTERM)


# What is refused.


def stored(fleet: Fleet, *messages: tuple[str, bytes]) -> None:
    """Store something in the bucket of requests, whatever it is."""

    async def store() -> None:
        broker = Broker(Access(url(fleet)))
        await broker.connect(10)
        for key, data in messages:
            await broker.store(bucket_subject(REQUESTS, key), data, 0)
        await broker.close()

    asyncio.run(store())


def request(name: str, **more: Any) -> Request:
    return replace(
        Request(name, "tests", (Ask("calls", FUNCTION),), "exe=redis-server", 1.0), **more
    )


def test_what_is_no_request_is_refused_and_named(fleet: Fleet) -> None:
    newer = json.loads(request("newer").encode()) | {"v": 2}
    stored(
        fleet,
        (request_key("tests", "garbage"), b"\xff{"),
        (request_key("tests", "newer"), json.dumps(newer).encode()),
        (request_key("tests", "forged"), request("forged", requester="root").encode()),
        (request_key("tests", "long"), request("long", seconds=4000.0).encode()),
        (request_key("tests", "where"), request("where", where="((").encode()),
        (request_key("tests", "mdl"), request("mdl", texts=("metric {",)).encode()),
        (request_key("tests", "import"), request("import", texts=('import "/x";',)).encode()),
        (request_key("tests", "weaver"), request("weaver", weaver="clone").encode()),
        ("tests.a.b.c", b"{}"),
    )
    why = {
        "garbage": "no JSON",
        "newer": "version 2 of the protocol",
        "forged": "it says that it is of root",
        "long": "longer than the 3600 s",
        "where": "no selector",
        "mdl": "MDL",
        "import": "cannot be imported",
        "weaver": "weaver 'clone'",
    }
    for host in fleet.hosts:
        for name, text in why.items():
            assert text in refused(host, name)
        assert service(host).is_running
        log = service(host).log.read_text()
        assert "Traceback" not in log
    with weft.Fleet(url(fleet)) as asked:
        assert_serving(asked)


def test_a_request_that_is_sent_again_is_not_served_again(fleet: Fleet) -> None:
    key, again = request_key("tests", "replayed"), request("replayed", seconds=0.5)
    stored(fleet, (key, again.encode()))
    host = fleet.hosts[0]

    def outcomes() -> list[str]:
        return [one["outcome"] for one in host.decisions() if one["request"] == "replayed"]

    eventually(lambda: "ended" in outcomes(), 60)

    async def replay() -> None:
        broker = Broker(Access(url(fleet)))
        await broker.connect(10)
        subject = bucket_subject(REQUESTS, key)
        revision = await broker.revision("KV_weft_requests", subject)
        await broker.store(subject, again.encode(), revision)
        await broker.close()

    asyncio.run(replay())
    # Another one that comes later has been served, and this one not.
    stored(fleet, (request_key("tests", "later"), request("later", seconds=0.0).encode()))
    eventually(lambda: any(one["request"] == "later" for one in host.decisions()), 60)
    assert outcomes().count("ended") == 1
    # Nor is it by a service that was started since.
    service(host).end(signal.SIGKILL)
    service(host).start()
    service(host).wait_until_ready()
    stored(fleet, (request_key("tests", "last"), request("last", seconds=0.0).encode()))
    eventually(lambda: any(one["request"] == "last" for one in host.decisions()), 60)
    assert outcomes().count("ended") == 1
    # It is over, and does not count for what somebody may have.
    wanted = ("last", "ended")
    eventually(lambda: wanted in [(one["request"], one["outcome"]) for one in host.decisions()], 60)


def test_a_flood_of_requests_is_bounded(fleet: Fleet) -> None:
    names = [f"flood-{number}" for number in range(40)]
    stored(
        fleet,
        *((request_key("tests", one), request(one, seconds=600.0).encode()) for one in names),
    )
    host = fleet.hosts[0]
    first: dict[str, str] = {}

    def all_decided() -> bool:
        first.update(
            {one["request"]: one["outcome"] for one in host.decisions() if "pid" not in one}
        )
        return all(one in first for one in names)

    eventually(all_decided, 60)
    outcomes = [first[one] for one in names]
    assert (outcomes.count("allowed"), outcomes.count("refused")) == (4, 36)
    assert "4 requests already" in refused(host, names[outcomes.index("refused")])
    with weft.Fleet(url(fleet), requester="other") as asked:
        assert_serving(asked)
    with weft.Fleet(url(fleet), requester="tests") as asked:
        for one in names:
            asked.stop(one)
    eventually(lambda: harmed(fleet) == [], 60)


def test_what_costs_too_much_is_shed(fleet: Fleet, tmp_path: Path) -> None:
    host = fleet.hosts[0]
    policy = tmp_path / "policy.toml"
    policy.write_text('budget = "0.000001%"\n[[allow]]\nrequester = "*"\nprocesses = "*"\n')
    policy.chmod(0o600)
    only = f"pid={host.redis.pid}"
    options = ["--name", "small", "--policy", str(policy), "--only", only]
    small = Process([*WEFT, "host", "--nats", url(fleet), *options], tmp_path / "log", "is ready")
    service(host).end(signal.SIGTERM)
    try:
        small.start()
        small.wait_until_ready()
        with weft.Fleet(url(fleet)) as asked:
            found = asked.run(f"calls@{FUNCTION}", where="host=small", seconds=600)
        assert found.hosts[0].state == "shed"
        assert "of the machine" in found.hosts[0].notes[0]
        assert not found.complete
        assert '"outcome": "shed"' in small.log.read_text()
        assert code(host.redis.pid) == host.code
    finally:
        small.end(signal.SIGTERM)
        service(host).start()
        service(host).wait_until_ready()


def test_a_second_host_of_a_name_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    """But not one that comes after a host that was killed: it is not waited for."""
    options = ["--name", "same", "--policy", str(fleet.policy), "--only", "pid=1"]
    command = [*WEFT, "host", "--nats", url(fleet), *options]
    first = Process(command, tmp_path / "first.log", "same is ready")
    second = Process(command, tmp_path / "second.log", "same is ready")
    third = Process(command, tmp_path / "third.log", "same is ready")
    try:
        first.start()
        first.wait_until_ready()
        second.start()
        eventually(lambda: not second.is_running, 60)
        assert second.process is not None
        assert second.process.returncode == 2
        said = second.log.read_text()
        assert "another host is called same" in said and "it is on this machine" in said
        assert first.is_running
        first.end()
        third.start()
        third.wait_until_ready()
    finally:
        first.end()
        second.end()
        third.end(signal.SIGTERM)


def test_a_host_of_another_machine_keeps_its_name(fleet: Fleet, tmp_path: Path) -> None:
    """It is there as long as it says so every few seconds."""
    options = ["--name", "far", "--policy", str(fleet.policy), "--only", "pid=1"]
    command = [*WEFT, "host", "--nats", url(fleet), *options]
    host = Process(command, tmp_path / "log", "far is ready")

    def said(number: int) -> None:
        record = HostRecord("far", "another-machine", str(number)).encode()
        fleets.stored(fleet, (bucket_subject(HOSTS, host_key("far")), record))

    try:
        said(0)
        host.start()
        for number in range(1, 120):
            said(number)
            time.sleep(0.5)
            if not host.is_running:
                break
        assert host.process is not None
        assert host.process.returncode == 2
        told = host.log.read_text()
        assert "another host is called far" in told and "it is on another machine" in told
        # Of one that has said nothing more the name is free.
        host.start()
        host.wait_until_ready()
    finally:
        host.end(signal.SIGTERM)


def test_a_dead_host_that_is_alone_is_not_seen_now(tmp_path: Path) -> None:
    """Its time is not held against the newest host's, which is its own."""
    with Fleet(tmp_path, 1) as own:
        (host,) = own.hosts
        own.start_services()
        service(host).end()
        time.sleep(3)
        (seen,) = own.ask("ps")["hosts"]
        assert seen["silent_for"] >= 3


def test_nothing_is_for_other_users_to_read(fleet: Fleet) -> None:
    for host in fleet.hosts:
        assert stat.S_IMODE(host.audit.stat().st_mode) == 0o600
    assert stat.S_IMODE(Path("/run/weft").stat().st_mode) == 0o700


# Commands.


def failed(*words: str | Path) -> tuple[int, str]:
    done = subprocess.run([*WEFT, *words], capture_output=True, text=True, check=False, timeout=90)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_without_a_broker(fleet: Fleet) -> None:
    nowhere = f"nats://127.0.0.1:{free_port()}"
    exit_code, said = failed("fleet", "ps", "--nats", nowhere)
    assert exit_code == 3
    assert "cannot connect" in said


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        (["run", "-m", "calls", "--where", "exe"], 2, "no selector"),
        (["run"], 2, "nothing is to be measured"),
        (["run", "-m", "calls", "--budget", "200%"], 2, "no budget"),
        (["run", "-m", "calls", "--for", "48h"], 2, "cannot be asked"),
        (["run", "-m", "calls", "--as", "a b"], 2, "cannot be the name"),
        (["run", "-e", "entry {"], 2, "mistake"),
        (["run", "-m", "latnecy"], 2, "did you mean latency?"),
        (["run", "-m", "calls", "--where", "exe=nothing", "--for", "1"], 3, "no host has one"),
        (["run", "-e", "entry main { n += getpid() }", "--for", "1"], 2, "no process was measured"),
        (["stop", "nothing"], 2, "no request"),
        (["ps", "--where", "x=1"], 2, "no field"),
        (["ps", "--creds", "/nothing"], 4, "cannot read the credentials"),
        (["ps", "--ca", "/nothing"], 4, "cannot use the certificates"),
        (["ps", "--nats", "http://127.0.0.1"], 2, "no address of a broker"),
    ],
)
def test_what_makes_no_sense(fleet: Fleet, words: list[str], exit_code: int, said: str) -> None:
    part, *more = words
    found, text = failed("fleet", part, "--nats", url(fleet), *more)
    assert (found, said in text) == (exit_code, True), text


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        (["--policy", "/nothing"], 4, "cannot read the policy"),
        (["--name", "a b"], 2, "cannot be the name"),
        (["--labels", "zone"], 2, "no label"),
        (["--labels", "zone=a,zone=b"], 2, "has two values"),
        (["--only", "x"], 2, "no selector"),
    ],
)
def test_a_host_that_makes_no_sense(
    fleet: Fleet, words: list[str], exit_code: int, said: str
) -> None:
    found, text = failed("host", "--nats", url(fleet), "--policy", fleet.policy, *words)
    assert (found, said in text) == (exit_code, True), text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4",
        "-----BEGIN NATS USER JWT-----\n------END NATS USER JWT------\n",
        "-----BEGIN NATS USER JWT-----\nx\n------END NATS USER JWT------\n"
        "-----BEGIN USER NKEY SEED-----\nx\n------END USER NKEY SEED------\n",
    ],
)
@pytest.mark.parametrize("command", [["fleet", "ps"], ["host", "--policy"]])
def test_credentials_that_are_none(
    fleet: Fleet, tmp_path: Path, command: list[str | Path], text: str
) -> None:
    file = tmp_path / "user.creds"
    file.write_text(text)
    file.chmod(0o600)
    words = [*command, *([fleet.policy] if "--policy" in command else [])]
    found, said = failed(*words, "--nats", url(fleet), "--creds", file)
    assert (found, "no credentials of a user" in said) == (4, True), said


def test_what_a_host_cannot_note_it_does_not_do(fleet: Fleet, tmp_path: Path) -> None:
    server = fleet.hosts[0].redis
    service(fleet.hosts[0]).end(signal.SIGTERM)
    options = ["--name", "a-full", "--only", f"pid={server.pid}", "--audit", "/dev/full"]
    command = [*WEFT, "host", "--nats", url(fleet), "--policy", str(fleet.policy), *options]
    host = Process(command, tmp_path / "host.log", "a-full is ready")
    try:
        host.start()
        host.wait_until_ready()
        with weft.Fleet(url(fleet)) as asked:
            found = asked.run(f"calls@{FUNCTION}", where="host=a-full", seconds=600)
        (only,) = found.hosts
        assert (only.state, only.processes, found.complete) == ("refused", 0, False)
        assert "cannot note its decisions: No space left" in only.notes[0]
        assert "cannot note its decisions: No space left" in host.log.read_text()
        assert code(server.pid) == fleet.hosts[0].code
    finally:
        host.end(signal.SIGTERM)
        service(fleet.hosts[0]).start()
        service(fleet.hosts[0]).wait_until_ready()


# Faults of networks.


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make network namespaces")
def test_totals_are_exact_or_marked_whatever_goes_wrong(tmp_path: Path) -> None:
    need("ip", "tc", SERVER, "redis-server", "nginx", "go")
    tally, wrong = soak.soak(tmp_path, soak.SHORT, soak.SEED)
    assert wrong == []
    assert tally["schedules"] == soak.SHORT
