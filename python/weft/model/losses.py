"""What is missing from what is known of a program that ran from a clone, in words.

Flows and traces are complete, or say by one of these sentences what they lack and why.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["sentences"]

_SENTENCES = {
    "native": (
        "1 program is missing: it was executed natively, since weft could not follow it in time",
        "{:,} programs are missing: they were executed natively, since weft could not follow them "
        "in time",
    ),
    "left": (
        "1 process is missing in part: it has left its clone and gone on natively",
        "{:,} processes are missing in part: they have left their clone and gone on natively",
    ),
    "outlived": (
        "1 process is missing in part: it still ran when the first one had ended",
        "{:,} processes are missing in part: they still ran when the first one had ended",
    ),
    "unrecorded": (
        "1 thread or process is missing: there was no room left to record it",
        "{:,} threads and processes are missing: there was no room left to record them",
    ),
    "unnamed": (
        "code of 1 file is listed without its name: the program has no /proc",
        "code of {:,} files is listed without their names: the program has no /proc",
    ),
    "garbled": (
        "some counts are wrong or missing: the program has written to memory of weft's",
        "some counts are wrong or missing: the program has written to memory of weft's",
    ),
    "log": ("the log was full: code that came later is missing",) * 2,
    "counters": ("there were no more counters: some of the code is missing",) * 2,
}


def sentences(losses: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """Say what is missing, given what the core tells: what it is, and how often."""
    return tuple(_SENTENCES[kind][count != 1].format(count) for kind, count in losses)
