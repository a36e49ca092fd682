"""Servers under load: their cases, and how each is started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks.metrics_servers import Redis
from tests.bottlenecks.model import Case, Target
from tests.e2e import test_servers as known
from tests.e2e.harness import Background, answers, children, eventually, free_port, server

PEERS = Path(__file__).parent / "programs" / "peers.py"
ONE_ROW = "select abalance from pgbench_accounts where aid = :aid;"
QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def _server(
    name: str, expected: tuple[str, ...], focus: str, truth: str, accepts: str = ""
) -> Case:
    words = tuple(focus.split())
    return Case(name, "C", name, "server", expected, words, truth, accepts=accepts)


SERVERS = (
    _server(
        "postgres-row",
        ("lock_wait",),
        "LockAcquire ProcSleep XactLockTableWait heap_update ExecUpdate",
        "six clients update the same row, and each holds it for 10 ms",
    ),
    _server(
        "postgres-index",
        ("cpu",),
        "SeqNext heapget heap_getnextslot ExecScan ExecSeqScan ExecInterpExpr ExecStore",
        "each question goes through 100,000 rows, for the index of the key is gone",
    ),
    _server(
        "postgres-buffers",
        ("syscalls", "io_wait"),
        "pread ReadBuffer FileRead mdread",
        "16 buffers for a table of 3,000 pages: each is read again for every question",
        accepts="the files are in the kernel's page cache or not as the machine's memory has it",
    ),
    _server(
        "redis-keys",
        ("cpu",),
        "keysCommand",
        "KEYS over 170,000 keys, of which it finds none, among the GETs of ten clients",
    ),
    _server(
        "nginx-upstream",
        ("peer_wait",),
        "{upstream} upstream",
        "a proxy whose upstream takes 50 ms for each answer",
    ),
    Case(
        *("interpreter-lock", "Python", "workers.py", "server", ("lock_wait",)),
        ("take_gil", "GIL", "interpreter lock"),
        "four threads compute in one interpreter: each waits for its lock 3/4 of the time",
    ),
)


@contextmanager
def running(command: list[Any]) -> Iterator[None]:
    """A client that works until it is enough."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, **QUIET) as process:
        try:
            yield
        finally:
            process.kill()


@contextmanager
def repeated(work: Callable[[], object], pause: float) -> Iterator[list[int]]:
    """Do something again and again beside: a list of one number, how often."""
    enough, done = threading.Event(), [0]

    def rounds() -> None:
        while not enough.wait(pause):
            work()
            done[0] += 1

    beside = threading.Thread(target=rounds)
    beside.start()
    try:
        yield done
    finally:
        enough.set()
        beside.join()


