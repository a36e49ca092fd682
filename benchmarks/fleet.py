"""What a fleet of up to a thousand hosts costs, and NATS with the same messages beside it.

    python benchmarks/fleet.py [--hosts N...] [--seconds S] [--rounds N] [--only PART]

A real broker, a real front end, and hosts of which nothing is made up but the processes and what is
measured in them: see tests/simulated.py. All of them share this machine, so what each takes of a
processor is told beside the times. Three tables:

- growth: one request on 10, 100 and 1,000 hosts of one process, and on 100 of a hundred. Seconds
  from asking to the first values of half of the hosts, of 99%, and of all, then to the last values
  of all once it was stopped; what is sent while it is measured, and what that takes of a processor.
- rate: how many reports a second go from hosts to the front end, as fast as it goes; and plain
  nats-py with as many connections, the same subjects, sizes and headers. In turn, several times.
- front: how many reports a second one front end hears, if they are sent without hosts, again beside
  plain nats-py.

Every total is compared with what it has to be.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import socket
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from ctypes import c_longlong
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

sys.path.insert(0, str(Path(__file__).parents[1]))

import nats

from tests.simulated import ASKS, LABELS, Part, Simulation, name, order, total, value
from weft.fleet.broker import SAMPLES_STREAM, Access, Broker
from weft.fleet.folding import Series
from weft.fleet.front import AsyncFleet
from weft.fleet.measuring import FleetHost, Measurement
from weft.fleet.names import sample_subject
from weft.fleet.protocol import HostRecord, Report, Request

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg


Heard: TypeAlias = c_longlong
"""How many messages have been heard, for several processes to see."""
REQUESTER = "bench"
SHAPES = [(10, 1), (100, 1), (1000, 1), (100, 100)]
"""How many hosts, and how many processes each has."""
INTERVAL = 5.0
LEAST_INTERVAL = 0.1
SECONDS = 30.0
SETTLING = 6.0
"""For how long it is waited until things go on as they will, in seconds."""
LONGEST = 1800.0
PATIENCE = 300.0
LOOK = 0.02
"""How often it is looked whose first values are there, in seconds."""
RATE_HOSTS = 400
RATE_SECONDS = 8.0
ROUNDS = 3
LIVE = 1.0
"""How often a live view is made anew, in seconds."""
OUTSTANDING = 1000
"""How many messages are on their way at most where they are sent without hosts."""
FLOOD_HOSTS = 1000
AT_ONCE = 25
FIRST = 1_000_000
"""The number of the first of these reports: all have as many digits."""


def processor_time(pid: int) -> float:
    """For how long a process has run; the clock of another has this number in Linux."""
    return time.clock_gettime(~pid << 3 | 2)


def memory(pid: int) -> float:
    """What a process has in memory, in megabytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the kernel does not say")


@dataclass(frozen=True)
class Costs:
    """What everybody has taken until a moment, or between two."""

    time: float
    front: float
    broker: float
    hosts: float
    messages: int
    sent: int
    """In bytes, to the broker and from it; so of messages."""
    reports: int
    """How many the broker has stored, hosts' records apart."""

    @classmethod
    def now(cls, simulation: Simulation, front: Part, hosts: Iterable[Part]) -> Costs:
        with urllib.request.urlopen(f"http://127.0.0.1:{simulation.monitor}/varz") as answer:
            told = json.load(answer)
        with urllib.request.urlopen(
            f"http://127.0.0.1:{simulation.monitor}/jsz?streams=true"
        ) as answer:
            accounts = json.load(answer)["account_details"]
        streams = [one for account in accounts for one in account["stream_detail"]]
        reports = [one["state"]["last_seq"] for one in streams if one["name"] == SAMPLES_STREAM]
        return cls(
            time.monotonic(),
            processor_time(front.pid),
            processor_time(simulation.broker.pid),
            sum(processor_time(one.pid) for one in hosts),
            told["in_msgs"] + told["out_msgs"],
            told["in_bytes"] + told["out_bytes"],
            sum(reports),
        )

    def since(self, other: Costs) -> Costs:
        before = other.__dict__
        return Costs(**{key: one - before[key] for key, one in self.__dict__.items()})


def totals_are_right(told: Sequence[tuple[str, object, bool]], hosts: int, each: int) -> bool:
    wanted = {str(ask): total(ask.metric, range(hosts), each) for ask in ASKS}
    return {ask: one for ask, one, complete in told if complete} == wanted


