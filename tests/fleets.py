"""Fleets for tests: a broker, hosts with real servers, and links between them that can be cut.

Each host has a network namespace of its own, and the broker one that is linked to all of them; or
all are on the loopback address, where there is nothing to cut.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tests.e2e.builder import Builder
from tests.e2e.harness import code, eventually
from tests.fleet_servers import PATIENCE as PATIENCE
from tests.fleet_servers import Lines, Load, Nginx, Redis, Server
from tests.fleet_servers import Process as Process

if TYPE_CHECKING:
    from typing_extensions import Self

WEFT = [sys.executable, "-m", "weft"]
SERVER = Path(sys.executable).parent / "nats-server"
FUNCTION = "/Code/redis-server/processCommand"
POLICY = """
budget = "100%"

[[allow]]
requester = "*"
processes = "exe in (redis-server, nginx, counted_server)"
snippets = "read"
budget = "50%"
"""


def free_port() -> int:
    """A port of the loopback address that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Host:
    """A machine: its servers, of which the first is one of Redis, and what measures them."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.name = f"h{number}"
        self.folder = fleet.folder
        self.inside = fleet.inside(number)
        self.servers = fleet.servers(self.name, self.inside)
        self.redis = self.servers[0].process
        self.socket = self.servers[0].address
        self.audit = fleet.folder / f"{self.name}.audit.jsonl"
        self._url = fleet.url_of(number)
        self._fleet = fleet
        self.service: Process | None = None

    def start_servers(self) -> None:
        for server in self.servers:
            server.start()
        self.code = code(self.redis.pid)

    def end_servers(self) -> None:
        for server in self.servers:
            # nginx ends its workers then.
            server.process.end(signal.SIGTERM)

    def start_service(self, *more: str, weft: Sequence[str] = WEFT) -> None:
        options = ["--name", self.name, "--labels", "zone=b", "--audit", str(self.audit)]
        policy = ["--policy", str(self._fleet.policy), "--only", self._fleet.only(self)]
        command = [*self.inside, *weft, "host", "--nats", self._url, *options, *policy, *more]
        log = self.folder / f"{self.name}.host.log"
        self.service = Process(command, log, f"{self.name} is ready")
        self.service.start()

    def commands(self) -> int:
        """How many commands the server has processed; this asks it for one more."""
        text = redis_cli(self.socket, "info", "stats")
        return int(text.split("total_commands_processed:")[1].split()[0])

    def decisions(self) -> list[dict[str, Any]]:
        # A line may be seen while it is being written.
        whole, _, _ = self.audit.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]


def stored(
    fleet: Fleet, *messages: tuple[str, bytes], headers: dict[str, str] | None = None
) -> None:
    """Have the broker store messages, whatever they are and replace, as any client of it can."""

    async def store() -> None:
        import nats

        client = await nats.connect(fleet.url_of(0))
        for subject, data in messages:
            await client.request(subject, data, timeout=PATIENCE, headers=headers)
        await client.close()

    asyncio.run(store())


def redis_cli(socket_: Path, *words: str) -> str:
    return subprocess.run(
        ["redis-cli", "-s", socket_, *words], capture_output=True, text=True, check=True, timeout=60
    ).stdout


class Fleet:
    """A broker and hosts, on the loopback address."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.policy = folder / "policy.toml"
        self.policy.write_text(POLICY)
        self.policy.chmod(0o600)
        self.port = free_port()
        self.address = "127.0.0.1"
        self.stack = ExitStack()
        self.hosts: list[Host] = []
        self.number = number

    def inside(self, number: int) -> list[str]:
        """What runs a command on a host; 0 is the broker's machine."""
        del number
        return []

    def servers(self, name: str, inside: Sequence[str]) -> list[Server]:
        """The servers that there are to be on a host."""
        return [Redis(self.folder, name, inside)]

    def only(self, host: Host) -> str:
        """The processes that are on a host."""
        return f"pid={host.redis.pid}"

    def url_of(self, number: int) -> str:
        del number
        return f"nats://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        try:
            self._make()
            self.broker = Process(
                [
                    *self.inside(0),
                    SERVER,
                    *("-js", "-sd", self.folder / "jetstream"),
                    *("-a", self.address, "-p", str(self.port)),
                ],
                self.folder / "broker.log",
                "Server is ready",
            )
            self.stack.callback(self.broker.end)
            self.broker.start()
            self.broker.wait_until_ready()
            self.hosts = [Host(self, number) for number in range(1, self.number + 1)]
            for host in self.hosts:
                self.stack.callback(host.end_servers)
                host.start_servers()
        except BaseException:
            self.stack.close()
            raise
        return self

    def _make(self) -> None:
        """Make what there has to be before anything runs."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for host in self.hosts:
            if host.service is not None:
                host.service.end()
        self.stack.close()

    def start_services(self) -> None:
        for host in self.hosts:
            host.start_service()
        for host in self.hosts:
            assert host.service is not None
            host.service.wait_until_ready()

    def fleet(self, *words: str) -> list[str]:
        """A command line of `weft fleet`, on the broker's machine."""
        part, *more = words
        url = f"nats://127.0.0.1:{self.port}"
        return [*self.inside(0), *WEFT, "fleet", part, "--nats", url, "--as", "tests", *more]

    def ask(self, *words: str) -> dict[str, Any]:
        """What a part of `weft fleet` says in JSON."""
        command = self.fleet(*words, "--format", "json")
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        if done.returncode:
            raise RuntimeError(f"{command} has failed: {done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def requests(self) -> list[dict[str, Any]]:
        """The requests that the broker has, and what each host does for them."""
        found: list[dict[str, Any]] = self.ask("status")["requests"]
        return found

    def states(self, but: Collection[str] = ()) -> dict[str, str]:
        """What each host does for the newest request but some."""
        with suppress(RuntimeError):
            for one in self.requests():
                if one["id"] not in but:
                    return {host["host"]: host["state"] for host in one["hosts"]}
        return {}

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Begin to measure the requests of all servers, and wait until all hosts do."""
        before = {one["id"] for one in self.requests()}
        foci = dict.fromkeys(one.focus for host in self.hosts for one in host.servers)
        metrics = [word for focus in foci for word in ("-m", f"calls@{focus}")]
        running = subprocess.Popen(
            self.fleet("run", *metrics, "--format", "json", *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.stack.callback(_end, running)
        wanted = {host.name: "measuring" for host in self.hosts}

        def is_measuring() -> bool:
            if running.poll() is not None:
                raise RuntimeError(f"it has ended: {running.communicate()}")
            return self.states(before) == wanted

        eventually(is_measuring, PATIENCE)
        return running


def _end(running: subprocess.Popen[str]) -> None:
    if running.poll() is None:
        running.kill()
    running.communicate()


def finished(running: subprocess.Popen[str], *, stop: bool = False) -> dict[str, Any]:
    """What was measured; with ``stop`` it is enough."""
    if stop:
        running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=PATIENCE + 60)
    if running.returncode:
        raise RuntimeError(f"weft fleet run has ended with {running.returncode}: {err}")
    found: dict[str, Any] = json.loads(out)
    return found


class Namespaces(Fleet):
    """The same in network namespaces; every host has a link of its own to the broker."""

    _made = 0

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(folder, number)
        Namespaces._made += 1
        self._prefix = f"weft{os.getpid()}-{Namespaces._made}"
        self.address = "0.0.0.0"  # of its namespace, which is linked to nothing else
        self.port = 4222

    def name(self, number: int) -> str:
        return f"{self._prefix}-{number}"

    def inside(self, number: int) -> list[str]:
        return ["ip", "netns", "exec", self.name(number)]

    def url_of(self, number: int) -> str:
        return f"nats://10.83.{number}.1:{self.port}"

    def servers(self, name: str, inside: Sequence[str]) -> list[Server]:
        built = Builder(self.folder).build("counted_server")
        return [
            Redis(self.folder, name, inside),
            Nginx(self.folder, name, inside),
            Lines(self.folder, name, inside, built),
        ]

    def only(self, host: Host) -> str:
        del host
        return "netns=own"

    def _make(self) -> None:
        for number in range(self.number + 1):
            ip("netns", "add", self.name(number))
            self.stack.callback(ip, "netns", "del", self.name(number))
            ip("-n", self.name(number), "link", "set", "lo", "up")
        hub = self.name(0)
        for number in range(1, self.number + 1):
            host = self.name(number)
            here, there = f"to{number}", "uplink"
            ip("-n", hub, "link", "add", here, "type", "veth", "peer", "name", there, "netns", host)
            ip("-n", hub, "addr", "add", f"10.83.{number}.1/24", "dev", here)
            ip("-n", host, "addr", "add", f"10.83.{number}.2/24", "dev", there)
            ip("-n", hub, "link", "set", here, "up")
            ip("-n", host, "link", "set", there, "up")

    def cut(self, number: int) -> None:
        """Cut the link of a host."""
        ip("-n", self.name(0), "link", "set", f"to{number}", "down")

    def mend(self, number: int) -> None:
        ip("-n", self.name(0), "link", "set", f"to{number}", "up")

    def lose(self, number: int, share: float) -> None:
        """Have the link of a host lose a share of all packets, in both directions.

        A filter decides by a random number whether to drop a packet: not every kernel has netem.
        """
        self._traffic(number, "qdisc", "add", "clsact")
        rule = [
            f"32 0 0 {(1 << 32) - 4096 + 56}",  # load a random number
            f"53 0 1 {round(share * (1 << 32))}",  # jump if it is as large
            "6 0 0 0",  # let it pass
            "6 0 0 2",  # drop it
        ]
        code = f"{len(rule)},{','.join(rule)}"
        for way in ("ingress", "egress"):
            self._traffic(number, "filter", "add", way, "bpf", "da", "bytecode", code)

    def lose_nothing(self, number: int) -> None:
        self._traffic(number, "qdisc", "del", "clsact")

    def slow(self, number: int, bits: int) -> None:
        """Let no more than so many bits of a second through to a host; what is too much is lost."""
        bucket = ("burst", "2000", "limit", "10000")
        self._traffic(number, "qdisc", "add", "root", "tbf", "rate", f"{bits}bit", *bucket)

    def slow_no_more(self, number: int) -> None:
        self._traffic(number, "qdisc", "del", "root")

    def _traffic(self, number: int, what: str, how: str, *words: str) -> None:
        run("tc", "-n", self.name(0), what, how, "dev", f"to{number}", *words)


def ip(*words: str) -> None:
    run("ip", *words)


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=30)


@contextmanager
def counted(fleet: Fleet) -> Iterator[None]:
    """Keep the servers busy meanwhile, and count what each has processed by its own count."""
    servers = [one for host in fleet.hosts for one in host.servers]
    for one in servers:
        one.begin_counting()
    with Load(servers):
        yield
    for one in servers:
        one.end_counting()


def problems(fleet: Fleet, found: dict[str, Any]) -> list[str]:
    """What is wrong with a result: a total that is said to be complete and is not, or too much."""
    wrong = []
    told = {one["host"]: one for one in found["hosts"]}
    totals = {one["focus"]: one for one in found["totals"]}
    sums = dict.fromkeys(totals, 0)
    for host in fleet.hosts:
        its = told.get(host.name, {})
        values = {one["focus"]: one for one in its.get("totals", ())}
        for server in host.servers:
            what, focus = f"{server.kind} of {host.name}", server.focus
            own = values.get(focus, {"value": 0, "complete": False})
            sums[focus] += own["value"]
            is_complete = own["complete"]
            if own["value"] > server.expected or (is_complete and own["value"] < server.expected):
                text = f"said to be complete: {is_complete}"
                wrong.append(f"{what}: {own['value']} of {server.expected}, {text}")
            if not is_complete and not its.get("notes"):
                wrong.append(f"{what} is not complete, and nothing says why")
            if not is_complete and totals[focus]["complete"]:
                wrong.append(f"{what} is not complete, and the total is said to be")
    for focus, total in totals.items():
        if total["value"] != sums[focus]:
            wrong.append(f"the total of {focus} is not the sum of the hosts, {sums[focus]}")
    return wrong


def harmed(fleet: Fleet) -> list[str]:
    """Which servers are not as they were, once nothing measures them any more."""
    return [
        f"{server.kind} of {host.name}"
        for host in fleet.hosts
        for server in host.servers
        if server.is_harmed()
    ]
