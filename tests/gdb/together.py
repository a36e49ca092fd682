"""Walks through a program on two sides, as long as it takes to stop as often as is asked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tests.e2e.builder import Builder
from tests.gdb.compare import Record, first_difference, stops
from tests.gdb.sides import NATIVE, record
from tests.gdb.walks import Walk

PATIENCE = 60.0
SECONDS_PER_STOP = 0.2
MOST_WALKS = 24
MOST_BEGINNINGS = 20

Transcript: TypeAlias = Sequence[Record]


@dataclass(frozen=True)
class Found:
    """How often the program stopped, and where the sides differ, if they do."""

    stops: int
    text: str


def difference(walk: Walk, folder: Path, wanted: int, seed: int, against: str) -> Found:
    """Walk natively and on another side until the first difference."""
    program = Path(walk.program) if "/" in walk.program else Builder(folder).build(walk.program)
    seen = 0
    for number in range(MOST_WALKS):
        plan = walk.plan(wanted - seen, seed + number)
        patience = PATIENCE + SECONDS_PER_STOP * (wanted - seen)

        def one(side: str, plan: dict[str, Any] = plan, patience: float = patience) -> Transcript:
            return once(walk, program, folder, side, plan, patience)

        native = one(NATIVE)
        other = same_beginning(native, lambda: one(against))
        if text := first_difference(native, other, walk.varying):
            return Found(seen + stops(native), f"seed {plan['seed']}: {text}")
        seen += stops(native)
        if seen >= wanted:
            return Found(seen, "")
    return Found(seen, f"it ends too early: no more stops in {MOST_WALKS} walks")


def same_beginning(native: Transcript, other: Callable[[], Transcript]) -> Transcript:
    """Walk until there were as many threads at the beginning: with Go, that is a matter of luck."""
    for _ in range(MOST_BEGINNINGS):
        found = other()
        if beginning(found) == beginning(native):
            break
    return found


def beginning(records: Transcript) -> int | None:
    """Return how many threads there were at the beginning."""
    return next((record["threads"] for record in records if record.get("did") == "begin"), None)


def once(
    walk: Walk, program: Path, folder: Path, side: str, plan: dict[str, Any], patience: float
) -> Transcript:
    """Walk through a program on one side, in a folder of its own."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    walk.prepare(work)
    still = Builder(folder).build("debug_still")
    places = {"folder": str(work), "program": str(program), "still": str(still)}
    command = [str(program), *(word.format(**places) for word in walk.arguments)]
    variables = {key: value.format(**places) for key, value in walk.variables.items()}
    return record(side, plan, command, work, patience, **variables)