# The front end, in a process of its own.


class Counting(Broker):
    """A broker that counts what is heard, where others see it."""

    def __init__(self, url: str, heard: Heard) -> None:
        super().__init__(Access(url))
        self._heard_by_all = heard

    async def listen(self, subject: str, hint: Callable[[str, bytes], None]) -> None:
        def counted(subject: str, data: bytes) -> None:
            self._heard_by_all.value += 1
            hint(subject, data)

        await super().listen(subject, counted)


def ask(
    told: Connection, url: str, hosts: int, interval: float, heard: Heard, is_live: bool
) -> None:
    """Make a request, say when first values have come, and what they come to when told to stop."""
    asyncio.run(_ask(told, url, hosts, interval, heard, is_live))


async def _ask(
    told: Connection, url: str, hosts: int, interval: float, heard: Heard, is_live: bool
) -> None:
    async with AsyncFleet(url, requester=REQUESTER) as fleet, Counting(url, heard) as broker:
        await broker.connect(PATIENCE)
        while len(await fleet.hosts()) < hosts:
            await asyncio.sleep(LOOK)
        told.send("ready")
        request = fleet.request(map(str, ASKS), seconds=LONGEST, interval=interval)
        began = time.monotonic()
        measurement = Measurement(broker, request, PATIENCE)
        await measurement.start(await fleet.hosts())
        seen: list[float] = []
        while len(seen) < hosts:
            await asyncio.sleep(LOOK)
            begun = sum(one == "measuring" for one in measurement.states().values())
            seen += [time.monotonic() - began] * (begun - len(seen))
        told.send(seen)
        stop = order(told)
        await (_show(measurement, stop) if is_live else stop.wait())
        began = time.monotonic()
        await measurement.stop()
        result = await measurement.result()
        took = time.monotonic() - began
    told.send(
        (took, [(f"{one.metric}@{one.focus}", one.value, one.complete) for one in result.totals])
    )


async def _show(measurement: Measurement, stop: asyncio.Event) -> None:
    """Work out what there is every second, as a live view does."""
    while not stop.is_set():
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(stop.wait(), LIVE)
        measurement.now()


def growth(shapes: Sequence[tuple[int, int]], seconds: float, settling: float) -> None:
    print(f"a request every {INTERVAL:g} s of {len(ASKS)} series, half of them distributions")
    times = "50% | 99% | all | end"
    shares = "front end | broker | each host | front end, MB | broker, MB | each host, MB"
    print(f"| hosts x processes | {times} | messages/s | KB/s | {shares} | total |")
    print(f"|{'---|' * 14}")
    for hosts, each in shapes:
        with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
            print(grown(Path(folder), hosts, each, seconds, settling), flush=True)


def grown(folder: Path, hosts: int, each: int, seconds: float, settling: float) -> str:
    with Simulation(folder, hosts, each) as simulation:
        heard = counter()
        front = Part(ask, simulation.url, hosts, INTERVAL, heard, True)
        try:
            front.hear()
            before = Costs.now(simulation, front, simulation.parts)
            seen = sorted(front.hear(PATIENCE))
            begun = Costs.now(simulation, front, simulation.parts).since(before)
            time.sleep(settling)
            before = Costs.now(simulation, front, simulation.parts)
            time.sleep(seconds)
            costs = Costs.now(simulation, front, simulation.parts).since(before)
            pids = front.pid, simulation.broker.pid
            sizes = [memory(pid) for pid in pids]
            of_hosts = sum(memory(one.pid) for one in simulation.parts)
            front.tell()
            took, told = front.hear(PATIENCE)
            troubles = simulation.end()
        finally:
            front.kill()
    for one in troubles:
        print(f"! {one}")
    is_right = totals_are_right(told, hosts, each)
    cells = [
        f"{hosts:,} x {each:,}",
        *(f"{seen[math.ceil(share * hosts) - 1]:.2f} s" for share in (0.5, 0.99, 1.0)),
        f"{took:.1f} s",
        f"{costs.messages / costs.time:,.0f}",
        f"{costs.sent / costs.time / 1000:,.0f}",
        f"{costs.front / costs.time:.1%}",
        f"{costs.broker / costs.time:.1%}",
        f"{costs.hosts / costs.time / hosts:.2%}",
        *(f"{one:.0f}" for one in sizes),
        f"{of_hosts / hosts:.1f}",
        "right" if is_right else "wrong",
    ]
    spent = f"front end {begun.front:.2f}, broker {begun.broker:.2f}, hosts {begun.hosts:.2f} s"
    return f"| {' | '.join(cells)} |\n  until all had values: {spent} of processors"


