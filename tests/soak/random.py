"""Two days' worth of random use in an hour, and each time the truth beside it.

    python -m tests.soak.random [--seconds N] [--acts N] [--seed N] [--only K,...] [--json FILE]

Random commands with random options are run on random programs under random limits, and weft or the
program is interrupted or killed at random moments. The program must be unharmed, and a number must
be right, marked or refused: see :mod:`tests.matrix` for these words, and :mod:`tests.soak.acts` for
what is done. All that is bad is printed with a command line that does it again.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pytest

from tests.matrix.cells import Verdict, Wrong
from tests.matrix.commands import take_usual_signals
from tests.matrix.target import Harmed
from tests.soak.acts import ACTS, Act, World

SECONDS = 60
KINDS = ("right", "marked", "refused", "harmed", "wrong", "skipped")
LONGEST = 400.0
"""How long an act may take, in seconds: some wait for several things, each for a minute."""


@dataclass
class Finding:
    """An act that came out badly, or could not be done."""

    number: int
    act: str
    kind: str
    detail: str
    done: list[str]
    again: str


@dataclass
class Tally:
    """What came of all acts."""

    seed: int
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def bad(self) -> list[Finding]:
        """What may not be."""
        return [one for one in self.findings if one.kind in ("harmed", "wrong")]

    def note(self, number: int, act: str, verdict: Verdict, done: list[str]) -> None:
        """Add what came of an act."""
        self.counts.setdefault(act, Counter())[verdict.kind] += 1
        if verdict.is_bad or verdict.kind == "skipped":
            again = f"python -m tests.soak.random --seed {self.seed} --only {number}"
            self.findings.append(Finding(number, act, verdict.kind, verdict.detail, done, again))

    def table(self) -> str:
        """How often each came out how."""
        lines = [f"{'':12}{'acts':>8}" + "".join(f"{kind:>9}" for kind in KINDS)]
        total: Counter[str] = Counter()
        for act, counts in [*sorted(self.counts.items()), ("all", total)]:
            lines.append(f"{act:12}{counts.total():8}" + "".join(f"{counts[k]:9}" for k in KINDS))
            total.update(counts)
        return "\n".join(lines)

    def as_json(self) -> str:
        """The same for programs."""
        return json.dumps(
            {
                "seed": self.seed,
                "seconds": round(self.seconds, 1),
                "acts": sum(counts.total() for counts in self.counts.values()),
                "counts": {act: dict(counts) for act, counts in sorted(self.counts.items())},
                "findings": [vars(one) for one in self.findings],
            },
            indent=1,
        )


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail if the block takes longer, whatever it waits for."""

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"it has not ended after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def choose(seed: int, number: int) -> tuple[Act, random.Random]:
    """The act of a number, and the dice for all else."""
    dice = random.Random(f"{seed} {number}")
    [act] = dice.choices(ACTS, [act.weight for act in ACTS])
    return act, dice


def perform(world: World, act: Act, dice: random.Random) -> Verdict:
    """Do an act, and judge it."""
    world.said.clear()
    if not act.is_possible:
        return Verdict("skipped", f"it needs {', '.join(act.needs)}")
    try:
        with at_most(LONGEST):
            return act.do(world, dice)
    except (Harmed, AssertionError, EOFError) as error:
        # What a program says of itself, or that it has ended, is said by the latter two.
        return Verdict("harmed", f"{type(error).__name__}: {error}")
    except (Wrong, TimeoutError) as error:
        return Verdict("wrong", str(error))
    except (pytest.skip.Exception, LookupError) as error:
        return Verdict("skipped", str(error))


def soak(
    seed: int,
    *,
    seconds: float | None = None,
    acts: int | None = None,
    only: list[int] | None = None,
) -> Tally:
    """Do acts until the time is over, that many, or only some."""
    tally = Tally(seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="random-") as name:
        world = World(Path(name))
        world.folder.chmod(0o755)
        number = 0
        for number in only or range(sys.maxsize):
            tally.seconds = time.monotonic() - began
            if seconds is not None and tally.seconds > seconds:
                break
            if acts is not None and number >= acts:
                break
            act, dice = choose(seed, number)
            verdict = perform(world, act, dice)
            tally.note(number, act.do.__name__, verdict, list(world.said))
            took = time.monotonic() - began - tally.seconds
            what = "; ".join(world.said)
            print(
                f"{number:5} {took:5.1f} s {verdict.kind:8} {act.do.__name__}: {what}", flush=True
            )
            if verdict.is_bad:
                print(f"      {verdict.detail}\n      {tally.findings[-1].again}", flush=True)
    return tally


def main() -> int:
    """Do it, and print what came of it."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.random",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, help=f"how long; {SECONDS} without anything else")
    parser.add_argument("--acts", type=int, help="how many acts")
    parser.add_argument("--seed", type=int, help="what chance begins with; else it is random, too")
    parser.add_argument("--only", default="", help="the acts of these numbers, as K or K,K")
    parser.add_argument("--json", type=Path, help="write what came of it to a file, too")
    options = parser.parse_args()
    take_usual_signals()
    only = [int(word) for word in options.only.split(",") if word]
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    if options.seconds is None and options.acts is None and not only:
        options.seconds = SECONDS
    print(f"seed {seed}", flush=True)
    tally = soak(seed, seconds=options.seconds, acts=options.acts, only=only)
    print(tally.table())
    for one in tally.bad:
        print(f"{one.kind}: {one.act}: {'; '.join(one.done)}\n  {one.detail}\n  {one.again}")
    if options.json:
        options.json.write_text(tally.as_json() + "\n")
    return 1 if tally.bad else 0


if __name__ == "__main__":
    sys.exit(main())
