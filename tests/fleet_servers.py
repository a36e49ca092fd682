"""Servers of which a fleet measures how many requests they have, and which count these themselves.

They are asked over sockets in a folder, which reach into network namespaces.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from tests.e2e.harness import children, code, eventually

PATIENCE = 90.0


class Process:
    """A process that writes to a file, which can be killed and started again."""

    def __init__(
        self, command: Sequence[str | Path], log: Path, ready: str, folder: Path | None = None
    ) -> None:
        self.command = [*map(str, command)]
        self.log = log
        self.ready = ready
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self._before = 0

    def start(self) -> None:
        self._before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )

    def wait_until_ready(self) -> None:
        eventually(self._is_ready, PATIENCE)

    def _is_ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.command} has ended: {self.log.read_text()}")
        return self.ready.encode() in self.log.read_bytes()[self._before :]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def end(self, number: int = signal.SIGKILL) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE)


class Server:
    """A server that counts its requests itself; while it is locked, nobody has it work."""

    kind = ""
    focus = ""
    """What is called once for each request."""

    def __init__(self, process: Process, address: Path) -> None:
        self.process = process
        self.address = address
        self.lock = threading.Lock()
        self._code: set[tuple[str, str]] = set()
        self.expected = 0
        """How many requests it has had while it was measured."""
        self._before = 0

    def start(self) -> None:
        self.process.start()
        self._wait_until_ready()
        if not self._code:
            self._code = set().union(*map(_programs, self.pids))

    def _wait_until_ready(self) -> None:
        self.process.wait_until_ready()

    @property
    def pids(self) -> list[int]:
        """Its processes: the first, and what that has started."""
        return [self.process.pid, *children(self.process.pid)]

    def count(self) -> int:
        """How many requests it has had since it was started, this question included."""
        raise NotImplementedError

    def serve(self, times: int) -> None:
        """Have it answer so many requests."""
        raise NotImplementedError

    def begin_counting(self) -> None:
        # It is measured already, so this question counts.
        self._before, self.expected = self.count() - 1, 0

    def end_counting(self) -> None:
        self.expected += self.count() - self._before
        self._before = 0

    def end(self) -> None:
        """End it as if there were an accident; what it has counted until then is kept."""
        self.end_counting()
        self.process.end(signal.SIGKILL)

    def is_harmed(self) -> bool:
        """Whether it is not as it was. Nothing may measure it any more."""
        if not self.process.is_running:
            return True
        self.serve(1)
        return any(_programs(pid) - self._code for pid in self.pids)

    def _asked(self, question: bytes, end: bytes, times: int) -> bytes:
        """Send something, and read until there were so many ends of answers."""
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(str(self.address))
            connection.sendall(question)
            answer = b""
            while answer.count(end) < times:
                part = connection.recv(1 << 16)
                if not part:
                    raise RuntimeError(f"{self.kind} has answered {answer!r} to {question!r}")
                answer += part
            return answer


def _programs(pid: int) -> set[tuple[str, str]]:
    """What code a process has, wherever that is: it may have been started anew. None if it ends."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return {(mapping.partition(" ")[2], hashed) for mapping, hashed in code(pid).items()}
    return set()


class Redis(Server):
    """A server of Redis."""

    kind = "redis"
    focus = "/Code/redis-server/processCommand"

    def __init__(
        self,
        folder: Path,
        name: str,
        inside: Sequence[str] = (),
        program: str | Path = "redis-server",
    ) -> None:
        address = folder / f"{name}.sock"
        command: list[str | Path] = [*inside, program, "--port", "0", "--unixsocket", address]
        command += ["--save", ""]
        log = folder / f"{name}.redis.log"
        super().__init__(Process(command, log, "eady to accept connections", folder), address)

    def count(self) -> int:
        # It counts this question when it has answered it.
        answer = self._asked(b"INFO stats\r\n", b"\r\n\r\n", 1)
        return int(answer.split(b"total_commands_processed:")[1].split()[0]) + 1

    def serve(self, times: int) -> None:
        self._asked(b"PING\r\n" * times, b"+PONG\r\n", times)


