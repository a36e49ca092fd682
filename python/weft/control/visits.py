"""Debuggers for a program that this weft has in a clone, requested by another weft.

The kernel lets one thread trace a program, so the weft that measures it has to serve the debugger,
too. The other weft hands over the debugger's connection, and receives how the visit has ended.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.debug import Debugged

__all__ = ["Visits", "ask", "knock"]

_CREDENTIALS = struct.Struct("3i")
_LAST_WORDS = 1.0
"""How many seconds a debugger has to hear of the program's end, and to go by itself."""


def _name(pid: int) -> str:
    """The beginning of the name under which a weft waits for those who want to debug a process.

    The name is in the abstract namespace, where nothing is left behind but every user can take any
    name. So the rest of it is random, and :func:`knock` checks which user listens at it.
    """
    return f"weft-debug-{pid}-"


def _names(pid: int) -> list[str]:
    """The names that there are, of whomever."""
    start = f"@{_name(pid)}"
    try:
        lines = Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    found = (line.rpartition(" ")[2] for line in lines)
    return ["\0" + name[1:] for name in found if name.startswith(start)]


def _is_trusted(peer: socket.socket) -> bool:
    """Whether the other end belongs to this user, or to root."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _pid, user, _group = _CREDENTIALS.unpack(credentials)
    return user in (0, os.geteuid())


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Visits:
    """Waits for debuggers, on a thread of its own, until it is closed."""

    def __init__(self, pid: int, join: Callable[[], Debugged]) -> None:
        self._pid, self._join = pid, join
        self._lock = threading.Lock()
        self._is_closed = False
        self._peer: socket.socket | None = None
        self._visitor: socket.socket | None = None
        self._is_alone = threading.Event()
        self._is_alone.set()
        self._thread = threading.Thread(target=self._wait, name="weft-visits", daemon=True)
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(f"\0{_name(pid)}{os.urandom(16).hex()}")
            self._listener.listen(1)
        except OSError:
            # Nobody can visit then, and all else goes on.
            self._listener.close()
            return
        self._thread.start()

    def close(self) -> None:
        """Accept no more debuggers, and disconnect the one that is there."""
        with self._lock:
            self._is_closed, visitor = True, self._visitor
        if _has_ended(self._pid):
            self._is_alone.wait(_LAST_WORDS)
        for one in (self._listener, self._peer, visitor):
            if one is not None:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join()

    def _wait(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                self._listener.close()
                return
            with peer:
                self._peer = peer
                self._receive(peer)

    def _receive(self, peer: socket.socket) -> None:
        """Serve the debuggers of another weft, one after the other."""
        import json

        if not _is_trusted(peer):
            return
        while True:
            try:
                _, descriptors, _, _ = socket.recv_fds(peer, 1, 1)
                if not descriptors:
                    return
                with socket.socket(fileno=descriptors[0]) as visitor:
                    answer = self._serve(visitor)
                peer.sendall(json.dumps(answer).encode() + b"\n")
            except OSError:
                return
            finally:
                self._is_alone.set()

    def _serve(self, visitor: socket.socket) -> dict[str, str | int]:
        with self._lock:
            if self._is_closed:
                return {"error": "the weft that has the program is about to go"}
            self._visitor = visitor
            self._is_alone.clear()
        try:
            with self._join() as program:
                ending = program.serve(visitor)
        except WeftError as error:
            return {"error": str(error)}
        finally:
            with self._lock:
                self._visitor = None
        return {"kind": ending.kind, "number": ending.number}


def knock(pid: int) -> socket.socket | None:
    """Return a connection to the weft that has a process in a clone, if it can be visited.

    A debugger's connection is handed over there, and a debugger trusts its server: so the
    listener has to be this user's, or root's.
    """
    for name in _names(pid):
        peer = socket.socket(socket.AF_UNIX)
        try:
            # A listener of another user may have a queue that is full.
            peer.setblocking(False)
            peer.connect(name)
            if _is_trusted(peer):
                peer.setblocking(True)
                return peer
        except OSError:
            pass
        peer.close()
    return None


def ask(peer: socket.socket, visitor: socket.socket) -> dict[str, str | int]:
    """Request that a debugger is served there, and return how that has ended."""
    import json

    socket.send_fds(peer, [b"d"], [visitor.fileno()])
    answer = b""
    while not answer.endswith(b"\n"):
        more = peer.recv(4096)
        if not more:
            raise WeftError(
                "the weft that has the program has gone", advice="the program runs on without it"
            )
        answer += more
    found: dict[str, str | int] = json.loads(answer)
    return found
