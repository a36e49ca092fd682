"""Delivers mail: each message is written aside, moved to its place, and fetched from there."""

from __future__ import annotations

import os
import sys

from operations import Operations


def exchange_file(folder: str, number: int) -> None:
    aside = f"{folder}/new{number % 16}"
    os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.rename(aside, f"{folder}/message")
    os.unlink(f"{folder}/message")


def main() -> None:
    operations = Operations()
    for number in range(1 << 60):
        exchange_file(sys.argv[2], number)
        operations.count()


main()
