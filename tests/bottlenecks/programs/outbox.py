"""Puts messages into an outbox that is written through to the disk."""

from __future__ import annotations

import os
import sys

from operations import Operations

SIZE = 4 << 20
PLACES = 16


def write_message(outbox: int, number: int, message: bytes) -> None:
    os.pwrite(outbox, message, number % PLACES * SIZE)


def main() -> None:
    operations = Operations()
    outbox = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT | os.O_DSYNC, 0o600)
    message = b"message " * (SIZE // 8)
    for number in range(1 << 60):
        write_message(outbox, number, message)
        operations.count()


main()
