"""Keys and permissions of a broker keep a fleet's users apart: with NKeys, TLS, and by subject."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import eventually, need
from tests.e2e.test_probes import needs_weaver
from tests.fleets import SERVER, WEFT, Process, free_port
from weft.fleet.broker import FILES_STREAM, Access, Broker, Denied, bucket_subject
from weft.fleet.names import (
    HOSTS,
    REQUESTS,
    file_subject,
    host_key,
    request_key,
    sample_subject,
)

nkeys = pytest.importorskip("nkeys")

# What is complete depends on how busy the machine is: hosts that get no turn for seconds say so.
pytestmark = [needs_weaver, pytest.mark.fleet, pytest.mark.watchdog(300)]

CONFIG = """
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}/jetstream" }}
tls {{ cert_file: "{folder}/cert.pem", key_file: "{folder}/key.pem" }}
authorization {{ users = [
  {{ nkey: {admin} }}
  {{ nkey: {alice}, permissions: {{
    publish: ["$KV.weft_requests.alice.>", "$JS.API.STREAM.INFO.*",
      "$JS.API.CONSUMER.CREATE.KV_weft_hosts.>",
      "$JS.API.CONSUMER.CREATE.KV_weft_requests.>",
      "$JS.API.CONSUMER.CREATE.WEFT_SAMPLES.*.weft.samples.alice.>",
      "$JS.API.CONSUMER.CREATE.OBJ_weft_files.*.$O.weft_files.C.alice.>",
      "$JS.API.CONSUMER.MSG.NEXT.OBJ_weft_files.*", "$JS.API.CONSUMER.DELETE.>"]
    subscribe: ["_INBOX.>", "weft.samples.alice.>"] }} }}
  {{ nkey: {host}, permissions: {{
    publish: ["$KV.weft_hosts.web-1", "weft.samples.*.*.web-1.*", "$O.weft_files.C.*.*.web-1.*",
      "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.KV_weft_hosts",
      "$JS.API.STREAM.MSG.GET.KV_weft_requests", "$JS.API.STREAM.MSG.GET.WEFT_SAMPLES",
      "$JS.API.CONSUMER.CREATE.KV_weft_requests.>", "$JS.API.CONSUMER.CREATE.WEFT_SAMPLES.>",
      "$JS.API.CONSUMER.CREATE.OBJ_weft_files.*.$O.weft_files.C.*.*.web-1.*",
      "$JS.API.CONSUMER.DELETE.>"]
    subscribe: ["_INBOX.>", "$KV.weft_requests.>"] }} }}
] }}
"""


@dataclass(frozen=True)
class Secured:
    """A broker that knows its users by their keys, and a host."""

    folder: Path
    url: str
    redis: int

    def weft(self, key: str, *words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(key, *words), capture_output=True, text=True, check=False, timeout=120
        )
        assert "Traceback" not in done.stderr
        return done

    def command(self, key: str, *words: str) -> list[str]:
        known = ["--nats", self.url, "--creds", f"{self.folder}/{key}.nk"]
        return [*WEFT, *words, *known, "--ca", f"{self.folder}/cert.pem"]


def key_of(folder: Path, name: str) -> str:
    """Make the key of a user: the public part, which is what the broker knows."""
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    file = folder / f"{name}.nk"
    file.write_bytes(seed)
    file.chmod(0o600)
    public: bytes = nkeys.from_seed(bytearray(seed)).public_key
    return public.decode()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    need(SERVER, "openssl", "redis-server")
    folder = tmp_path_factory.mktemp("secured")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=broker"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    port = free_port()
    users = {name: key_of(folder, name) for name in ("admin", "alice", "host", "stranger")}
    (folder / "nats.conf").write_text(CONFIG.format(port=port, folder=folder, **users))
    policy = folder / "policy.toml"
    policy.write_text(
        'budget = "100%"\n'
        '[[allow]]\nrequester = "alice"\nprocesses = "*"\nbudget = "50%"\nfiles = "*.trace"\n'
    )
    policy.chmod(0o600)
    broker = Process([SERVER, "-c", folder / "nats.conf"], folder / "nats.log", "Server is ready")
    redis = Process(
        ["redis-server", "--port", "0", "--save", ""], folder / "redis.log", "Server initialized"
    )
    redis.command += ["--unixsocket", str(folder / "redis.sock")]
    service = None
    try:
        broker.start()
        redis.start()
        broker.wait_until_ready()
        redis.wait_until_ready()
        found = Secured(folder, f"tls://127.0.0.1:{port}", redis.pid)
        # Who may do so makes the buckets and the stream, by using the broker for the first time.
        assert found.weft("admin", "fleet", "ps").returncode == 0
        offered = folder / "offered"
        offered.mkdir(mode=0o700)
        (offered / "slow.trace").write_bytes(os.urandom(1 << 20))
        options = ["--name", "web-1", "--policy", str(policy), "--only", f"pid={redis.pid}"]
        options += ["--files", str(offered)]
        service = Process(
            found.command("host", "host", *options), folder / "host.log", "web-1 is ready"
        )
        service.start()
        service.wait_until_ready()
        yield found
    finally:
        if service is not None:
            service.end(signal.SIGTERM)
        redis.end()
        broker.end()


RUN = ("fleet", "run", "-m", "calls@processCommand", "--for", "1", "--format", "json")


def test_nothing_is_sent_to_a_broker_without_tls_where_it_is_wanted(tmp_path: Path) -> None:
    """The broker prints all that it receives: who answers in its place would have the password."""
    need(SERVER)
    port = free_port()
    log = tmp_path / "nats.log"
    broker = Process(
        [SERVER, "-js", "-sd", tmp_path, "-a", "127.0.0.1", "-p", str(port), "-DV"],
        log,
        "Server is ready",
    )
    policy = tmp_path / "policy.toml"
    policy.write_text('[[allow]]\nrequester = "*"\nprocesses = "*"\n')
    policy.chmod(0o600)
    url = f"tls://user:secret@127.0.0.1:{port}"
    try:
        broker.start()
        broker.wait_until_ready()
        commands = [["fleet", "ps"], ["host", "--policy", str(policy)]]
        for words in commands:
            done = subprocess.run(
                [*WEFT, *words, "--nats", url], capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 3
            assert "it does not offer TLS, which is wanted" in done.stderr
        assert "CONNECT {" not in log.read_text()
        plain = url.replace("tls:", "nats:")
        subprocess.run([*WEFT, "fleet", "ps", "--nats", plain], capture_output=True, timeout=60)
        assert "CONNECT {" in log.read_text()
    finally:
        broker.end()


def test_who_may_ask_has_an_answer(secured: Secured) -> None:
    done = secured.weft("alice", *RUN, "--as", "alice")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert [(one["host"], one["processes"]) for one in found["hosts"]] == [("web-1", 1)]
    listed = secured.weft("alice", "fleet", "ps", "--format", "json")
    assert json.loads(listed.stdout)["hosts"][0]["host"] == "web-1"


def test_who_may_fetch_has_the_file_and_nobody_else_what_is_on_its_way(secured: Secured) -> None:
    output = secured.folder / "fetched"
    fetch = ("fleet", "fetch", "web-1", "slow.trace", "-o", str(output))
    # Nobody has made the store yet who may do so.
    refused = secured.weft("alice", *fetch, "--as", "alice")
    assert refused.returncode == 4
    assert "does not allow" in refused.stderr
    assert secured.weft("admin", "fleet", "fetch").returncode == 0
    done = secured.weft("alice", *fetch, "--as", "alice")
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == (secured.folder / "offered" / "slow.trace").read_bytes()

    async def read(key: str, requester: str) -> None:
        folder = secured.folder
        access = Access(secured.url, folder / f"{key}.nk", folder / "cert.pem")
        async with Broker(access) as broker:
            await broker.connect(10)
            async for _ in broker.each(FILES_STREAM, file_subject(requester, "1", "web-2", 1), 0):
                pass

    asyncio.run(read("alice", "alice"))
    for key in ("alice", "host"):
        with pytest.raises(Denied):
            asyncio.run(read(key, "bob"))


def test_nobody_asks_in_the_name_of_another(secured: Secured) -> None:
    done = secured.weft("alice", *RUN, "--as", "bob")
    assert done.returncode == 3
    assert "does not allow" in done.stderr
    assert "$kv.weft_requests.bob" in done.stderr.lower()


def test_nobody_reads_what_another_has_asked_for(secured: Secured) -> None:
    done = secured.weft("alice", "fleet", "status", "--as", "bob")
    assert done.returncode == 3
    assert "weft.samples.bob" in done.stderr


def test_who_asks_sees_and_ends_what_is_ones_own(secured: Secured) -> None:
    def known(key: str) -> dict[str, dict[str, Any]]:
        done = secured.weft(key, "fleet", "status", "--as", key, "--format", "json")
        assert done.returncode == 0, done.stderr
        assert ("only the requests of alice are shown" in done.stderr) == (key == "alice")
        return {one["requester"]: one for one in json.loads(done.stdout)["requests"]}

    def is_measured() -> bool:
        return "measuring" in str(known("admin").get("alice"))

    command = secured.command("alice", *RUN, "--as", "alice", "--for", "600")
    others = secured.command("admin", *RUN, "--as", "carol", "--where", "host=none", "--for", "600")
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as own,
        subprocess.Popen(others, stdout=subprocess.DEVNULL) as other,
    ):
        try:
            eventually(is_measured, 60)
            eventually(lambda: "carol" in known("admin"), 60)
            assert [*known("alice")] == ["alice"]
            identity = known("alice")["alice"]["id"]
            done = secured.weft("alice", "fleet", "stop", identity, "--as", "alice")
            assert done.returncode == 0, done.stderr
            text, _ = own.communicate(timeout=60)
            assert json.loads(text)["hosts"][0]["state"] == "stopped"
        finally:
            own.kill()
            other.kill()
            done = secured.weft(
                "admin", "fleet", "stop", known("admin")["carol"]["id"], "--as", "carol"
            )


def test_a_name_that_the_policy_does_not_know_is_refused(secured: Secured) -> None:
    done = secured.weft("admin", *RUN, "--as", "mallory")
    found: dict[str, Any] = json.loads(done.stdout)
    assert [one["state"] for one in found["hosts"]] == ["refused"]
    assert "no rule allows mallory anything" in found["hosts"][0]["notes"][0]


def test_nobody_is_a_host_of_another_name(secured: Secured) -> None:
    policy = str(secured.folder / "policy.toml")
    options = ["--name", "forged", "--policy", policy]
    forged = Process(
        secured.command("host", "host", *options), secured.folder / "forged.log", "cannot register"
    )
    try:
        forged.start()
        forged.wait_until_ready()
        assert "$kv.weft_hosts.forged" in forged.log.read_text().lower()
        listed = secured.weft("alice", "fleet", "ps", "--format", "json")
        assert [one["host"] for one in json.loads(listed.stdout)["hosts"]] == ["web-1"]
    finally:
        forged.end(signal.SIGTERM)
    assert forged.process is not None
    assert forged.process.returncode == 0


@pytest.mark.parametrize(
    ("key", "subject"),
    [
        ("alice", sample_subject("alice", "4f2a", "web-1", 9)),
        ("alice", bucket_subject(HOSTS, host_key("web-1"))),
        ("alice", bucket_subject(REQUESTS, request_key("bob", "4f2a"))),
        ("host", sample_subject("alice", "4f2a", "web-2", 9)),
        ("host", bucket_subject(HOSTS, host_key("web-2"))),
        ("host", bucket_subject(REQUESTS, request_key("alice", "4f2a"))),
    ],
)
def test_nobody_stores_what_is_for_another_to_say(secured: Secured, key: str, subject: str) -> None:
    async def store() -> None:
        folder = secured.folder
        broker = Broker(Access(secured.url, folder / f"{key}.nk", folder / "cert.pem"))
        await broker.connect(10)
        try:
            await broker.store(subject, b"{}", 0)
        finally:
            await broker.close()

    with pytest.raises(Denied) as denied:
        asyncio.run(store())
    assert f'publish to "{subject}"'.lower() in str(denied.value).lower()


def test_a_stranger_is_not_let_in(secured: Secured) -> None:
    done = secured.weft("stranger", "fleet", "ps")
    assert done.returncode == 3
    assert "cannot connect" in done.stderr
    assert "Authorization" in done.stderr
    done = secured.weft("stranger", "host", "--policy", str(secured.folder / "policy.toml"))
    assert done.returncode == 3


def test_a_broker_that_is_not_the_right_one_is_not_believed(secured: Secured) -> None:
    command = [*WEFT, "fleet", "ps", "--nats", secured.url]
    command += ["--creds", f"{secured.folder}/alice.nk"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3
    assert "--ca FILE" in done.stderr


def test_a_key_that_others_can_read_is_not_used(secured: Secured, tmp_path: Path) -> None:
    key = tmp_path / "alice.nk"
    key.write_bytes((secured.folder / "alice.nk").read_bytes())
    key.chmod(0o644)
    command = [*WEFT, "fleet", "ps", "--nats", secured.url, "--creds", str(key)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 4
    assert "others may read" in done.stderr
    assert "chmod 600" in done.stderr


def test_the_service_ends_when_it_is_told(secured: Secured) -> None:
    def has_weft() -> bool:
        return "/memfd:weft" in Path(f"/proc/{secured.redis}/maps").read_text()

    eventually(lambda: not has_weft(), 60)
