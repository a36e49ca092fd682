"""What weft measures in servers is what they, and those whom they serve, say themselves."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import weft
from benchmarks.metrics_servers import Redis, busy_redis, throughput_ratio
from tests.e2e.harness import (
    Background,
    answers,
    children,
    eventually,
    free_port,
    is_blocked,
    need,
    server,
)
from tests.e2e.test_servers import (
    NGINX,
    Command,
    postgres,
    postgres_programs,
    serves_a_client,
)
from weft.mdl.one_liners import parse_one_liner
from weft.metrics.metric import Metric

Build = Callable[[str], Path]

CLOSE = 0.05
"""How far quantiles may be from those that the server has measured itself."""
ROUNDS = 6
"""How often they are compared where the machine has its part, until they are as close."""
LENIENT = 0.8
"""What a server must do at least in a second of its CPU time with metrics, over that without."""


@contextmanager
def redis(folder: Path) -> Iterator[tuple[int, int, Redis]]:
    """Run a server: its process, its port, and a client that asks it."""
    need("redis-server", "redis-benchmark")
    port = free_port()
    quiet = ["--save", "", "--appendonly", "no", "--loglevel", "warning"]
    address = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    with (
        server(["redis-server", *address, *quiet], lambda: answers(port)) as pid,
        closing(Redis(port)) as client,
    ):
        yield pid, port, client


def number(metric: Metric) -> int:
    assert isinstance(metric.value, int)
    return metric.value


def distribution(metric: Metric) -> weft.Histogram:
    assert isinstance(metric.value, weft.Histogram)
    return metric.value


def test_redis_commands(tmp_path: Path) -> None:
    with redis(tmp_path) as (pid, port, client), weft.attach(pid) as session:
        # call() runs a command and counts it; processCommand() also sees those that are refused.
        run = session.metric("calls", "/Code/redis-server/call")
        asked = session.metric("calls", "/Code/redis-server/processCommand")
        gets = session.metric("calls", "/Code/redis-server/getCommand")
        # A question is not in its own answer, but in that of the next one; to weft it is at once.
        before, run_before, asked_before = client.commands(), number(run), number(asked)
        load: Command = ["redis-benchmark", "-p", str(port), "-n", "40000", "-c", "20", "-q"]
        subprocess.run([*load, "-t", "set,get,incr,lpush"], check=True, stdout=subprocess.DEVNULL)
        for _ in range(7):
            assert client.ask("NO", "SUCH", "COMMAND").startswith("-ERR unknown command")
        after, run_after, asked_after = client.commands(), number(run), number(asked)
        assert after - before >= 160_000
        assert run_after - run_before == after - before
        assert asked_after - asked_before == after - before + 7
        assert number(gets) == 40_000


@pytest.mark.alone
def test_redis_latency(tmp_path: Path) -> None:
    """The server may lose its processor between weft's look at the clock and its own.

    That moves the slowest calls of a round, so the best round counts: what is wrong by itself is
    wrong in all.
    """
    farthest = []
    with redis(tmp_path) as (pid, port, client), weft.attach(pid) as session:
        fill: Command = ["redis-benchmark", "-p", str(port), "-n", "40000", "-r", "20000", "-q"]
        subprocess.run([*fill, "-t", "set"], check=True, stdout=subprocess.DEVNULL)
        for _ in range(ROUNDS):
            assert client.ask("CONFIG", "RESETSTAT") == "+OK"
            latency = session.metric("latency", "/Code/redis-server/keysCommand")
            for _ in range(200):
                assert client.ask("KEYS", "nothing has such a name") == "*0"
            stats = client.info("commandstats")["cmdstat_keys"]
            quantiles = client.info("latencystats")["latency_percentiles_usec_keys"]
            own = dict(pair.split("=") for pair in f"{stats},{quantiles}".split(","))
            seen = distribution(latency)
            assert seen.count == int(own["calls"]) == 200
            pairs = [
                (seen.mean, own["usec_per_call"]),
                (seen.quantile(0.5), own["p50"]),
                (seen.quantile(0.99), own["p99"]),
            ]
            farthest.append(max(abs(ours / 1000 / float(theirs) - 1) for ours, theirs in pairs))
            if farthest[-1] <= CLOSE:
                return
            latency.remove()
    pytest.fail(f"the farthest apart in each round: {farthest}")


@pytest.mark.alone
def test_latency_is_what_the_server_measures_itself(build: Build) -> None:
    with Background([build("metric_server")]) as program, weft.attach(program.pid) as session:
        port = int(program.output.split()[0])
        latency = session.metric("latency", "/Code/metric_server/handle_request")
        with (
            socket.create_connection(("127.0.0.1", port)) as client,
            client.makefile("rb") as replies,
        ):
            for request in range(4000):
                # From 20 to 220 microseconds, in no order: every quantile has many around it.
                client.sendall(b"work %d\n" % (20 + request * 7919 % 200))
                assert replies.readline() == b"done\n"
            client.sendall(b"truth\n")
            own = json.loads(replies.readline())
        seen = distribution(latency)
        assert seen.count == own["count"] == 4000
        assert seen.mean == pytest.approx(own["mean"], rel=CLOSE)
        assert seen.quantile(0.5) == pytest.approx(own["p50"], rel=CLOSE)
        assert seen.quantile(0.99) == pytest.approx(own["p99"], rel=CLOSE)
        latency.remove()
        assert program.finish()[0] == 7


@pytest.mark.parametrize("load", [["-c", "4", "-t", "300"], ["-C", "-c", "2", "-t", "40"]])
def test_postgres_transactions(load: list[str], public_folder: Path) -> None:
    """All backends count: those that are there, and those that come for one transaction only."""
    folder = public_folder / f"transactions{len(load)}"
    port = free_port()
    asking = [shutil.which("psql") or postgres_programs() / "psql", "-h", "127.0.0.1"]
    question = "select sum(xact_commit + xact_rollback) from pg_stat_database"

    def own_count(postmaster: int) -> int:
        rest(postmaster)
        words = [*asking, "-p", str(port), "-U", "weft", "-Atc", question, "postgres"]
        said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
        return int(said)

    def rest(postmaster: int) -> None:
        # What a backend has done is known when it has ended.
        eventually(lambda: not any(map(serves_a_client, children(postmaster))))

    with postgres(folder, port, settings=["autovacuum=off"]) as (targets, client):
        (postmaster,) = targets()[:1]
        rest(postmaster)
        with weft.attach(postmaster) as session:
            ends = session.metric("calls", "/Code/postgres/AtEOXact_PgStat_Database")
            before = own_count(postmaster)
            command: Command = [*client, *load, "postgres"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            rest(postmaster)
            # The first question's own transactions are in the answer to the second.
            counted = number(ends)
            assert counted == own_count(postmaster) - before
            transactions = int(load[-1]) * int(load[-3])
            assert counted >= transactions
            assert len(ends.node.probes[0].processes() if ends.node else []) >= 4


def test_nginx_requests(tmp_path: Path) -> None:
    """Debian strips nginx and its log has no symbol: each line of it is one write, though."""
    need("nginx", "wrk")
    port = free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    log = tmp_path / "access.log"
    configuration = tmp_path / "nginx.conf"
    text = NGINX.format(user=user, folder=tmp_path, port=port)
    configuration.write_text(text.replace("access_log off;", f"access_log {log};"))
    command: Command = ["nginx", "-c", configuration, "-p", tmp_path, "-e", "stderr"]
    with server(command, lambda: answers(port)) as master:
        eventually(lambda: len(children(master)) == 2)
        before = set(children(master))
        with weft.attach(master) as session:
            metrics, lists, _ = parse_one_liner("entry write { written[$arg[0]]++ }")
            session.metrics.define(lists)
            (written,) = session.metrics.request_all([(metric, "") for metric in metrics])
            # The workers that come now have what their master has.
            os.kill(master, signal.SIGHUP)
            eventually(lambda: len(children(master)) == 2 and not before & set(children(master)))
            lines = log.read_bytes().count(b"\n")
            load: Command = ["wrk", "-t1", "-c16", "-d2s", f"http://127.0.0.1:{port}/"]
            output = subprocess.run(load, check=True, stdout=subprocess.PIPE, text=True).stdout
            workers = children(master)
            eventually(lambda: all(map(is_blocked, workers)))
            lines = log.read_bytes().count(b"\n") - lines
            (descriptor,) = {
                entry.name
                for worker in workers
                for entry in Path(f"/proc/{worker}/fd").iterdir()
                if entry.readlink() == log
            }
            assert isinstance(written.value, dict)
            assert written.value[descriptor] == lines
            served = re.search(r"(\d+) requests in", output)
            assert served and lines >= int(served[1]) > 0
        assert children(master) == workers, "a worker died"


@pytest.mark.alone
def test_throughput(tmp_path: Path) -> None:
    need("redis-server", "redis-benchmark")
    metrics = [("calls", "/Code/redis-server/call"), ("latency", "/Code/redis-server/call")]
    with busy_redis(tmp_path) as (pid, client):

        def cpu_time() -> float:
            return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9

        ratio = throughput_ratio(pid, client.commands, metrics, 15, 0.2, cpu_time)
        assert ratio >= LENIENT
