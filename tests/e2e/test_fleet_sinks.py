"""Hosts tell Prometheus and collectors of OTLP what they tell the fleet."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
pytest.importorskip("prometheus_client")

import weft
from tests.collector import Collector, attributes, collecting
from tests.e2e.harness import code, eventually, need, server
from tests.e2e.test_probes import needs_weaver
from tests.fleets import FUNCTION, SERVER, Fleet, Host, free_port, redis_cli
from weft.fleet.blocking import FleetMeasurement
from weft.fleet.results import FleetResult, FleetTotal, HostResult

pytestmark = [needs_weaver, pytest.mark.fleet, pytest.mark.watchdog(300)]

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana-fleet.json"
METRICS = (f"calls@{FUNCTION}", f"latency@{FUNCTION}")
WHERE = "exe=redis-server"


class Prometheus:
    """Prometheus' own server, which reads all hosts."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, what: str, **query: str) -> Any:
        """What it says; a query that it refuses is an error."""
        url = f"{self.url}/{what}?{urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)["data"]
        except HTTPError as error:
            raise ValueError(f"{query}: {error.read().decode()}") from None

    def values(self, query: str) -> dict[str, float]:
        """The result of a query, by host."""
        found = self.ask("query", query=query)["result"]
        return {one["metric"].get("host", ""): float(one["value"][1]) for one in found}

    def is_ready(self) -> bool:
        """Whether it has read all hosts: it listens before it can answer."""
        try:
            return len(self.values("up == 1")) > 0 and len(self.values("weft_host_requests")) == 2
        except (URLError, ValueError, ConnectionError):
            return False


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Fleet]:
    """Two hosts that tell everybody; the second has a process, too, that is for nobody."""
    need(SERVER, "redis-server", "redis-benchmark", "redis-cli")
    sleeper = subprocess.Popen(["sleep", "3600"])
    try:
        with Fleet(tmp_path_factory.mktemp("fleet"), 2) as fleet:
            for host in fleet.hosts:
                pids = str(host.redis.pid)
                if host is fleet.hosts[1]:
                    pids += f", {sleeper.pid}"
                sinks = ["--prometheus", f":{free_port()}", "--otlp", collector.url]
                host.start_service("--only", f"pid in ({pids})", *sinks)
            for host in fleet.hosts:
                assert host.service is not None
                host.service.wait_until_ready()
            yield fleet
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.fixture(scope="module")
def prometheus(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    need("prometheus")
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    config = folder / "prometheus.yml"
    pages = [address(host) for host in fleet.hosts]
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        f"scrape_configs: [{{job_name: weft, static_configs: [{{targets: {pages}}}]}}]\n"
    )
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    asked = Prometheus(port)
    with server(command, lambda: True):
        eventually(asked.is_ready, 90)
        yield asked


def address(host: Host) -> str:
    """Where a host serves its metrics."""
    assert host.service is not None
    found = re.search(r"http://(\S+)/metrics", host.service.log.read_text())
    assert found is not None
    return found[1]


def measured(fleet: Fleet, where: str) -> tuple[FleetMeasurement, FleetResult]:
    """A request, with some work while all hosts measure."""
    with weft.Fleet(fleet.url_of(0)) as asked:
        running = asked.start(METRICS, where=where, seconds=600, interval=0.5)
        eventually(lambda: {one.state for one in running.now().hosts} == {"measuring"}, 90)
        for at, host in enumerate(fleet.hosts, 1):
            redis_cli(host.socket, "-r", str(100 * at), "ping")
        running.stop()
        return running, running.result()


def own(found: FleetResult, host: Host) -> HostResult:
    (result,) = (one for one in found.hosts if one.host == host.name)
    return result


def number(total: FleetTotal) -> float:
    assert isinstance(total.value, int | float)
    return float(total.value)


def histogram(result: HostResult) -> weft.Histogram:
    (value,) = (one.value for one in result.totals if one.metric == "latency")
    assert isinstance(value, weft.Histogram)
    return value