def counter() -> Heard:
    return RawValue(c_longlong)


# The same messages without weft.


def report(request: str, host: int, seq: int) -> Report:
    """What a host would say."""
    series = (Series(*key, "ns", value(key[0], seq)) for key in ((a.metric, a.focus) for a in ASKS))
    return Report(
        REQUESTER, request, name(host), 1, seq, "measuring", 1, series=tuple(series), labels=LABELS
    )


def publish(told: Connection, url: str, numbers: Sequence[int]) -> None:
    """Publish messages of hosts, each when the one before was stored, until told to stop."""
    asyncio.run(_publish(told, url, numbers))


async def _publish(told: Connection, url: str, numbers: Sequence[int]) -> None:
    stop = order(told)
    clients = [await nats.connect(url) for _ in numbers]
    told.send("ready")

    async def one(client: Client, number: int) -> None:
        subject, seq = sample_subject(REQUESTER, "bare", name(number), 1), 0
        data = report("bare", number, 1000).encode()
        while not stop.is_set():
            header = {"Nats-Expected-Last-Subject-Sequence": str(seq)}
            answer = await client.request(subject, data, timeout=PATIENCE, headers=header)
            seq = json.loads(answer.data)["seq"]

    await asyncio.gather(*(one(*pair) for pair in zip(clients, numbers, strict=True)))
    await asyncio.gather(*(client.close() for client in clients))


def hear(told: Connection, url: str, request: str, heard: Heard) -> None:
    """Hear the messages of all hosts, and do nothing with them, until told to stop."""
    asyncio.run(_hear(told, url, request, heard))


async def _hear(told: Connection, url: str, request: str, heard: Heard) -> None:
    stop = order(told)

    async def one(message: Msg) -> None:
        heard.value += 1

    client = await nats.connect(url)
    await client.subscribe(sample_subject(REQUESTER, request), cb=one)
    await client.flush()
    told.send("ready")
    await stop.wait()
    await client.close()


def rate(rounds: int) -> None:
    print(f"{RATE_HOSTS} hosts, as fast as it goes: reports/s stored, and heard by one front end")
    found: dict[str, list[float]] = {"weft": [], "bare": []}
    for _ in range(rounds):
        for kind, do in (("bare", bare_rate), ("weft", weft_rate)):
            with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
                costs, heard = do(Path(folder))
            told(kind, costs, heard)
            found[kind].append(heard / costs.time)
    compare(found)


def told(kind: str, costs: Costs, heard: int) -> None:
    """Print a line: how many reports, and what each takes of a processor."""
    each = [1e6 * one / max(heard, 1) for one in (costs.hosts, costs.broker, costs.front)]
    print(
        f"{kind}: {costs.reports / costs.time:6,.0f} stored, {heard / costs.time:6,.0f} heard; "
        f"us each: hosts {each[0]:.0f}, broker {each[1]:.0f}, front end {each[2]:.0f}; front end "
        f"{costs.front / costs.time:.0%} of a core, broker {costs.broker / costs.time:.0%}",
        flush=True,
    )


def compare(found: dict[str, list[float]]) -> None:
    ratios = [one / other for one, other in zip(found["weft"], found["bare"], strict=True)]
    print(f"weft over bare: {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")


def weft_rate(folder: Path) -> tuple[Costs, int]:
    with Simulation(folder, RATE_HOSTS, 1) as simulation:
        heard = counter()
        front = Part(ask, simulation.url, RATE_HOSTS, LEAST_INTERVAL, heard, False)
        try:
            front.hear()
            front.hear(PATIENCE)
            found = spent(simulation, front, simulation.parts, heard)
            front.tell()
            _, results = front.hear(PATIENCE)
            if not totals_are_right(results, RATE_HOSTS, 1):
                print("! the totals are WRONG")
            return found
        finally:
            front.kill()


def bare_rate(folder: Path) -> tuple[Costs, int]:
    with Simulation(folder, 0, 0, parts=0) as simulation, ExitStack() as stack:
        asyncio.run(prepare(simulation.url))
        heard = counter()
        parts = [Part(hear, simulation.url, "bare", heard)]
        parts += [Part(publish, simulation.url, range(i, RATE_HOSTS, 2)) for i in range(2)]
        for one in parts:
            stack.callback(one.kill)
            one.hear()
        return spent(simulation, parts[0], parts[1:], heard)


