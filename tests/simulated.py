"""Hosts whose processes and measurements are made up; all else of them is that of ``weft host``.

Hundreds of them are in one process. What each measures is known, so the total of all is known too.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import resource
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from functools import lru_cache
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tests.fleet_servers import PATIENCE
from tests.fleet_servers import Process as Program
from tests.fleets import SERVER, free_port
from weft.fleet.audit import Audit
from weft.fleet.broker import Access
from weft.fleet.folding import Series
from weft.fleet.host import Host
from weft.fleet.machine import Cleaned, Reading, RequestKey
from weft.fleet.plan import Identity, Process
from weft.fleet.policy import Policy, Rule
from weft.fleet.protocol import Ask, Request
from weft.fleet.selectors import Selector
from weft.fleet.service import HostOptions
from weft.fleet.texts import Texts
from weft.model.measured import Value
from weft.model.values import Bucket, Histogram

if TYPE_CHECKING:
    from typing_extensions import Self

ASKS = tuple(
    Ask(metric, f"/Code/server/{function}")
    for function in ("accept", "parse", "handle", "answer")
    for metric in ("calls", "latency")
)
"""What is asked of them: a distribution of each function beside how often it was called."""
LABELS = {"zone": "b"}
LAST = 1 << 20
"""The last time that a process is read, so to speak: more often it is not."""
_BOUNDS = tuple(
    ((8 + step) << power, ((9 + step) << power) - 1) for power in range(5, 10) for step in range(8)
)
"""Buckets as a latency from 256 ns to 8 us has them."""
_APART, _LEAST_APART = 10.0, 0.01
"""Over how many seconds hosts are started, but so many between two at most."""
_SWITCH = 1e-3
"""In seconds: each of these hosts would have an interpreter of its own, and wait for no other."""


@lru_cache(1000)
def value(metric: str, weight: int) -> Value:
    """What a metric is of a process of some weight, or of several that have that together."""
    if metric != "latency":
        return weight
    counts = [weight * (1 + number % 5) for number in range(len(_BOUNDS))]
    buckets = tuple(Bucket(*ends, count) for ends, count in zip(_BOUNDS, counts, strict=True))
    return Histogram(buckets, sum(counts), 1000 * weight)


def _weight(host: int, pid: int) -> int:
    """What a process counts each time that it is read."""
    return 1 + (31 * host + pid) % 7


def total(metric: str, hosts: Iterable[int], processes: int) -> Value:
    """What a metric comes to on hosts with so many processes each, once all is over."""
    weights = (_weight(host, pid) for host in hosts for pid in range(1, processes + 1))
    return value(metric, LAST * sum(weights))


class MadeUpProcesses:
    """Processes that there are not; see :class:`weft.fleet.machine.Processes`."""

    def __init__(self, host: int, number: int) -> None:
        self.of_host: Mapping[str, tuple[str, ...]] = {"host": (name(host),)}
        self.netns = str(host)
        facts = {
            **self.of_host,
            "exe": ("server", "/usr/bin/server"),
            "uid": ("1000",),
            "user": ("service",),
            "cgroup": ("/system.slice/server.service",),
            "container": ("",),
            "build_id": ("0123456789abcdef",),
            "netns": (self.netns, "own"),
        }
        self._all = [Process(pid, 0, {**facts, "pid": (str(pid),)}) for pid in range(1, number + 1)]

    def look(self) -> list[Process]:
        return self._all

    def lock_name(self, process: Process) -> str:
        return f"process-{process.pid}"

    def has_weft(self, pid: int) -> bool:
        del pid
        return False


class MadeUpMeasures:
    """Measures nothing; see :class:`weft.fleet.machine.Measures`."""

    def __init__(self, host: int) -> None:
        self._host = host
        self._asks: dict[RequestKey, tuple[Ask, ...]] = {}
        self._reads: dict[tuple[Identity, RequestKey], int] = {}

    def clean(self, pids: Collection[int]) -> Cleaned:
        del pids
        return Cleaned()

    def begin(
        self, identity: Identity, key: RequestKey, request: Request, texts: Texts, share: float
    ) -> None:
        del texts, share
        self._asks[key] = request.metrics
        self._reads[identity, key] = 0

    def read(self, identity: Identity, key: RequestKey, texts: Texts) -> Reading:
        del texts
        self._reads[identity, key] += 1
        return self._reading(identity, key, self._reads[identity, key])

    def end(self, identity: Identity, key: RequestKey, texts: Texts) -> Reading:
        del texts
        del self._reads[identity, key]
        return self._reading(identity, key, LAST)

    def load(self) -> float:
        return 0.0

    def close(self) -> None:
        pass

    def _reading(self, identity: Identity, key: RequestKey, reads: int) -> Reading:
        weight = reads * _weight(self._host, identity[0])
        return Reading(
            tuple(
                Series(
                    one.metric,
                    one.focus,
                    "ns" if one.metric == "latency" else "",
                    value(one.metric, weight),
                )
                for one in self._asks[key]
            )
        )


def order(orders: Connection) -> asyncio.Event:
    """Set when something can be received."""
    loop, found = asyncio.get_running_loop(), asyncio.Event()

    def seen() -> None:
        loop.remove_reader(orders.fileno())
        found.set()

    loop.add_reader(orders.fileno(), seen)
    return found


def name(host: int) -> str:
    return f"host-{host}"


class Part:
    """A process of Python beside this one, which is told things and tells some."""

    def __init__(self, do: Callable[..., None], *given: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.told, other = context.Pipe()
        self.process: BaseProcess = context.Process(target=do, args=(other, *given), daemon=True)
        self.process.start()
        other.close()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def hear(self, patience: float = PATIENCE) -> Any:
        """What it says next; an error if it says nothing for so long, or has ended."""
        if not self.told.poll(patience):
            raise RuntimeError(f"nothing was heard for {patience:g} s")
        return self.told.recv()

    def tell(self, what: object = None) -> None:
        self.told.send(what)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.told.close()


class Simulation:
    """A broker, and hosts that are made up, in a few processes."""

    def __init__(self, folder: Path, hosts: int, processes: int, parts: int = 2) -> None:
        self._folder = folder
        self._hosts, self._processes, self._number = hosts, processes, parts
        self._stack = ExitStack()
        self.parts: list[Part] = []
        self.url = ""
        self.monitor = 0
        """The port where the broker tells what it does."""

    def __enter__(self) -> Self:
        try:
            self.broker = self._broker()
            for part in range(self._number):
                one = Part(serve, self.url, self._folder, self.numbers(part), self._processes)
                self._stack.callback(one.kill)
                self.parts.append(one)
            for one in self.parts:
                one.hear()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _broker(self) -> Program:
        port, self.monitor = free_port(), free_port()
        self.url = f"nats://127.0.0.1:{port}"
        store = self._folder / "jetstream"
        command = [SERVER, "-js", "-sd", store, "-a", "127.0.0.1", "-p", port, "-m", self.monitor]
        broker = Program([*map(str, command)], self._folder / "broker.log", "Server is ready")
        self._stack.callback(broker.end)
        broker.start()
        broker.wait_until_ready()
        return broker

    def numbers(self, part: int) -> range:
        """The hosts in one of the processes."""
        return range(part, self._hosts, self._number)

    def end(self) -> list[str]:
        """End all hosts as one ends a service, and return what has gone wrong."""
        for one in self.parts:
            one.tell()
        return [text for one in self.parts for text in one.hear()]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def serve(
    orders: Connection, url: str, folder: Path, numbers: Iterable[int], processes: int
) -> None:
    """Be some hosts, in a process of their own, until there is an order, whatever it is.

    It is told when they are ready, and a text for each that has gone wrong.
    """
    sys.setswitchinterval(_SWITCH)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    asyncio.run(_serve(orders, url, folder, [*numbers], processes))


async def _serve(
    orders: Connection, url: str, folder: Path, numbers: Collection[int], processes: int
) -> None:
    stop, ready = order(orders), asyncio.Event()
    said: list[str] = []
    names = {name(number) for number in numbers}

    def say(text: str) -> None:
        names.discard(text.removesuffix(" is ready"))
        if not text.endswith(" is ready"):
            said.append(text)
        if not names:
            ready.set()

    # One process is all of these machines, so what they take is no share of one.
    policy = Policy((Rule("*", Selector.parse("exe=server")),), machine=1e9)
    hosts = [
        Host(
            Access(url),
            HostOptions(name(number), LABELS, policy, folder / name(number)),
            Audit(name(number), Path("/dev/null")),
            say,
            MadeUpProcesses(number, processes),
            MadeUpMeasures(number),
        )
        for number in numbers
    ]

    async def run(host: Host, late: float) -> None:
        await asyncio.sleep(late)
        await host.run(stop)

    # What they do every few seconds they do not all do in the same moment.
    apart = min(_APART, len(hosts) * _LEAST_APART) / len(hosts)
    running = [asyncio.create_task(run(host, i * apart)) for i, host in enumerate(hosts)]
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait([*running, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    # So much to look through is only in a process that is many hosts.
    gc.freeze()
    orders.send("ready")
    ends = await asyncio.gather(*running, return_exceptions=True)
    said += [repr(one) for one in ends if one is not None]
    orders.send(said)