def test_prometheus_has_what_the_fleet_has(fleet: Fleet, prometheus: Prometheus) -> None:
    running, found = measured(fleet, WHERE)
    its = f'{{request="{running.request.id}", requester="{running.request.requester}"}}'
    for host in fleet.hosts:
        result = own(found, host)
        calls, latency = result.totals[0], histogram(result)
        assert number(calls) >= 100
        # An estimate may have been higher before, and counters do not fall.
        if not (calls.complete and result.totals[1].complete):
            continue

        def value_of(name: str, host: str = host.name) -> float:
            return prometheus.values(name + its).get(host, -1)

        wanted = (number(calls), latency.count, latency.sum / 1e9)

        def is_there(wanted: tuple[float, ...] = wanted) -> bool:
            names = ("calls_total", "latency_seconds_count", "latency_seconds_sum")
            return tuple(value_of(f"weft_{name}") for name in names) == wanted

        eventually(is_there, 60)
    if found.complete:
        total = {"": number(found.total("calls", FUNCTION))}
        eventually(lambda: prometheus.values(f"sum(weft_calls_total{its})") == total, 60)
    by_zone = f"sum by (label_zone) (weft_calls_total{its})"

    def zones() -> list[dict[str, str]]:
        return [one["metric"] for one in prometheus.ask("query", query=by_zone)["result"]]

    eventually(lambda: zones() == [{"label_zone": "b"}], 60)
    # What is exact is said to be so, and nothing else.
    exact = f'weft_status{{metric="calls", status="exact", request="{running.request.id}"}}'
    told = {one.host: float(one.totals[0].complete) for one in found.hosts}
    eventually(lambda: prometheus.values(exact) == told, 60)


def test_what_is_incomplete_is_marked(fleet: Fleet, prometheus: Prometheus) -> None:
    running, found = measured(fleet, "*")
    first, second = fleet.hosts
    assert "no rule allows" in str(own(found, second).notes)
    its = f'metric="calls", request="{running.request.id}"'
    query = f'weft_status{{status="incomplete", {its}}}'
    # A machine that is busy may miss a page now and then: its series are not there meanwhile.
    wanted = {first.name: float(not own(found, first).complete), second.name: 1.0}
    eventually(lambda: prometheus.values(query) == wanted, 60)
    missing = f'weft_missing{{host="{second.name}", why=~".*no rule allows.*", {its}}}'
    eventually(lambda: second.name in prometheus.values(missing), 60)


def test_prometheus_takes_the_queries_of_the_dashboard(
    fleet: Fleet, prometheus: Prometheus
) -> None:
    running, _ = measured(fleet, "*")
    its = f'request="{running.request.id}"'
    eventually(lambda: len(prometheus.values(f"weft_missing{{{its}}}")) > 0, 60)
    names = {one for one in prometheus.ask("label/__name__/values") if one.startswith("weft_")}
    dashboard = json.loads(DASHBOARD.read_text())
    variables = {"host": ".+", "request": ".+", "by": "label_zone", "counter": "weft_calls_total"}
    assert {"datasource", *variables} == {one["name"] for one in dashboard["templating"]["list"]}
    variables["__rate_interval"] = "5m"
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            query = re.sub(r"\$(\w+)", lambda name: variables[name[1]], target["expr"])
            assert set(re.findall(r"\bweft_\w+", query)) <= names, query

            def is_answered(query: str = query) -> bool:
                return bool(prometheus.ask("query", query=query)["result"])

            eventually(is_answered, 60)
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            query = variable["query"]["query"]
            asked = re.fullmatch(r"label_values\((.+), \w+\)|metrics\((.+)\)", query)
            assert asked is not None
            if asked[1]:
                assert prometheus.ask("series", **{"match[]": asked[1]}), query
            else:
                assert any(re.fullmatch(asked[2], name) for name in names)