class Sequence:
    """A sequence of a database, which each transaction takes a number from."""

    def __init__(self, port: int, prepare: str) -> None:
        psql = shutil.which("psql") or known.postgres_programs() / "psql"
        address = ["-h", "127.0.0.1", "-p", str(port), "-U", "weft"]
        self._psql = subprocess.Popen(
            [psql, *address, "-XAtq", "-v", "ON_ERROR_STOP=1", "postgres"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._ask(f"create sequence done;\n{prepare}\nselect 1;\n")

    def value(self) -> float:
        return int(self._ask("select last_value from done;\n"))

    def _ask(self, question: str) -> str:
        assert self._psql.stdin and self._psql.stdout
        self._psql.stdin.write(question)
        self._psql.stdin.flush()
        return self._psql.stdout.readline()

    def close(self) -> None:
        self._psql.communicate()


@contextmanager
def postgres(
    folder: Path, script: str, clients: int, settings: tuple[str, ...] = (), prepare: str = ""
) -> Iterator[Target]:
    """One of the backends that serve pgbench's clients; each of them runs the script."""
    # Its user is another one.
    folder.chmod(0o755)
    questions = folder / "questions.sql"
    questions.write_text(f"{script}\nselect nextval('done');\n")
    usual = ["autovacuum=off", "max_parallel_workers_per_gather=0"]
    port = free_port()
    with (
        known.postgres(folder / "data", port, [*usual, *settings], **QUIET) as (targets, client),
        closing(Sequence(port, prepare)) as done,
    ):
        others = targets()
        load = [*client, "-n", "-f", questions, "-c", str(clients), "-T", "100000", "postgres"]
        with running(load):
            # The first connection is a short one, in which pgbench looks at the tables.
            eventually(lambda: done.value() > clients and len(targets()) == len(others) + clients)
            (target, *_) = [pid for pid in targets() if pid not in others]
            yield Target(target, done.value, {})


def postgres_row(folder: Path) -> AbstractContextManager[Target]:
    change = "update pgbench_branches set bbalance = bbalance + 1 where bid = 1;"
    return postgres(folder, f"begin;\n{change}\nselect pg_sleep(0.01);\ncommit;", 6)


def postgres_index(folder: Path) -> AbstractContextManager[Target]:
    return postgres(
        folder,
        f"\\set aid random(1, 100000)\n{ONE_ROW}",
        1,
        prepare="alter table pgbench_accounts drop constraint pgbench_accounts_pkey;",
    )


def postgres_buffers(folder: Path) -> AbstractContextManager[Target]:
    # One row to a page: what it takes is to get the page.
    prepare = (
        "create table documents (number int, body text);"
        " alter table documents alter body set storage plain;"
        " insert into documents select n, repeat('word ', 1400) from generate_series(1, 3000) n;"
    )
    script = "select count(*) from documents where number > 0;"
    return postgres(folder, script, 1, ("shared_buffers=128kB",), prepare)


def postgres_idle(folder: Path) -> AbstractContextManager[Target]:
    return postgres(folder, f"\\set aid random(1, 100000)\n\\sleep 50 ms\n{ONE_ROW}", 1)


@contextmanager
def redis(folder: Path) -> Iterator[tuple[int, int, Redis]]:
    port = free_port()
    quiet = ["--save", "", "--appendonly", "no", "--loglevel", "warning"]
    address = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    with (
        server(["redis-server", *address, *quiet], lambda: answers(port), **QUIET) as pid,
        closing(Redis(port)) as client,
    ):
        yield pid, port, client


@contextmanager
def redis_keys(folder: Path) -> Iterator[Target]:
    with redis(folder) as (pid, port, client), closing(Redis(port)) as other:
        filled = ["redis-benchmark", "-p", str(port), "-n", "400000", "-r", "200000", "-P", "50"]
        subprocess.run([*filled, "-t", "set"], check=True, **QUIET)
        load = ["redis-benchmark", "-p", str(port), "-c", "10", "-r", "200000", "-t", "get", "-l"]
        # No key is like that: what it takes is the search, not the answer.
        with running(load), repeated(lambda: other.ask("KEYS", "*:session:*"), 0.005):
            yield Target(pid, client.commands, {})


@contextmanager
def redis_idle(folder: Path) -> Iterator[Target]:
    with redis(folder) as (pid, _, client), repeated(lambda: client.ask("PING"), 0.1) as done:
        yield Target(pid, lambda: done[0], {})


@contextmanager
def nginx(folder: Path, location: str) -> Iterator[tuple[int, int]]:
    """One worker, which answers for a location: its process, and its port."""
    port = free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    text = known.NGINX.format(user=user, folder=folder, port=port)
    text = text.replace("worker_processes 2", "worker_processes 1")
    status = "location /status { stub_status; }\n"
    text = text.replace('location / { return 200 "weft\\n"; }', f"{status}        {location}")
    (folder / "nginx.conf").write_text(text)
    command = ["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", "stderr"]
    with server(command, lambda: answers(port), **QUIET) as master:
        eventually(lambda: len(children(master)) == 1)
        yield children(master)[0], port


def requests(port: int) -> float:
    with urlopen(f"http://127.0.0.1:{port}/status") as answer:
        return int(answer.read().split()[9])


@contextmanager
def nginx_upstream(folder: Path) -> Iterator[Target]:
    upstream = free_port()
    location = f"location / {{ proxy_pass http://127.0.0.1:{upstream}; }}"
    with (
        Background([sys.executable, PEERS, "http", str(upstream), "50"]),
        nginx(folder, location) as (worker, port),
        running(["wrk", "-t1", "-c8", "-d100000s", f"http://127.0.0.1:{port}/"]),
    ):
        yield Target(worker, lambda: requests(port), {"upstream": str(upstream)})


@contextmanager
def nginx_idle(folder: Path) -> Iterator[Target]:
    with ExitStack() as stack:
        worker, port = stack.enter_context(nginx(folder, 'location / { return 200 "weft\\n"; }'))
        stack.enter_context(Background([sys.executable, PEERS, "visit", str(port), "20"]))
        yield Target(worker, lambda: requests(port), {})


STARTERS: dict[str, Callable[[Path], AbstractContextManager[Target]]] = {
    "postgres-row": postgres_row,
    "postgres-index": postgres_index,
    "postgres-buffers": postgres_buffers,
    "postgres-idle": postgres_idle,
    "redis-keys": redis_keys,
    "redis-idle": redis_idle,
    "nginx-upstream": nginx_upstream,
    "nginx-idle": nginx_idle,
}