class Nginx(Server):
    """A server of nginx with a master and two workers, which are its children."""

    kind = "nginx"
    focus = "/Code/nginx/ngx_http_create_request"

    def __init__(
        self, folder: Path, name: str, inside: Sequence[str] = (), program: str | Path = "nginx"
    ) -> None:
        address = folder / f"{name}.nginx"
        configuration = folder / f"{name}.nginx.conf"
        own = folder / f"{name}.files"
        own.mkdir()
        user = "user root;" if os.geteuid() == 0 else ""
        configuration.write_text(_NGINX.format(user=user, folder=own, address=address))
        command: list[str | Path] = [*inside, program, "-c", configuration, "-p", own]
        command += ["-e", "stderr"]
        process = Process(command, folder / f"{name}.nginx.log", "start worker processes", folder)
        super().__init__(process, address)

    def _wait_until_ready(self) -> None:
        super()._wait_until_ready()
        eventually(lambda: len(self.workers) == _WORKERS, PATIENCE)

    @property
    def workers(self) -> list[int]:
        """Those that have begun to work, and not to end: they call themselves something else."""
        return [pid for pid in children(self.process.pid) if _called(pid) == _WORKER]

    def count(self) -> int:
        answer = self._asked(_request("/status", "close"), b"Waiting:", 1)
        return int(answer.split(b"requests")[1].split()[2])

    def serve(self, times: int) -> None:
        several = _request("/", "keep-alive") * (times - 1) + _request("/", "close")
        self._asked(several, b"\r\n\r\nserved\n", times)

    def end(self) -> None:
        # Of a master that is killed the workers stay.
        self.end_counting()
        self.process.end(signal.SIGTERM)

    def kill_worker(self) -> None:
        """Kill a worker; the master forks another."""
        before = self.workers
        os.kill(before[0], signal.SIGKILL)
        eventually(lambda: len({*self.workers} - {before[0]}) == _WORKERS, PATIENCE)

    def reload(self) -> None:
        """Have the master fork new workers, and the old ones end."""
        before = {*self.workers}
        self.process.send(signal.SIGHUP)
        eventually(lambda: len(self.workers) == _WORKERS and not before & {*self.workers}, PATIENCE)


def _called(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ")
    return b""


_WORKERS = 2
_WORKER = b"nginx: worker process"
_NGINX = """
daemon off;
{user}
worker_processes 2;
pid {folder}/nginx.pid;
error_log stderr notice;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen unix:{address};
        location / {{ return 200 "served\\n"; }}
        location = /status {{ stub_status; }}
    }}
}}
"""


def _request(path: str, connection: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: here\r\nConnection: {connection}\r\n\r\n".encode()


class Lines(Server):
    """A server in Go, which answers lines."""

    kind = "go"
    focus = "/Code/counted_server/main.answer"

    def __init__(self, folder: Path, name: str, inside: Sequence[str], server: Path) -> None:
        address = folder / f"{name}.lines"
        command: list[str | Path] = [*inside, server, address]
        super().__init__(Process(command, folder / f"{name}.lines.log", "ready", folder), address)

    def count(self) -> int:
        return int(self._asked(b"\n", b"\n", 1))

    def serve(self, times: int) -> None:
        self._asked(b"\n" * times, b"\n", times)


class Load:
    """Has servers work until told to stop, at no more than a moderate rate.

    No request is left half done, also not when a server is about to be ended: it is locked then.
    """

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep)
        self._failure: BaseException | None = None

    def _keep(self) -> None:
        try:
            rounds = 0
            while not self._stop.wait(_REST):
                rounds += 1
                for number, server in enumerate(self._servers):
                    # As many as make a total that is wrong by another's share be seen.
                    if server.lock.acquire(blocking=False):
                        try:
                            server.serve((rounds + 7 * number) % _MOST + 1)
                        finally:
                            server.lock.release()
        except BaseException as failure:
            self._failure = failure

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure


_REST = 0.05
_MOST = 20
