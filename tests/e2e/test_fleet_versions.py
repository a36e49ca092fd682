"""Who speaks another version of the protocol is named, and keeps nobody else from working."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.e2e.harness import eventually, need
from tests.e2e.test_probes import needs_weaver
from tests.fleets import FUNCTION, SERVER, WEFT, Fleet, Process, stored
from weft.fleet.broker import bucket_subject
from weft.fleet.names import HOSTS, REQUESTS, host_key, request_key, sample_subject
from weft.fleet.protocol import Ask, HostRecord, Report, Request

pytestmark = [needs_weaver, pytest.mark.fleet, pytest.mark.watchdog(300)]

SAID = "of the protocol, and this weft knows 1: the older one of the two has to be updated"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    need(SERVER, "redis-server", "redis-cli")
    with Fleet(tmp_path_factory.mktemp("fleet"), 1) as fleet:
        fleet.start_services()
        yield fleet


def of_version(document: bytes, version: int, **more: Any) -> bytes:
    """A document as another version may have it: with other fields, too."""
    return json.dumps({**json.loads(document), "v": version, "colour": "red", **more}).encode()


def a_host(name: str, version: int, **more: Any) -> tuple[str, bytes]:
    record = HostRecord(name, "its-instance", "9.9", {"zone": "b"})
    return bucket_subject(HOSTS, host_key(name)), of_version(record.encode(), version, **more)


def test_hosts_of_other_versions_are_listed_and_named(fleet: Fleet) -> None:
    stored(
        fleet,
        a_host("newer.example.org", 2),
        a_host("older", 0),
        a_host("strange", 3, labels=7, host=["?"]),
        (bucket_subject(HOSTS, "garbage"), b"\xff"),
    )
    listed = {one["host"]: one for one in fleet.ask("ps")["hosts"]}
    assert [*listed] == ["h1", "newer.example.org", "older", "strange"]
    assert listed["h1"]["problem"] == ""
    assert listed["newer.example.org"]["problem"] == f"it is of version 2 {SAID}"
    assert listed["newer.example.org"]["labels"] == {"zone": "b"}
    assert listed["newer.example.org"]["version"] == "9.9"
    assert listed["older"]["problem"] == f"it is of version 0 {SAID}"
    assert listed["strange"]["problem"] == f"it is of version 3 {SAID}"


def test_a_result_names_hosts_of_other_versions_and_is_not_complete(fleet: Fleet) -> None:
    stored(fleet, a_host("newer.example.org", 2))
    with weft.Fleet(fleet.url_of(0)) as asked:
        found = asked.run(f"calls@{FUNCTION}", where="label.zone=b", seconds=0.5)
        states = {one.host: one.state for one in found.hosts}
        assert (states["h1"], states["newer.example.org"]) == ("done", "version")
        (other,) = [one for one in found.hosts if one.host == "newer.example.org"]
        assert other.notes == (f"it is of version 2 {SAID}",)
        assert not found.complete
        assert not found.totals[0].complete
        # Whom nobody has asked is not missing.
        assert asked.run(f"calls@{FUNCTION}", where="host=h1", seconds=0.5).complete


def test_reports_of_another_version_are_named(fleet: Fleet) -> None:
    with weft.Fleet(fleet.url_of(0)) as asked:
        running = asked.start(f"calls@{FUNCTION}", where="host=h1", seconds=600)
        key = running.request.requester, running.request.id
        report = Report(*key, "changed", 9, 1, "measuring").encode()
        stored(fleet, (sample_subject(*key, "changed", 9), of_version(report, 2)))
        eventually(lambda: {one.host for one in running.now().hosts} == {"h1", "changed"}, 60)
        (now,) = [one for one in fleet.ask("status")["requests"] if one["id"] == key[1]]
        assert [one["state"] for one in now["hosts"] if one["host"] == "changed"] == ["version"]
        running.stop()
        found = running.result()
    (other,) = [one for one in found.hosts if one.host == "changed"]
    assert (other.state, other.notes) == ("version", (f"it is of version 2 {SAID}",))
    assert not found.complete


def test_a_request_of_another_version_is_refused_listed_and_can_be_stopped(fleet: Fleet) -> None:
    request = Request("newer", "tests", (Ask("calls", FUNCTION),), "*", 1.0).encode()
    subject = bucket_subject(REQUESTS, request_key("tests", "newer"))
    stored(fleet, (subject, of_version(request, 2)))
    (host,) = fleet.hosts
    eventually(lambda: any(one["request"] == "newer" for one in host.decisions()), 60)
    (line,) = [one for one in host.decisions() if one["request"] == "newer"]
    assert (line["outcome"], line["who"]) == ("refused", "tests")
    assert line["why"] == f"it is of version 2 {SAID}"
    (listed,) = [one for one in fleet.ask("status")["requests"] if one["id"] == "newer"]
    assert listed["problem"] == f"it is of version 2 {SAID}"
    assert fleet.ask("stop", "newer") == {"schema": 1, "stopped": "newer"}
    assert "newer" not in [one["id"] for one in fleet.ask("status")["requests"]]


def test_a_host_gives_way_to_one_of_its_name_of_another_version(
    fleet: Fleet, tmp_path: Path
) -> None:
    options = ["--name", "same", "--policy", str(fleet.policy), "--only", "pid=1"]
    command = [*WEFT, "host", "--nats", fleet.url_of(0), *options]
    host = Process(command, tmp_path / "log", "same is ready")
    try:
        host.start()
        host.wait_until_ready()
        stored(fleet, a_host("same", 2))
        eventually(lambda: not host.is_running, 60)
        assert host.process is not None
        assert host.process.returncode == 2
        assert "another host is called same" in host.log.read_text()
    finally:
        host.end()
