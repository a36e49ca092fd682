"""Prints the matrix: ``python -m tests.matrix [--tries N] [--commands A,B] [--rows A,B]``."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.e2e.builder import Builder
from tests.matrix.cells import Verdict, When, at_moment, on_full_disk, time_to_begin, under_limit
from tests.matrix.commands import COMMANDS, Command, take_usual_signals
from tests.matrix.situations import MOMENTS, SITUATIONS, Moment, Situation

FILES = ("cov", "profile", "trace")
"""Commands that write a file."""
TAKING = 0.06
"""How long a target is being taken, in seconds, and some more."""


Row = Callable[[Command], list[Verdict]]


def rows(
    program: Path, tries: int, chosen: list[str], seed: int, *, quick: bool
) -> Iterator[tuple[str, Row]]:
    """What varies, each with what runs it for a command."""
    for situation in SITUATIONS:
        if _is_chosen(situation.name, chosen) and (situation.is_quick or not quick):
            yield situation.name, partial(_limited, program, situation)
    if _is_chosen("full disk", chosen):
        yield "full disk", partial(_on_full_disk, program)
    for moment in MOMENTS:
        if _is_chosen(moment.name, chosen):
            yield moment.name, partial(_at_moments, program, moment, tries, seed)


def _limited(program: Path, situation: Situation, command: Command) -> list[Verdict]:
    return [under_limit(program, command, situation)]


def _on_full_disk(program: Path, command: Command) -> list[Verdict]:
    return [on_full_disk(program, command)] if command.name in FILES else []


def _at_moments(
    program: Path, moment: Moment, tries: int, seed: int, command: Command
) -> list[Verdict]:
    dice = random.Random(f"{seed} {command.name} {moment.name}")
    span = time_to_begin(program, command)
    found = []
    for number in range(tries):
        if number % 2:
            # While the target is taken: most can go wrong there.
            when = When(dice.random() * TAKING, is_taken=True)
        else:
            # Each part of the time until it measures, and a little of what follows, has its turn.
            when = When((number + dice.random()) / tries * span * 1.1, is_taken=False)
        found.append(at_moment(program, command, moment, when))
    return found


def _is_chosen(name: str, chosen: list[str]) -> bool:
    return not chosen or any(name == one or name.startswith(f"{one}=") for one in chosen)


def main() -> int:
    """Run the cells, print the table and then what is bad."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--commands", default="", help="only these, separated by commas")
    parser.add_argument("--rows", default="", help="only these rows (as=5M, SIGINT), or all of as")
    parser.add_argument("--tries", type=int, default=20, help="moments for each signal")
    parser.add_argument("--quick", action="store_true", help="only some of the limits")
    parser.add_argument("-v", "--verbose", action="store_true", help="say why each was refused")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    take_usual_signals()
    commands = [
        command
        for command in COMMANDS
        if not options.commands or command.name in options.commands.split(",")
    ]
    chosen = [name for name in options.rows.split(",") if name]
    bad: list[str] = []
    total: Counter[str] = Counter()
    width = max(len(command.name) for command in commands) + 1
    print(f"{'':18}" + "".join(f"{command.name:>{max(width, 9)}}" for command in commands))
    with tempfile.TemporaryDirectory(prefix="matrix-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        program = Builder(folder).build("limited")
        for row, run in rows(program, options.tries, chosen, options.seed, quick=options.quick):
            print(f"{row:18}", end="", flush=True)
            for command in commands:
                verdicts = run(command)
                total.update(verdict.kind for verdict in verdicts)
                print(f"{_cell(verdicts):>{max(width, 9)}}", end="", flush=True)
                worse = [
                    f"{verdict.kind}: {command.name!r} x {row!r}: {verdict.detail}\n"
                    f"  python -m tests.matrix --commands {command.name!r} --rows {row!r}"
                    f" --tries {options.tries} --seed {options.seed}"
                    for verdict in verdicts
                    if verdict.is_bad
                ]
                bad += worse
                for text in worse:
                    print(f"\n{text}", file=sys.stderr, flush=True)
                if options.verbose:
                    print(f"\n  {command.name}: {[v.detail for v in verdicts]}")
            print()
    print(", ".join(f"{count} {kind}" for kind, count in total.most_common()))
    return 1 if bad else 0


def _cell(verdicts: list[Verdict]) -> str:
    kinds = Counter(verdict.kind for verdict in verdicts)
    if len(verdicts) == 1:
        return verdicts[0].kind
    worst = [kind for kind in ("harmed", "wrong") if kinds[kind]]
    if not verdicts:
        return "-"
    return f"{kinds[worst[0]]} {worst[0]}" if worst else f"{len(verdicts)} ok"


if __name__ == "__main__":
    sys.exit(main())