async def prepare(url: str) -> None:
    """Have the broker make the streams."""
    async with Broker(Access(url)) as broker:
        await broker.connect(PATIENCE)


def spent(
    simulation: Simulation, front: Part, hosts: Sequence[Part], heard: Heard
) -> tuple[Costs, int]:
    """What everybody takes in some seconds, and how many messages the front end hears."""
    time.sleep(2.0)
    before, had = Costs.now(simulation, front, hosts), heard.value
    time.sleep(RATE_SECONDS)
    had = heard.value - had
    return Costs.now(simulation, front, hosts).since(before), had


# A front end alone.


def send(told: Connection, url: str, request: str, heard: Heard) -> None:
    """Send reports of hosts as fast as they are heard, with as little work as that can be."""
    port = int(url.rpartition(":")[2])
    frames = [frame(request, number) for number in range(FLOOD_HOSTS)]
    sent, seq = heard.value, FIRST
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n')
        while not told.poll():
            for at in range(0, len(frames), AT_ONCE):
                while sent - heard.value > OUTSTANDING and not told.poll():
                    time.sleep(0.0002)
                parts = frames[at : at + AT_ONCE]
                number = b"%d" % seq
                connection.sendall(b"".join(one + number + other for one, other in parts))
                sent += len(parts)
            seq += 1


def frame(request: str, number: int) -> tuple[bytes, bytes]:
    """A message as it goes to the broker, before and after the number of the report."""
    data = report(request, number, FIRST).encode()
    header = b"NATS/1.0\r\nMade-Expected-Last-Subject-Sequence: 1000000\r\n\r\n"
    subject = sample_subject(REQUESTER, request, name(number), 1).encode()
    before, found, after = data.partition(b'"seq":')
    size = len(header) + len(data)
    head = b"HPUB %s %d %d\r\n%s" % (subject, len(header), size, header)
    return head + before + found, after.removeprefix(b"%d" % FIRST) + b"\r\n"


def follow(told: Connection, url: str, request: str, heard: Heard) -> None:
    """Merge the reports of hosts that there are not, until told to stop."""
    asyncio.run(_follow(told, url, request, heard))


async def _follow(told: Connection, url: str, request: str, heard: Heard) -> None:
    hosts = [
        FleetHost(HostRecord(name(number), "", "", LABELS), 0.0) for number in range(FLOOD_HOSTS)
    ]
    async with Counting(url, heard) as broker:
        await broker.connect(PATIENCE)
        wanted = Request(request, REQUESTER, ASKS, "*", LONGEST)
        measurement = Measurement(broker, wanted, 0.0)
        await measurement.start(hosts)
        told.send("ready")
        await order(told).wait()


def front(rounds: int) -> None:
    print(f"one front end, and messages of {FLOOD_HOSTS} hosts, as fast as it hears them")
    found: dict[str, list[float]] = {"weft": [], "bare": []}
    for _ in range(rounds):
        for kind, do in (("bare", hear), ("weft", follow)):
            with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
                costs, heard = flooded(Path(folder), do)
            told(kind, costs, heard)
            found[kind].append(heard / costs.time)
    compare(found)


def flooded(folder: Path, do: Callable[..., None]) -> tuple[Costs, int]:
    with Simulation(folder, 0, 0, parts=0) as simulation, ExitStack() as stack:
        asyncio.run(prepare(simulation.url))
        heard = counter()
        hearing = Part(do, simulation.url, "flood", heard)
        stack.callback(hearing.kill)
        hearing.hear()
        sending = Part(send, simulation.url, "flood", heard)
        stack.callback(sending.kill)
        return spent(simulation, hearing, [sending], heard)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, nargs="+", help="with one process each")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--settle", type=float, default=SETTLING)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", choices=["growth", "rate", "front"])
    options = parser.parse_args()
    shapes = [(number, 1) for number in options.hosts] if options.hosts else SHAPES
    if options.only in (None, "growth"):
        growth(shapes, options.seconds, options.settle)
    if options.only in (None, "rate"):
        rate(options.rounds)
    if options.only in (None, "front"):
        front(options.rounds)


if __name__ == "__main__":
    main()
