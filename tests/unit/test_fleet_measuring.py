"""What a front end makes of what it hears, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from weft.fleet.broker import Access, Broker, Stored
from weft.fleet.folding import Series
from weft.fleet.guards import Guard
from weft.fleet.measuring import FleetHost, Measurement
from weft.fleet.names import sample_subject
from weft.fleet.protocol import Ask, HostRecord, Report, Request, State

REQUEST = Request("r", "tests", (Ask("calls"),), "*", 60.0)


class MadeUp(Broker):
    """A broker that has what it is given."""

    def __init__(self) -> None:
        super().__init__(Access("nats://127.0.0.1"))
        self.stored: dict[str, bytes] = {}
        self.hear: Callable[[str, bytes], None] = lambda subject, data: None

    async def listen(self, subject: str, hint: Callable[[str, bytes], None]) -> None:
        self.hear = hint

    async def store(self, subject: str, data: bytes, replaces: int) -> int:
        return replaces + 1

    async def delete(self, subject: str) -> None:
        pass

    async def all(self, stream: str, subject: str) -> list[Stored]:
        return [Stored(name, data, 1, 0.0) for name, data in self.stored.items()]


def report(host: str, seq: int, state: State = "measuring", *, final: bool = False) -> Report:
    series = (Series("calls", "", "", 10 * seq),)
    return Report("tests", "r", host, 1, seq, state, 1, final=final, series=series)


def subject(host: str) -> str:
    return sample_subject("tests", "r", host, 1)


async def begun(broker: MadeUp, *names: str, guards: tuple[Guard, ...] = ()) -> Measurement:
    measurement = Measurement(broker, REQUEST, 1.0, guards=guards)
    await measurement.start([FleetHost(HostRecord(one, "", ""), 0.0) for one in names])
    return measurement


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it has not happened")


def test_what_is_heard_counts_until_there_is_something_newer() -> None:
    async def run() -> None:
        broker = MadeUp()
        measurement = await begun(broker, "a", "b")
        broker.hear(subject("a"), report("a", 1).encode())
        broker.hear(subject("b"), report("b", 2).encode())
        await until(lambda: len(measurement.states()) == 2)
        assert measurement.now().total("calls").value == 30
        for seq in (2, 5, 9):
            broker.hear(subject("a"), report("a", seq).encode())
        await until(lambda: measurement.now().total("calls").value == 110)
        broker.hear(subject("a"), report("a", 3).encode())
        broker.hear(subject("b"), report("b", 3).encode())
        await until(lambda: measurement.now().total("calls").value == 120)
        for host in ("a", "b"):
            broker.stored[subject(host)] = report(host, 100, "done", final=True).encode()
            broker.hear(subject(host), broker.stored[subject(host)])
        result = await measurement.result()
        assert result.complete and result.total("calls").value == 2000

    asyncio.run(run())


def test_what_is_no_report_of_its_host_changes_nothing() -> None:
    async def run() -> None:
        broker = MadeUp()
        measurement = await begun(broker, "a")
        broker.hear(subject("a"), report("a", 1).encode())
        await until(lambda: len(measurement.states()) == 1)
        for data in (b"{", report("b", 7).encode(), b""):
            broker.hear(subject("a"), data)
            await asyncio.sleep(0.05)
            assert measurement.now().total("calls").value == 10
        await measurement.stop()

    asyncio.run(run())


def test_a_guard_sees_what_is_heard() -> None:
    async def run() -> None:
        broker = MadeUp()
        guard = Guard.parse("calls < 50", [("calls", "")])
        measurement = await begun(broker, "a", guards=(guard,))
        broker.hear(subject("a"), report("a", 1).encode())
        await until(lambda: measurement.states() == {"a": "measuring"})
        assert not measurement.halted
        broker.hear(subject("a"), report("a", 6).encode())
        await until(lambda: bool(measurement.halted))

    asyncio.run(run())
