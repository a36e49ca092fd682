"""Too much of everything: requests without end, documents that are none, a request for it all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.e2e.harness import eventually, need
from tests.e2e.test_probes import needs_weaver
from tests.fleets import FUNCTION, SERVER, Fleet, harmed, stored
from tests.soak.fleet import service_of
from tests.soak.fleet_greedy import REQUESTS, greedy
from weft.fleet.broker import bucket_subject
from weft.fleet.names import HOSTS, host_key, request_key, sample_subject
from weft.fleet.names import REQUESTS as WANTED
from weft.fleet.protocol import MOST_BYTES, Ask, HostRecord, Report, Request

pytestmark = [needs_weaver, pytest.mark.fleet, pytest.mark.watchdog(600)]

POLICY = """
[[allow]]
requester = "tests"
processes = "exe=redis-server"
snippets = "read"
budget = "50%"
"""
MOST_MEMORY = 400 << 20
"""More than a host with one process has taken whatever was sent to it."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    need(SERVER, "redis-server", "redis-cli")
    with Fleet(tmp_path_factory.mktemp("fleet"), 1) as fleet:
        fleet.policy.write_text(POLICY)
        fleet.start_services()
        yield fleet


def assert_well(fleet: Fleet) -> None:
    """The host is as it was, and measures for whoever may ask."""
    (host,) = fleet.hosts
    service = service_of(host)
    assert service.is_running
    assert "Traceback" not in service.log.read_text()
    peak = Path(f"/proc/{service.pid}/status").read_text().split("VmHWM:")[1].split()[0]
    assert int(peak) << 10 < MOST_MEMORY
    with weft.Fleet(fleet.url_of(0), requester="tests") as asked:
        running = asked.start(f"calls@{FUNCTION}", where="host=h1", seconds=600)
        eventually(lambda: "measuring" in [one.state for one in running.now().hosts], 120)
        running.stop()
        assert "stopped" in [one.state for one in running.result().hosts]
    eventually(lambda: harmed(fleet) == [], 60)


def of_requests(name: str, requester: str = "tests") -> str:
    return bucket_subject(WANTED, request_key(requester, name))


def test_a_flood_of_requests_of_a_stranger_is_refused_one_by_one(fleet: Fleet) -> None:
    (host,) = fleet.hosts
    names = [f"flood-{number}" for number in range(1500)]
    probes = ("entry f { " + "n++; " * 3000 + "}",)
    one = Request("x", "mallory", (), "*", 600.0, probes=probes)
    document = json.loads(one.encode())
    stored(
        fleet,
        *(
            (of_requests(name, "mallory"), json.dumps({**document, "id": name}).encode())
            for name in names
        ),
    )

    def refused() -> set[str]:
        lines = [one for one in host.decisions() if one["who"] == "mallory"]
        assert {one["outcome"] for one in lines} <= {"refused"}
        assert {one["why"] for one in lines} <= {"no rule allows mallory anything"}
        return {one["request"] for one in lines}

    eventually(lambda: refused() >= set(names), 300)
    stored(
        fleet,
        *((of_requests(name, "mallory"), b"") for name in names),
        headers={"KV-Operation": "DEL"},
    )
    assert_well(fleet)


BAD = [
    b"",
    b"\xff\xfe\x00",
    b"null",
    b"[]",
    b'{"v": 1}',
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"9" * 10_000,
    b'{"v": ' + b"1" * 10_000 + b"}",
    b'{"v": 1e999, "kind": "request"}',
    b'{"v": NaN}',
    b'"' + b"x" * (MOST_BYTES - 1000) + b'"',
]


def test_documents_that_are_none_harm_nobody(fleet: Fleet) -> None:
    (host,) = fleet.hosts
    for number, bad in enumerate(BAD):
        stored(
            fleet,
            (of_requests(f"bad-{number}"), bad),
            (bucket_subject(HOSTS, f"bad-{number}"), bad),
            (sample_subject("tests", f"bad-{number}", "h1", 1), bad),
        )

    def noted() -> set[str]:
        return {one["request"] for one in host.decisions() if one["outcome"] == "refused"}

    eventually(lambda: {f"bad-{number}" for number in range(len(BAD))} <= noted(), 120)
    assert [one["host"] for one in fleet.ask("ps")["hosts"]] == ["h1"]
    assert "bad" not in json.dumps([one["id"] for one in fleet.ask("status")["requests"]])
    assert_well(fleet)


def test_subjects_that_are_none_harm_nobody(fleet: Fleet) -> None:
    request = Request("other", "tests", (Ask("calls"),), "*", 1.0).encode()
    report = Report("tests", "other", "h1", 7, 1, "measuring").encode()
    stored(
        fleet,
        (bucket_subject(WANTED, "a"), request),
        (bucket_subject(WANTED, "a.b.c.d"), request),
        (bucket_subject(WANTED, f"{'x' * 1000}.{'y' * 1000}"), request),
        (bucket_subject(HOSTS, "a.b"), HostRecord("a.b", "", "").encode()),
        (bucket_subject(HOSTS, host_key("a.b")), HostRecord("c", "", "").encode()),
        ("weft.samples.tests", report),
        ("weft.samples.tests.other.h1.x", report),
        ("weft.samples.tests.other.h1.8", report),
        (f"weft.samples.tests.other.h1.{'9' * 40}", report),
    )
    assert [one["host"] for one in fleet.ask("ps")["hosts"]] == ["h1"]
    assert_well(fleet)


def test_what_is_too_large_is_not_stored(fleet: Fleet) -> None:
    import asyncio

    import nats

    async def store() -> list[str]:
        client = await nats.connect(fleet.url_of(0))
        data = b"x" * (MOST_BYTES + 1000)
        subjects = (of_requests("large"), bucket_subject(HOSTS, "large"), "weft.samples.a.b.c.1")
        answers = [await client.request(one, data, timeout=30) for one in subjects]
        await client.close()
        return [json.loads(one.data)["error"]["description"] for one in answers]

    assert all("maximum allowed" in one for one in asyncio.run(store()))


def test_who_asks_for_everything_is_bounded(tmp_path: Path) -> None:
    need(SERVER, "redis-server", "redis-benchmark", "redis-cli")
    # It raises an error if a server is not as it was, or a host has ended.
    tally = greedy(tmp_path, 1, 5.0)
    assert sum(tally.states.values()) == 2 * REQUESTS
    # Four of a requester are served at a time, and how they end depends on how fast they begin.
    assert tally.states["refused"] >= 2 * (REQUESTS - 4)
    assert set(tally.states) <= {"refused", "stopped", "shed", "lost"}
