"""The sockets of a process's network: their addresses, and which socket is at the other end."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from weft.base.numbers import printable
from weft.program.tasks import link, read

__all__ = ["Socket", "Sockets"]

_INTERNET = ("tcp", "tcp6", "udp", "udp6", "udplite", "raw", "raw6")
_OTHERS = {"netlink": -1, "packet": -1, "unix": 6}
_LISTENS = 0x0A
_ACCEPTS = 0x10000
"""The flag of a Unix socket that listens."""

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_SHOW_PEER = 4
_PEER = 2
_NOTHING = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Socket:
    """A socket, by its inode."""

    inode: int
    protocol: str
    local: str | None = None
    peer: str | None = None
    listens: bool = False
    takes_datagrams: bool = False
    """Whether anybody may send to it who knows its address, until it is connected."""


class Sockets:
    """The sockets in the network namespace of a process, as they were when they were first read."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def find(self, inode: int) -> Socket | None:
        """The socket of an inode."""
        return self._all.get(inode)

    def is_served(self, one: Socket) -> bool:
        """Whether somebody has connected to it, as to a server; otherwise it has connected."""
        if one.protocol == "unix":
            # One that was accepted has its listener's path.
            return one.local is not None
        port = (one.local or "").rpartition(":")[2]
        return port in self._listening

    @cached_property
    def _listening(self) -> set[str]:
        found = (one.local for one in self._all.values() if one.listens and one.local)
        return {local.rpartition(":")[2] for local in found}

    def other_end(self, inode: int) -> tuple[int | None, str | None]:
        """The inode of the socket that one is connected to, or why it is not known.

        Neither if there is none.
        """
        one = self.find(inode)
        if one is None:
            return None, "nothing is known of the socket"
        if one.listens:
            return None, "anybody may connect to it"
        if one.protocol == "unix":
            peer, doubt = self._unix_peer(inode)
            if peer is None and doubt is None and one.takes_datagrams:
                return None, "anybody may send to it"
            return peer, doubt
        if not one.protocol.startswith("tcp"):
            return None, f"anybody may send to a socket of {one.protocol}"
        found = [
            other.inode
            for other in self._all.values()
            if other.protocol.startswith("tcp")
            and (other.local, other.peer) == (one.peer, one.local)
            and other.inode not in (0, inode)
        ]
        if len(found) == 1:
            return found[0], None
        return None, f"{one.peer or 'its peer'} is not on this machine, or not to be seen from here"

    def _unix_peer(self, inode: int) -> tuple[int | None, str | None]:
        unknown = None, "the kernel does not tell the other end of a Unix socket"
        with suppress(OSError, struct.error):
            # The kernel answers for the namespace of who asks.
            if link("/proc/self/ns/net") != link(f"/proc/{self._pid}/ns/net"):
                return None, "its network is another one than this process's"
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as asked:
                asked.settimeout(1.0)
                request = struct.pack(
                    "=BBHIIIII",
                    *(socket.AF_UNIX, 0, 0, _NOTHING, inode, _SHOW_PEER, _NOTHING, _NOTHING),
                )
                header = struct.pack("=IHHII", 16 + len(request), _SOCK_DIAG_BY_FAMILY, 1, 1, 0)
                asked.send(header + request)
                answer = asked.recv(65536)
            length, kind = struct.unpack_from("=IH", answer)
            if kind != _SOCK_DIAG_BY_FAMILY:
                return unknown
            at = 32
            while at + 4 <= min(length, len(answer)):
                size, attribute = struct.unpack_from("=HH", answer, at)
                if attribute == _PEER and size >= 8:
                    (peer,) = struct.unpack_from("=I", answer, at + 4)
                    return (peer, None) if peer else (None, None)
                at += max(4, size + 3 & ~3)
            return None, None
        return unknown

    @cached_property
    def _all(self) -> dict[int, Socket]:
        found: dict[int, Socket] = {}
        for protocol in (*_INTERNET, *_OTHERS):
            rows = read(f"/proc/{self._pid}/net/{protocol}").splitlines()[1:]
            for row in rows:
                with suppress(ValueError, IndexError):
                    one = _socket(protocol, row)
                    # A Unix socket that was accepted has its listener's path.
                    found[one.inode] = one
        return found


def _socket(protocol: str, row: str) -> Socket:
    if protocol == "unix":
        words = row.split(maxsplit=7)
        path = printable(words[7]) if len(words) > 7 else None
        listens = bool(int(words[3], 16) & _ACCEPTS)
        is_datagram = int(words[4], 16) == socket.SOCK_DGRAM
        return Socket(int(words[6]), "unix", path, None, listens, is_datagram)
    words = row.split()
    if protocol in _OTHERS:
        return Socket(int(words[-1]), protocol)
    local, peer = _address(words[1]), _address(words[2])
    is_connected = not peer.endswith(":0")
    is_listening = protocol.startswith("tcp") and int(words[3], 16) == _LISTENS
    return Socket(int(words[9]), protocol, local, peer if is_connected else None, is_listening)


def _address(text: str) -> str:
    """An address and a port; one of IPv4 that is written as of IPv6 is the same address."""
    digits, _, port = text.partition(":")
    packed = b"".join(_words(digits))
    if len(packed) == 16 and packed.startswith(bytes(10) + b"\xff\xff"):
        packed = packed[12:]
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    shown = socket.inet_ntop(family, packed)
    return f"[{shown}]:{int(port, 16)}" if ":" in shown else f"{shown}:{int(port, 16)}"


def _words(digits: str) -> Iterator[bytes]:
    """The kernel prints each 32 bits as a number of this machine."""
    for at in range(0, len(digits), 8):
        yield int(digits[at : at + 8], 16).to_bytes(4, "little")