def points(collector: Collector, host: str, metric: str, request: str) -> list[Any]:
    """All points of a metric that a host has sent for a request, the newest last."""
    return [
        point
        for _, sent in collector.requests
        for resource in sent.resource_metrics
        if attributes(resource.resource).get("host.name") == host
        for scope in resource.scope_metrics
        for one in scope.metrics
        if one.name == metric
        for point in (*one.sum.data_points, *one.histogram.data_points)
        if attributes(point)["weft.request"] == request
    ]


def test_a_collector_has_what_the_fleet_has(fleet: Fleet, collector: Collector) -> None:
    running, found = measured(fleet, WHERE)
    request = running.request.id
    for host in fleet.hosts:
        result = own(found, host)

        def calls(name: str = host.name) -> list[Any]:
            return points(collector, name, "weft.calls", request)

        def is_told(total: FleetTotal = result.totals[0]) -> bool:
            some = calls()
            is_last = bool(some) and some[-1].as_int == number(total)
            return is_last or (bool(some) and not total.complete)

        eventually(is_told, 60)
        told = attributes(calls()[-1])
        assert (told["weft.focus"], told["weft.requester"]) == (FUNCTION, running.request.requester)
        assert len({one.start_time_unix_nano for one in calls()}) == 1
        assert all(one.time_unix_nano > one.start_time_unix_nano for one in calls())
        latency = points(collector, host.name, "weft.latency", request)[-1]
        wanted = histogram(result)
        if result.totals[1].complete:
            assert (latency.count, latency.sum) == (wanted.count, wanted.sum / 1e9)
    abouts = [
        attributes(resource.resource)
        for _, sent in collector.requests
        for resource in sent.resource_metrics
    ]
    assert {one["service.name"] for one in abouts} == {"weft-host"}
    assert {one["host.name"] for one in abouts} == {host.name for host in fleet.hosts}
    assert {one["weft.label.zone"] for one in abouts} == {"b"}


def test_a_collector_that_hangs_delays_nothing(fleet: Fleet) -> None:
    host = fleet.hosts[0]
    service = host.service
    assert service is not None
    before = [*service.command]
    service.end(signal.SIGTERM)
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        service.command[-1] = f"http://127.0.0.1:{hangs.getsockname()[1]}"
        try:
            service.start()
            service.wait_until_ready()
            with weft.Fleet(fleet.url_of(0)) as asked:
                where = f"host={host.name} and {WHERE}"
                running = asked.start(METRICS[:1], where=where, seconds=600)
                eventually(lambda: running.now().hosts[0].state == "measuring", 90)
                count = host.commands()
                redis_cli(host.socket, "-r", "100", "ping")
                counted = host.commands() - count + 1
                note = "does not take metrics"
                eventually(lambda: note in service.log.read_text(), 90)
                running.stop()
                found = running.result()
            assert found.totals[0].value == counted
            assert found.hosts[0].state == "stopped"
        finally:
            # It ends although the collector still hangs, and has said it once.
            service.end(signal.SIGTERM)
            service.command[:] = before
        assert service.log.read_text().count(note) == 1
        assert code(host.redis.pid) == host.code
    service.start()
    service.wait_until_ready()


@pytest.mark.parametrize(
    ("option", "value", "exit_code", "said"),
    [
        ("--prometheus", "", 1, "cannot serve metrics on 127.0.0.1:"),
        ("--otlp", "127.0.0.1:4318", 2, "no address of a collector"),
        ("--labels", "a.b=1,a/b=2", 2, "two labels of this host are both label_a_b"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_done(
    fleet: Fleet, option: str, value: str, exit_code: int, said: str
) -> None:
    host = fleet.hosts[1]
    assert host.service is not None
    command = [*host.service.command]
    if value:
        # The port is taken already by the one that runs.
        command[command.index("--prometheus") + 1] = ":0"
        command += [option, value]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, said in done.stderr) == (exit_code, True), done.stderr
