"""Programs under a debugger of your own, while they run from a clone of their code.

weft is the server that GDB, LLDB or an editor connects to. What they see is the program as if weft
were not there.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from weft import _native
from weft.base.running import Running
from weft.control import visits as _visits
from weft.control.clone import ClonedProgram, Tracing
from weft.errors import InvalidArgument, WeftError

if TYPE_CHECKING:
    from weft.model.flow import Flow
    from weft.session import Session

__all__ = ["Address", "Debugged", "Ending", "Owner", "Visited", "visit"]

T = TypeVar("T")

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Ending:
    """How a debugger's visit has ended."""

    kind: Literal["exited", "killed", "ended", "detached", "hung up"]
    """The program has exited, was killed by a signal, was ended by the debugger or was let go by
    it; or the connection is gone, and the program stands still."""
    number: int
    """The program's exit code, or the signal; otherwise 0."""

    @property
    def is_over(self) -> bool:
        """Whether no other debugger can come: there is no program for it any more."""
        return self.kind != "hung up"

    @property
    def exit_code(self) -> int:
        """What a shell would say of the program; 0 if its end is not known."""
        return 128 + self.number if self.kind == "killed" else self.number


@dataclass(frozen=True)
class Address:
    """Where a debugger finds the server: a host and a port, or the path of a socket."""

    host: str
    port: int
    path: Path | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``HOST:PORT``, ``:PORT``, ``PORT`` or ``PATH``.

        Without a host, only this machine can connect.
        """
        host, colon, port = text.rpartition(":")
        if "/" in text or (not colon and not text.isdecimal()):
            return cls("", 0, Path(text).absolute())
        if not (port.isascii() and port.isdecimal() and len(port) <= 5) or int(port) > 0xFFFF:
            raise InvalidArgument(
                f"{text} is no address",
                f"{port or 'nothing'} is no port",
                "say HOST:PORT, as localhost:1234, or name a socket by a path with a slash",
            )
        return cls(host.strip("[]") or _LOOPBACK, int(port))

    def listen(self) -> socket.socket:
        """Return a socket that listens there; one with a path is for its owner only."""
        try:
            return self._listen_at_path() if self.path else self._listen_at_port()
        except OSError as error:
            advice = "end whoever listens there, or choose another"
            if self.path and self.path.exists():
                advice = f"if nobody uses it any more: rm {self.path}"
            raise WeftError(
                f"weft cannot listen at {self}", error.strerror or str(error), advice
            ) from None

    def _listen_at_path(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        mask = os.umask(stat.S_IXUSR | stat.S_IRWXG | stat.S_IRWXO)
        try:
            listener.bind(str(self.path))
        except OSError:
            listener.close()
            raise
        finally:
            os.umask(mask)
        listener.listen(1)
        return listener

    def _listen_at_port(self) -> socket.socket:
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _name, address = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
        listener.listen(1)
        return listener

    def __str__(self) -> str:
        return str(self.path) if self.path else f"{self.host}:{self.port}"


class Owner(Protocol):
    """What weft does for the debugger, on the thread that holds the program."""

    def session(self) -> Session:
        """Return the session in which the program is measured."""

    def check(self, metric: str) -> None:
        """Raise an error if there is no such metric, wherever it is to be measured."""

    def measure_or_wait(self, metric: str) -> None:
        """Measure a metric as soon as what it is about is there."""

    def measured(self) -> str:
        """Return what is measured, as a table."""


class Debugged(Running):
    """A program that stands still for a debugger; made by :mod:`weft.debug`.

    It is a context manager. Leaving it ends a program that weft has started, and lets one go that
    was running.

    ```python
    from weft import debug

    address = debug.Address.parse("1234")
    with debug.launch(["ls", "-l"]) as program, address.listen() as listener:
        connection, _ = listener.accept()  # gdb -ex "target remote :1234" ls
        print(program.serve(connection))
    ```
    """

    def __init__(
        self,
        target: _native.Debugger,
        owner: Owner,
        cloned: ClonedProgram,
        *,
        is_attached: bool,
    ) -> None:
        self._target = target
        self._owner = owner
        self._cloned = cloned
        self._is_attached = is_attached

    @property
    def pid(self) -> int:
        """The process id of the program; of the first, if it was started more than once."""
        return self._target.pid

    def flow(self) -> Flow:
        """Return what has been executed so far, if it is recorded: see :meth:`weft.Cloned.flow`."""
        return self._cloned.flow()

    def trace_to(self, path: Path) -> Tracing:
        """Write all that it executes to a file: see :meth:`weft.Cloned.trace_to`."""
        return self._cloned.trace_to(path)

    def measure(self, metric: str) -> None:
        """Measure a metric of the library, ``latency@/Code/server/handle`` say, from now on.

        The program stands still, and no debugger is connected: there, ``monitor weft metric`` does
        the same. What is in a library that is not loaded yet is measured once it is.
        """
        self._owner.check(metric)
        self._target.call(lambda: self._owner.measure_or_wait(metric))

    def weave(self, act: Callable[[Session], T]) -> T:
        """Do something with the session in which the program is measured: insert a probe, say.

        The program stands still, and no debugger is connected. Only what is done here can weave.

        ```python
        with debug.launch(["ls"]) as program:
            probe = program.weave(lambda session: session.insert("/Code/ls/main", "counter n; n++"))
        ```
        """
        done: list[T] = []
        self._target.call(lambda: done.append(act(self._owner.session())))
        return done[0]

    def measured(self) -> str:
        """Return the metrics and what they have come to, as a table; empty if there are none."""
        return self._owner.measured()

    def serve(self, connection: socket.socket) -> Ending:
        """Serve a debugger until it goes, or the program does."""
        if connection.family != socket.AF_UNIX:
            # Questions and answers are short, and each waits for the other.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Ending(*self._target.serve(connection.fileno()))

    def _close(self) -> None:
        """End the program if weft has started it, or let it go."""
        if self._is_attached:
            self._target.detach()
        else:
            self._target.kill()

    def __repr__(self) -> str:
        return f"<weft.debug.Debugged pid={self.pid}>"


class Visited(Running):
    """A process that another weft has in a clone; made by :func:`visit`.

    It runs, and that weft serves the debuggers.
    """

    def __init__(self, pid: int, host: socket.socket) -> None:
        self.pid = pid
        """The process."""
        self._host = host

    def serve(self, connection: socket.socket) -> Ending:
        """Serve a debugger until it disconnects, or the program ends."""
        match _visits.ask(self._host, connection):
            case {"kind": kind, "number": int(number)}:
                return Ending(kind, number)  # type: ignore[arg-type]
            case answer:
                raise WeftError(f"process {self.pid} cannot be visited", str(answer.get("error")))

    def _close(self) -> None:
        """Leave."""
        self._host.close()


def visit(pid: int) -> Visited | None:
    """Find the weft that has a process in a clone; `None` if there is none of this user's."""
    host = _visits.knock(pid)
    return None if host is None else Visited(pid, host)
