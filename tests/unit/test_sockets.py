"""How the kernel writes down sockets and locks on files."""

from __future__ import annotations

import pytest

from weft.program.file_locks import _locks
from weft.program.sockets import _socket


@pytest.mark.parametrize(
    ("protocol", "row", "local", "peer"),
    [
        (
            "tcp",
            "0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:0 00000000 0 0 4711 1",
            "127.0.0.1:8080",
            "127.0.0.1:50000",
        ),
        (
            "tcp6",
            "0: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000100007F:C350 01"
            " 00000000:00000000 00:0 00000000 0 0 4711 1",
            "127.0.0.1:8080",
            "127.0.0.1:50000",
        ),
        (
            "tcp6",
            "0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A"
            " 00000000:00000000 00:0 00000000 0 0 4711 1",
            "[::1]:8080",
            None,
        ),
    ],
)
def test_addresses(protocol: str, row: str, local: str, peer: str | None) -> None:
    found = _socket(protocol, row)
    assert (found.inode, found.local, found.peer) == (4711, local, peer)
    assert found.listens == (peer is None)


def test_unix_paths_may_hold_spaces_and_worse() -> None:
    row = "0: 00000002 00000000 00010000 0001 01 4711 /tmp/a b\x1b[31m"
    found = _socket("unix", row)
    assert (found.inode, found.local, found.listens) == (4711, "/tmp/a b?[31m", True)


def test_anybody_may_send_datagrams() -> None:
    assert _socket("unix", "0: 2 0 00000000 0002 01 4711 /dev/log").takes_datagrams
    assert not _socket("unix", "0: 2 0 00000000 0001 03 4711").takes_datagrams


def test_rows_of_locks() -> None:
    text = (
        "1: FLOCK  ADVISORY  WRITE 12 fe:00:34 0 EOF\n"
        "1: -> FLOCK  ADVISORY  WRITE 56 fe:00:34 0 EOF\n"
        "2: nonsense\n"
    )
    held, waiting = _locks(text)
    assert (held.pid, held.is_waiting, held.file) == (12, False, "fe:00:34")
    assert (waiting.pid, waiting.is_waiting, waiting.number) == (56, True, held.number)
