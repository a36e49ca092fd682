"""The attach zoo, continued: servers serve on, without an error, while weft comes and goes."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.e2e.harness import (
    NOBODY,
    answers,
    children,
    eventually,
    free_port,
    need,
    server,
)
from weft import errors

Command = list[str | Path]

ENOUGH = 5
"""How many times weft must have come and gone during a benchmark."""


@pytest.fixture
def port() -> int:
    return free_port()


def benchmark(command: Command, targets: Callable[[], list[int]]) -> str:
    """Run a benchmark while weft attaches to the targets over and over: what it printed."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        visits = 0
        while client.poll() is None:
            for pid in targets():
                try:
                    with weft.attach(pid) as session:
                        assert pid in [pong.tid for pong in session.ping()]
                    visits += 1
                except (errors.NoSuchProcess, errors.ZombieTarget, errors.TargetGone):
                    # What serves one client only may end when the client does.
                    assert not Path(f"/proc/{pid}/exe").exists()
                except errors.Timeout:
                    # It hangs in a write that cannot be interrupted without a trace.
                    continue
        assert client.stdout is not None
        output = client.stdout.read()
    assert client.returncode == 0, output
    assert visits >= ENOUGH
    return output


def test_redis(port: int, tmp_path: Path) -> None:
    need("redis-server", "redis-benchmark")
    quiet = ["--save", "", "--appendonly", "no", "--loglevel", "warning"]
    address = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(tmp_path)]
    with server(["redis-server", *address, *quiet], lambda: answers(port)) as pid:
        requests = ["-n", "60000", "-c", "20", "-t", "set,get,incr,lpush", "--csv"]
        output = benchmark(["redis-benchmark", "-p", str(port), *requests], lambda: [pid])
    rates = re.findall(r'^"\w+","([\d.]+)"', output, re.MULTILINE)
    assert len(rates) == 4, output
    assert all(float(rate) > 0 for rate in rates)
    assert "error" not in output.lower()


NGINX = """
daemon off;
{user}
worker_processes 2;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ return 200 "weft\\n"; }}
    }}
}}
"""


def test_nginx(port: int, tmp_path: Path) -> None:
    need("nginx", "wrk")
    user = "user root;" if os.geteuid() == 0 else ""
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(NGINX.format(user=user, folder=tmp_path, port=port))
    command: Command = ["nginx", "-c", configuration, "-p", tmp_path, "-e", "stderr"]
    with server(command, lambda: answers(port)) as master:
        eventually(lambda: len(children(master)) == 2)
        before = children(master)
        load: Command = ["wrk", "-t1", "-c16", "-d3s", f"http://127.0.0.1:{port}/"]
        output = benchmark(load, lambda: [*before, master])
        assert children(master) == before, "a worker died"
    rate = re.search(r"Requests/sec:\s+([\d.]+)", output)
    assert rate and float(rate[1]) > 0, output
    assert "Socket errors" not in output
    assert "Non-2xx" not in output


def postgres_programs() -> Path:
    """Debian keeps the server's programs out of the path, in a folder per version."""
    found = [Path(program).parent for program in [shutil.which("initdb")] if program]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: folder.parts)
    if not found:
        pytest.skip("PostgreSQL is not installed")
    return found[-1]


def user_for_postgres() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: how to start it, and all else that needs its files."""
    if os.geteuid() != 0:
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


@contextmanager
def postmaster_of(
    data: Path, port: int, settings: Sequence[str] = (), **popen: Any
) -> Iterator[tuple[int, Command]]:
    """Run a server with the data of a folder: its first process, and a client to add to."""
    programs = postgres_programs()
    address = ["-h", "127.0.0.1", "-p", str(port)]
    usual = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"]
    options = [word for setting in (*usual, *settings) for word in ("-c", setting)]
    command: Command = [programs / "postgres", "-D", data, "-p", str(port), *options]
    ready: Command = [programs / "pg_isready", "-q", *address]
    with server(
        command,
        lambda: subprocess.run(ready).returncode == 0,
        cwd="/",
        **user_for_postgres(),
        **popen,
    ) as postmaster:
        yield postmaster, [programs / "pgbench", *address, "-U", "weft"]


@functools.cache
def data_for_pgbench() -> tempfile.TemporaryDirectory[str]:
    """Make the data that every server starts with, once: that takes longer than most tests."""
    folder = tempfile.TemporaryDirectory(prefix="weft-")
    Path(folder.name).chmod(0o755)
    data = Path(folder.name) / "data"
    data.mkdir(mode=0o700)
    identity = user_for_postgres()
    if identity:
        os.chown(data, NOBODY, NOBODY)
    made: Command = [postgres_programs() / "initdb", "-D", data, "-A", "trust", "-U", "weft"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*made, "--no-sync"], check=True, cwd="/", **quiet, **identity)
    with postmaster_of(data, free_port(), **quiet) as (_, client):
        subprocess.run([*client, "-q", "-i", "postgres"], check=True, **quiet)
    return folder


@contextmanager
def postgres(
    data: Path, port: int, settings: Sequence[str] = (), **popen: Any
) -> Iterator[tuple[Callable[[], list[int]], Command]]:
    """Run a server with data for pgbench: what tells its processes, and a client to add to."""
    subprocess.run(["cp", "-a", Path(data_for_pgbench().name) / "data", data], check=True)
    with postmaster_of(data, port, settings, **popen) as (postmaster, client):

        def targets() -> list[int]:
            """Return the postmaster and all backends that serve a client."""
            return [postmaster, *filter(serves_a_client, children(postmaster))]

        yield targets, client


def test_postgres(port: int, public_folder: Path) -> None:
    with postgres(public_folder / "postgres", port) as (targets, client):
        output = benchmark([*client, "-c", "4", "-T", "3", "postgres"], targets)
    assert re.search(r"number of failed transactions: 0 ", output), output


def serves_a_client(pid: int) -> bool:
    """A backend names its client in its title."""
    try:
        return b" 127.0.0.1(" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
