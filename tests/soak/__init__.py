"""Tests that take their time: short forms run with all the others, long ones with ``make soak``."""

from __future__ import annotations

import argparse


def how_many(description: str | None, what: str, short: int, long: int) -> int:
    """How many the command line asks for: the short form, ``--long``, or a number of its own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--long", action="store_true", help=f"{long} {what} instead of {short}")
    parser.add_argument(f"--{what}", type=int, dest="number")
    options = parser.parse_args()
    number: int | None = options.number
    return number or (long if options.long else short)
