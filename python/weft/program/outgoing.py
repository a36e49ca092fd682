"""Connections that a process has made, and whether it waits for an answer on them.

The kernel says of a connection of TCP when data was last sent and last received. A process that has
sent something since it last received something has asked, and waits: whatever system call it sleeps
in, and whichever of its threads will get the answer.
"""

from __future__ import annotations

import socket
import struct
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from weft.program import tasks
from weft.program.sockets import Sockets

__all__ = ["Outgoing"]

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_DONE = 3
_DUMP = 0x301
_INFO = 2
_ESTABLISHED = 1
_LAST_SENT, _LAST_RECEIVED = 44, 52
"""Where `struct tcp_info` has them, in milliseconds ago."""
_SEGMENTS = 152
"""Where it has how many segments with data were received, and were sent."""
_RECEIVED = 128
"""Where it has how many bytes were received."""


@dataclass(slots=True)
class _Seen:
    peer: str
    first_received: int | None = None
    received: int = 0


@dataclass(slots=True)
class Outgoing:
    """The connections of a process to others, looked at again and again."""

    pid: int
    _seen: dict[int, _Seen] = field(default_factory=dict)
    _waits: list[list[int]] = field(default_factory=list)
    _last: list[int] = field(default_factory=list)
    _is_seen: bool = True

    def __post_init__(self) -> None:
        # The kernel answers for the namespace of who asks.
        own, its = (tasks.link(f"/proc/{pid}/ns/net") for pid in ("self", self.pid))
        self._is_seen = own == its

    @property
    def notes(self) -> list[str]:
        """What is not seen."""
        if self._is_seen:
            return []
        return ["its network is not weft's: waiting for answers on its connections is not seen"]

    def look(self) -> None:
        """Look once."""
        own = _own_sockets(self.pid)
        waits, self._last = [], []
        if own and self._is_seen:
            sockets = Sockets(self.pid)
            for inode, is_waiting, received in _connections():
                if inode not in own:
                    continue
                self._last.append(inode)
                seen = self._seen.get(inode)
                if seen is None:
                    peer = _peer_of_client(sockets, inode)
                    seen = self._seen[inode] = _Seen(peer or "")
                if not seen.peer:
                    continue
                if seen.first_received is None:
                    seen.first_received = received
                seen.received = received
                if is_waiting:
                    waits.append(inode)
        self._waits.append(waits)

    def result(self) -> tuple[float, list[tuple[str, float]]]:
        """At what share of the looks it waited for any answer, and for whose.

        One that never answers may not be asked anything: it is told, and counts for nothing.
        """
        last = set(self._last)
        answered = {
            seen.peer
            for inode, seen in self._seen.items()
            # A connection may be for one answer, and end with it.
            if seen.received > (seen.first_received or 0) or inode not in last
        }
        count = max(len(self._waits), 1)
        waits = [{self._seen[inode].peer for inode in row} & answered for row in self._waits]
        peers = Counter(peer for row in waits for peer in row)
        return (
            sum(map(bool, waits)) / count,
            [(peer, found / count) for peer, found in peers.most_common()],
        )


def _own_sockets(pid: int) -> set[int]:
    found = set()
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            link = tasks.link(str(path))
            if link.startswith("socket:["):
                found.add(int(link[8:-1]))
    return found


def _peer_of_client(sockets: Sockets, inode: int) -> str | None:
    """The other end of a connection that the process has made; none of one that it accepted."""
    one = sockets.find(inode)
    if one is None or one.peer is None or one.local is None:
        return None
    return None if sockets.is_served(one) else one.peer


def _connections() -> list[tuple[int, bool, int]]:
    """All connections of TCP: inode, whether data was sent last, bytes received."""
    found: list[tuple[int, bool, int]] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, struct.error):
            found += _of_family(family)
    return found


def _of_family(family: int) -> list[tuple[int, bool, int]]:
    found: list[tuple[int, bool, int]] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as asked:
        asked.settimeout(1.0)
        wanted = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 1 << _INFO - 1, 0, 2)
        request = wanted + bytes(48)
        header = struct.pack("=IHHII", 16 + len(request), _SOCK_DIAG_BY_FAMILY, _DUMP, 1, 0)
        asked.send(header + request)
        while True:
            answer = asked.recv(1 << 18)
            at = 0
            while at + 16 <= len(answer):
                length, kind = struct.unpack_from("=IH", answer, at)
                if kind != _SOCK_DIAG_BY_FAMILY or length < 88:
                    return found
                if (one := _connection(answer[at : at + length])) is not None:
                    found.append(one)
                at += length + 3 & ~3


def _connection(message: bytes) -> tuple[int, bool, int] | None:
    if message[17] != _ESTABLISHED:
        return None
    (inode,) = struct.unpack_from("=I", message, 16 + 68)
    at = 16 + 72
    while at + 4 <= len(message):
        size, attribute = struct.unpack_from("=HH", message, at)
        if attribute == _INFO and size >= 4 + _SEGMENTS + 8:
            info = message[at + 4 : at + size]
            (sent,) = struct.unpack_from("=I", info, _LAST_SENT)
            (got,) = struct.unpack_from("=I", info, _LAST_RECEIVED)
            (received,) = struct.unpack_from("=Q", info, _RECEIVED)
            # The kernel's clock may be too coarse to say which was last. Then more questions than
            # answers mean that one is open: as long as nothing came, or while each is a segment.
            asked, answered = struct.unpack_from("=II", info, _SEGMENTS)[::-1]
            is_open = sent == got and (answered == 0 < asked or asked == answered + 1)
            return inode, sent < got or is_open, received
        at += max(4, size + 3 & ~3)
    return None
