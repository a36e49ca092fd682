"""What a host measures is told by process, by thread and by stack."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

import weft
from tests.e2e.harness import eventually, need
from tests.e2e.test_probes import needs_weaver
from tests.fleets import SERVER, WEFT, Fleet, Process, finished, redis_cli
from weft.fleet.blocking import FleetMeasurement

pytestmark = [needs_weaver, pytest.mark.fleet, pytest.mark.watchdog(300)]

MANY = 3
WHERE = "host=many"
_LONG = ("--for", "600", "--patience", "90")


class Many:
    """A host with several servers of Redis."""

    def __init__(self, fleet: Fleet) -> None:
        folder = fleet.folder
        program = folder / "many-redis"
        program.symlink_to("/usr/bin/redis-server")
        self.fleet = fleet
        self.sockets = [folder / f"many-{number}.sock" for number in range(MANY)]
        self.servers = [
            Process(
                [program, "--port", "0", "--unixsocket", socket, "--save", ""],
                socket.with_suffix(".log"),
                "eady to accept connections",
            )
            for socket in self.sockets
        ]
        options = ["--name", "many", "--policy", str(fleet.policy), "--only", "exe=*many-redis"]
        self.service = Process(
            [*WEFT, "host", "--nats", fleet.url_of(0), *options],
            folder / "many.log",
            "many is ready",
        )

    def start(self) -> None:
        for server in self.servers:
            server.start()
            self.fleet.stack.callback(server.end)
        for server in self.servers:
            server.wait_until_ready()
        self.service.start()
        self.fleet.stack.callback(self.service.end, signal.SIGTERM)
        self.service.wait_until_ready()

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Begin to measure, and wait until all servers are."""
        running = subprocess.Popen(
            self.fleet.fleet("run", "--where", WHERE, *_LONG, "--format", "json", *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

        def is_measuring() -> bool:
            assert running.poll() is None, running.communicate()
            hosts = [one for each in self.fleet.ask("status")["requests"] for one in each["hosts"]]
            return [one["processes"] for one in hosts if one["state"] == "measuring"] == [MANY]

        eventually(is_measuring, 90)
        return running

    def work(self) -> dict[int, int]:
        """Have each server process another number of commands; what each has processed."""
        for times, socket in enumerate(self.sockets, 1):
            redis_cli(socket, "-r", str(100 * times), "ping")
        return {server.pid: 100 * times for times, server in enumerate(self.servers, 1)}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Many]:
    need(SERVER, "redis-server", "redis-cli")
    with Fleet(tmp_path_factory.mktemp("detail"), 0) as fleet:
        fleet.policy.write_text(
            # Beginning takes much of a small machine, again and again here.
            'budget = "100%"\n'
            '[[allow]]\nrequester = "*"\nprocesses = "*"\nbudget = "50%"\nsnippets = "library"\n'
        )
        many = Many(fleet)
        many.start()
        yield many


def own(found: dict[str, Any], metric: str) -> dict[str, Any]:
    (total,) = [one for one in found["hosts"][0]["totals"] if one["metric"] == metric]
    assert isinstance(total, dict)
    return total


def by_pid(by: dict[str, int]) -> dict[int, int]:
    return {int(key.rpartition("(")[2][:-1]): value for key, value in by.items()}


def test_processes_are_told_apart(many: Many) -> None:
    running = many.begin(
        "-m", "calls@processCommand", "-m", "latency@processCommand", "--by", "process"
    )
    worked = many.work()
    found = finished(running, stop=True)
    calls, latency = own(found, "calls"), own(found, "latency")
    assert calls["complete"] or found["hosts"][0]["notes"]
    assert len(calls["by"]) == MANY
    assert sum(calls["by"].values()) == calls["value"]
    assert by_pid(calls["by"]) == worked
    assert sum(one["count"] for one in latency["by"].values()) == latency["value"]["count"]
    (total,) = [one for one in found["totals"] if one["metric"] == "calls"]
    assert total["value"] == calls["value"]
    assert total["by"] == {f"many/{key}": value for key, value in calls["by"].items()}


def test_a_process_that_has_ended_keeps_its_part(many: Many) -> None:
    running = many.begin("-m", "calls@processCommand", "--by", "process")
    many.work()
    last = many.servers[-1]
    name = f"({last.pid})"
    last.end(signal.SIGTERM)
    eventually(lambda: not last.is_running, 60)
    try:
        found = finished(running, stop=True)
    finally:
        last.start()
        last.wait_until_ready()
    (value,) = [value for key, value in own(found, "calls")["by"].items() if name in key]
    assert value >= 100 * MANY


def await_measuring(running: FleetMeasurement) -> None:
    eventually(lambda: running.now().hosts[0].state == "measuring", 60)


def test_threads_and_stacks_are_told_apart(many: Many) -> None:
    with weft.Fleet(many.fleet.url_of(0)) as asked:
        found = {}
        for by in ("thread", "stack"):
            where = f"{WHERE} and pid={many.servers[0].pid}"
            running = asked.start("calls@processCommand", where=where, seconds=600, by=by)
            await_measuring(running)
            redis_cli(many.sockets[0], "-r", "50", "ping")
            running.stop()
            found[by] = running.result().totals[0]
    for total in found.values():
        assert total.by is not None
        assert total.value == sum(total.by.values())  # type: ignore[arg-type]
        assert isinstance(total.value, int)
        assert total.value >= 50
    (thread,) = found["thread"].by or {}
    assert thread.startswith("many/")
    assert f"({many.servers[0].pid})" in thread
    assert all(key.endswith(";processCommand") for key in found["stack"].by or ())


def test_the_view_goes_from_a_host_to_stacks_and_ends_what_it_has_begun(many: Many) -> None:
    from weft.ui.fleet_rows import Place
    from weft.ui.fleet_top import FleetTop

    where, metric = WHERE, "calls@processCommand"
    begun: list[FleetMeasurement] = []

    def screen(app: FleetTop) -> str:
        return "\n".join(strip.text for strip in app.screen._compositor.render_strips())

    async def until(app: FleetTop, text: str) -> None:
        for _ in range(900):
            if text in screen(app):
                return
            await asyncio.sleep(0.1)
        raise TimeoutError(screen(app))

    with weft.Fleet(many.fleet.url_of(0)) as asked:

        def opens(place: Place) -> FleetMeasurement:
            found = asked.start(metric, where=place.within(where), seconds=600, by=place.by)
            begun.append(found)
            return found

        async def look() -> None:
            app = FleetTop(watched, opens, 0.2)
            async with app.run_test(size=(140, 30)) as pilot:
                await until(app, "measuring")
                await pilot.press("enter")
                await until(app, "fleet / many: measuring")
                many.work()
                last = str(many.servers[-1].pid)
                await until(app, f"({last})")
                await until(app, str(100 * MANY))
                # The one that has done most is the first now.
                await pilot.press("ctrl+home", "enter")
                await until(app, f"({last}): measuring")
                many.work()
                await until(app, str(100 * MANY))
                await pilot.press("k")
                await until(app, "/ stacks: measuring")
                many.work()
                await until(app, "  processCommand")
                await pilot.press("escape", "escape", "escape")
                await until(app, "fleet: 1 hosts")

        watched = asked.start(metric, where=where, seconds=600)
        asyncio.run(look())
        watched.stop()
        assert [one.request.by for one in begun[:3]] == ["process", "thread", "stack"]
        eventually(lambda: all(one.is_over for one in (watched, *begun)), 90)


def test_what_cannot_be_divided_says_why(many: Many) -> None:
    with weft.Fleet(many.fleet.url_of(0)) as asked:
        metrics = ["calls@processCommand", "cpu_time"]
        found = asked.run(metrics, where=WHERE, seconds=0.5, by="stack")
        host = found.hosts[0]
        assert any("cpu_time cannot be divided by a key" in note for note in host.notes)
        assert found.total("cpu_time").value is None
        assert found.total("calls", "processCommand").by is not None


def test_an_expression_needs_the_right_to_bring_texts(many: Many) -> None:
    with weft.Fleet(many.fleet.url_of(0)) as asked:
        found = asked.run("calls@processCommand", where=WHERE, seconds=0.5, by="$arg[0]")
    assert found.hosts[0].state == "refused"
    assert "texts of requests are not allowed" in found.hosts[0].notes[0]


def test_a_key_that_makes_no_sense_is_refused_before_anything_is_asked(many: Many) -> None:
    words = many.fleet.fleet("run", "-m", "calls", "--by", "procss")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 2
    assert "nothing can be divided by 'procss'" in done.stderr
    assert "--by process" in done.stderr
