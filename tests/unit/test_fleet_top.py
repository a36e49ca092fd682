"""The live view of a fleet, as a person sees it and as keys change it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from textual.pilot import Pilot

from weft.errors import InvalidArgument
from weft.fleet.folding import number
from weft.fleet.results import FleetResult, FleetTotal, HostResult
from weft.fleet.selectors import Selector
from weft.model.measured import Value
from weft.model.values import Bucket, Histogram
from weft.ui.fleet_rows import Place, labels, parts, rates, rows
from weft.ui.fleet_top import Detail, FleetTop

CALLS = ("calls", "")
LATENCY = Histogram((Bucket(100, 200, 9),), 9, 1350)


def host(name: str, value: int, zone: str, *notes: str) -> HostResult:
    totals = (
        FleetTotal("calls", "", value, "calls", 1, False),
        FleetTotal("latency", "", LATENCY, "ns", 1, False),
    )
    return HostResult(name, "measuring", 2, totals, notes, {"zone": zone})


def fleet(**values: int) -> FleetResult:
    hosts = tuple(
        host(name, value, "a" if number < 2 else "b")
        for number, (name, value) in enumerate(values.items())
    )
    totals = (
        FleetTotal("calls", "", sum(values.values()), "calls", len(hosts), False),
        FleetTotal("latency", "", LATENCY, "ns", len(hosts), False),
    )
    return FleetResult("r", totals, hosts, False)


BEFORE = fleet(h1=0, h2=0, h3=0, h4=0)
NOW = fleet(h1=100, h2=104, h3=20, h4=98)


def test_what_is_least_like_the_others_comes_first() -> None:
    grown = rates(NOW, BEFORE, 2.0)
    assert grown["h1"][CALLS] == 50.0
    found = rows(NOW, grown)
    assert found[0].name == "h3"
    assert found[0].rates[CALLS] == 10.0
    assert [one.name for one in rows(NOW, grown, order=CALLS)] == ["h2", "h1", "h4", "h3"]


def test_hosts_are_put_together_by_a_label() -> None:
    assert labels(NOW) == ["zone"]
    found = {one.name: one for one in rows(NOW, rates(NOW, BEFORE, 1.0), by="zone")}
    assert found["a"].totals[CALLS] == 204
    assert found["b"].rates[CALLS] == 118
    assert (found["a"].hosts, found["a"].processes) == (2, 4)
    assert found["b"].members == ("h3", "h4")
    assert [one.name for one in rows(NOW, {}, by="rack")] == ["-"]


def test_a_host_that_is_new_has_no_rate_yet() -> None:
    assert rates(NOW, fleet(h1=1), 1.0).keys() == {"h1"}
    assert rates(NOW, BEFORE, 0.0) == {}


class Given:
    """A measurement of which the values are given."""

    def __init__(self) -> None:
        self.is_over = False
        self.looks = 0

    def now(self) -> FleetResult:
        self.looks += 1
        return BEFORE if self.looks == 1 else NOW


class Closer(Given):
    """What is measured of one place, which can be ended."""

    def __init__(self, place: Place, log: list[str]) -> None:
        super().__init__()
        self.place = place
        self.log = log
        log.append(f"begin {place} by {place.by}")

    def now(self) -> FleetResult:
        self.looks += 1
        names = {
            "process": ["redis-server (11)", "redis-server (12)", "(others)"],
            "thread": ["main (11)", "bio (13)"],
            "stack": ["main;serve;processCommand", "main;cron"],
        }[self.place.by]
        by: dict[str, Value] = {name: (3 - at) * 100 * self.looks for at, name in enumerate(names)}
        times: dict[str, Value] = dict.fromkeys(names, LATENCY)
        totals = (
            FleetTotal("calls", "", sum(map(number, by.values())), "calls", 1, False, by),
            FleetTotal("latency", "", LATENCY, "ns", 1, False, times),
        )
        host = HostResult(self.place.host, "measuring", 2, totals, ("one is missing",))
        return FleetResult("d", totals, (host,), False)

    def stop(self) -> None:
        self.log.append(f"end {self.place}")


Steps = Callable[[FleetTop, Given, "Pilot[None]"], Awaitable[None]]


def watch(steps: Steps, opens: Callable[[Place], Detail] | None = None) -> None:
    log: list[str] = []

    async def run() -> None:
        given = Given()
        seconds = iter(range(10_000))
        app = FleetTop(
            given,
            opens or (lambda place: Closer(place, log)),
            interval=0.02,
            clock=lambda: float(next(seconds)),
        )
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: "104" in screen(app))
            await steps(app, given, pilot)

    asyncio.run(run())


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(screen(pilot.app))


def screen(app: object) -> str:
    assert isinstance(app, FleetTop)
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def test_it_shows_hosts_and_what_one_says() -> None:
    async def steps(app: FleetTop, given: Given, pilot: Pilot[None]) -> None:
        seen = screen(app)
        assert "4 hosts, 8 processes" in seen
        assert "p50 150 ns" in seen
        del given
        await pilot.press("s")
        await until(pilot, lambda: "by rate of calls" in screen(app))

    watch(steps)


def test_hosts_are_grouped_by_a_key() -> None:
    async def steps(app: FleetTop, given: Given, pilot: Pilot[None]) -> None:
        await pilot.press("g")
        await until(pilot, lambda: "ZONE (label)" in screen(app))
        assert "204" in screen(app)
        await pilot.press("g")
        await until(pilot, lambda: "HOST " in screen(app))

    watch(steps)


def test_the_last_values_stay_when_it_is_over() -> None:
    async def steps(app: FleetTop, given: Given, pilot: Pilot[None]) -> None:
        given.is_over = True
        await until(pilot, lambda: "OVER" in screen(app))
        looks = given.looks
        await until(pilot, lambda: given.looks > looks + 2)
        assert app.is_running
        assert "104" in screen(app)
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)

    watch(steps)


# From a host to its processes, threads and stacks.


def test_a_place_says_what_it_is_and_what_is_asked_of_it() -> None:
    process = Place("h1", "redis (server) (12)")
    assert str(process) == "fleet / h1 / redis (server) (12)"
    assert process.within("exe=redis or exe=x") == "(exe=redis or exe=x) and host=h1 and pid=12"
    assert Place("h1").within("*") == "host=h1"
    Selector.parse(process.within("exe=redis or exe=x"))
    stacks = Place("h1", "redis (12)", stacks=True)
    assert [stacks.by, stacks.outer.by, stacks.outer.outer.by] == ["stack", "thread", "process"]
    assert stacks.outer.outer.outer == Place()


def test_parts_have_rates_once_they_were_seen_twice() -> None:
    closer = Closer(Place("h1"), [])
    first, second = closer.now(), closer.now()
    assert [one.rates for one in parts(first)] == [{}, {}, {}]
    (most, *_, least) = parts(second, first, 2.0)
    assert (most.name, most.values[CALLS], most.rates[CALLS]) == ("redis-server (11)", 600, 150.0)
    assert least.name == "(others)"


def test_one_goes_on_to_processes_threads_and_stacks_and_back() -> None:
    log: list[str] = []

    async def steps(app: FleetTop, given: Given, pilot: Pilot[None]) -> None:
        del given
        await pilot.press("enter")
        await until(pilot, lambda: "redis-server (11)" in screen(app))
        assert "fleet / h1: measuring" in screen(app)
        await until(pilot, lambda: "! one is missing" in screen(app))
        assert "p50 150 ns" in screen(app)
        await pilot.press("down", "enter")
        await until(pilot, lambda: "bio (13)" in screen(app))
        assert "fleet / h1 / redis-server (12): measuring" in screen(app)
        await pilot.press("k")
        await until(pilot, lambda: "main;serve;processCommand" in screen(app))
        # Its calls are below, one on a line, the innermost first.
        assert screen(app).index("  serve") > screen(app).index("main;cron")
        assert "fleet / h1 / redis-server (12) / stacks" in screen(app)
        await pilot.press("enter", "k", "escape")
        await until(pilot, lambda: "bio (13)" in screen(app))
        await pilot.press("escape")
        await until(pilot, lambda: "redis-server (11)" in screen(app))
        await pilot.press("escape")
        await until(pilot, lambda: "fleet: 4 hosts" in screen(app))
        await until(pilot, lambda: len(log) == 10)

    watch(steps, lambda place: Closer(place, log))
    host, process = "fleet / h1", "fleet / h1 / redis-server (12)"
    assert log == [
        f"begin {host} by process",
        f"end {host}",
        f"begin {process} by thread",
        f"end {process}",
        f"begin {process} / stacks by stack",
        f"end {process} / stacks",
        f"begin {process} by thread",
        f"end {process}",
        f"begin {host} by process",
        f"end {host}",
    ]


def test_stacks_of_a_host_are_a_key_away() -> None:
    async def steps(app: FleetTop, given: Given, pilot: Pilot[None]) -> None:
        del given
        await pilot.press("k")
        await until(pilot, lambda: "fleet / h1 / stacks: measuring" in screen(app))

    watch(steps)


def test_what_cannot_be_measured_says_why_and_one_goes_back() -> None:
    def refuses(place: Place) -> Detail:
        raise InvalidArgument(f"{place} cannot be measured")

    async def steps(app: FleetTop, given: Given, pilot: Pilot[None]) -> None:
        del given
        await pilot.press("enter")
        await until(pilot, lambda: "fleet / h1 cannot be measured" in screen(app))
        await pilot.press("escape")
        await until(pilot, lambda: "fleet: 4 hosts" in screen(app))

    watch(steps, refuses)


def test_what_stands_for_the_others_cannot_be_gone_into() -> None:
    async def steps(app: FleetTop, given: Given, pilot: Pilot[None]) -> None:
        del given
        await pilot.press("enter")
        await until(pilot, lambda: "(others)" in screen(app))
        await pilot.press("down", "down", "enter", "k")
        await asyncio.sleep(0.1)
        assert "fleet / h1: measuring" in screen(app)

    watch(steps)


def test_groups_of_hosts_have_no_processes() -> None:
    async def steps(app: FleetTop, given: Given, pilot: Pilot[None]) -> None:
        del given
        await pilot.press("g")
        await until(pilot, lambda: "ZONE (label)" in screen(app))
        await pilot.press("enter", "k")
        await asyncio.sleep(0.1)
        assert "ZONE (label)" in screen(app)

    watch(steps)
