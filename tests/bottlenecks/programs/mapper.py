"""Loads objects from a database, one question for each; `render` also makes a page of each."""

from __future__ import annotations

import socket
import sys

from operations import Operations


class Database:
    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._answers = self._socket.makefile("rb")

    def load_object(self, number: int) -> str:
        self._socket.sendall(b"select %d\n" % number)
        return self._answers.readline().decode()


def render_page(row: str) -> int:
    total = 0
    for number in range(80_000):
        total = (total * 31 + number + len(row)) % 65521
    return total


def main() -> None:
    operations = Operations()
    database = Database(sys.argv[2])
    for number in range(1 << 60):
        row = database.load_object(number)
        if sys.argv[3:] == ["render"]:
            render_page(row)
        operations.count()


main()
