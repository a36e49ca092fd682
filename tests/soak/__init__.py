"""Tests that take their time: short forms run with all the others, long ones with ``make soak``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.harness import Footprint
from tests.invariants import Invariants, invariants


def how_many(description: str | None, what: str, short: int, long: int) -> int:
    """How many the command line asks for: the short form, ``--long``, or a number of its own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--long", action="store_true", help=f"{long} {what} instead of {short}")
    parser.add_argument(f"--{what}", type=int, dest="number")
    options = parser.parse_args()
    number: int | None = options.number
    return number or (long if options.long else short)


@contextmanager
def unharmed(
    program: Path, threads: int, churners: int, visit: Callable[[int], object]
) -> Iterator[Invariants]:
    """Run a program that checks itself, and fail if it is not as it was after the block.

    It is visited once before, so that everything that it does only once is done.
    """
    with invariants(program, threads, churners) as target:
        visit(target.pid)
        target.rest()
        before = Footprint.of(target.pid)
        target.go()
        yield target
        target.rest()
        differences = before.differences(Footprint.of(target.pid))
        target.go()
        interrupted = target.stop()
    if differences or interrupted:
        raise AssertionError(f"the target is not as it was: {differences}, {interrupted}")
