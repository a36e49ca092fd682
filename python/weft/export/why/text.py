"""Why a program is slow, as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from weft.base.numbers import harmless
from weft.model.answers import Answer, Answers

__all__ = ["lines", "write"]


def write(file: BinaryIO, found: Answers) -> None:
    """Write it."""
    for line in lines(found):
        file.write(f"{line}\n".encode())


def lines(found: Answers) -> Iterator[str]:
    """Return the lines: the answers first, then the evidence for each."""
    yield (
        f"{harmless(found.command)} ({found.pid}), watched for {found.seconds:.1f} s; its busiest "
        f"thread does, or waits for, something in {found.busy:.0%} of the time"
    )
    yield ""
    for number, answer in enumerate(found.answers, 1):
        yield from _answer(number, answer)
    yield ""
    yield "Evidence"
    for number, answer in enumerate(found.answers, 1):
        yield f"{number}. {answer.hypothesis}"
        for one in answer.evidence:
            yield f"   {harmless(one.text)}"
            if one.command is not None:
                yield f"   $ {one.command}"
    rest = [one for one in found.tested if not one.is_confirmed]
    if rest:
        yield ""
        yield "Not confirmed: " + ", ".join(f"{one.name} {one.share:.0%}" for one in rest)
    for note in found.notes:
        yield f"note: {harmless(note)}"


def _answer(number: int, answer: Answer) -> Iterator[str]:
    yield f"{number}. {answer.hypothesis}: {harmless(answer.text)}"
