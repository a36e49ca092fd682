"""GDB's remote protocol, spoken without GDB: what a server itself takes, and what it bears."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

RUN = re.compile(r"(.)\*(.)", re.DOTALL)
RIP = 16
"""The number of the program counter; those before it are the general registers."""


class Remote:
    """A connection with a server, after the two have greeted each other."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = b""
        self._acknowledges = True
        self.features = self.ask("qSupported:multiprocess+;swbreak+;hwbreak+;vContSupported+")
        if "QStartNoAckMode+" in self.features:
            assert self.ask("QStartNoAckMode") == "OK"
            self._acknowledges = False

    def ask(self, packet: str) -> str:
        """Send a packet and return the answer; what the server says meanwhile is left out."""
        self.send(packet)
        while (answer := self.receive()).startswith("O") and answer != "OK":
            pass
        return answer

    def send(self, packet: str) -> None:
        """Send a packet."""
        checksum = sum(packet.encode()) & 0xFF
        self._connection.sendall(f"${packet}#{checksum:02x}".encode())

    def interrupt(self) -> None:
        """Have the program stop, as Ctrl-C does."""
        self._connection.sendall(b"\x03")

    def receive(self) -> str:
        """Return the next packet, with what was shortened at its full length."""
        while True:
            start, end = self._buffer.find(b"$"), self._buffer.find(b"#")
            if start >= 0 and len(self._buffer) > end + 2 and end > start:
                break
            chunk = self._connection.recv(1 << 16)
            if not chunk:
                raise EOFError(f"the server has gone; it said {self._buffer!r}")
            self._buffer += chunk
        body, self._buffer = self._buffer[start + 1 : end], self._buffer[end + 3 :]
        if self._acknowledges:
            self._connection.sendall(b"+")
        return expand(body.decode("latin-1"))

    def register(self, number: int) -> int:
        """Return a general register, by its place among all."""
        words = self.ask("g")[number * 16 : number * 16 + 16]
        return int.from_bytes(bytes.fromhex(words), "little")


def thread_of(stop: str) -> str:
    """Return the thread that has stopped, as the server calls it."""
    found = re.search(r"[;0-9a-f]thread:([^;]*);", stop)
    assert stop[0] == "T" and found, stop
    return found[1]


def expand(body: str) -> str:
    """Undo run-length encoding: a star says how often the character before it is repeated."""
    return RUN.sub(lambda run: run[1] * (1 + ord(run[2]) - 29), body)


@contextmanager
def connected(address: str) -> Iterator[Remote]:
    """Connect with a server that listens."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Remote(connection)
