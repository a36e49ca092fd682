"""Asks `weft why` about a case, and judges the answer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.bottlenecks.model import NONE, Case
from tests.bottlenecks.running import rate, started

WEFT = (sys.executable, "-m", "weft")
PATIENCE = 60.0
"""How much longer than it was told to look an answer may take, in seconds, before it counts as
none."""


class Unanswered(Exception):
    """Why there is no answer."""


@dataclass(frozen=True)
class Answer:
    """What was answered: a hypothesis, where, and how much of the time."""

    hypothesis: str
    focus: str
    share: float | None
    text: str


@dataclass(frozen=True)
class Verdict:
    """A case and what came of the question."""

    case: Case
    answers: tuple[Answer, ...] = ()
    seconds: float = 0.0
    """How long an answer took, at most."""
    throughput: float | None = None
    """What it did meanwhile, over what it did before and after."""
    problem: str = ""
    """Why there is no answer."""
    steady: bool = True
    """Whether the same was answered first each time."""
    words: dict[str, str] = field(default_factory=dict)

    @property
    def named(self) -> bool:
        """Whether the hypotheses are right."""
        found = [answer.hypothesis for answer in self.answers]
        if not found or found[0] not in self.case.expected:
            return False
        return self.case.kind != "two" or set(self.case.expected) <= set(found)

    @property
    def located(self) -> bool:
        """Whether the first answer says where."""
        if self.case.expected == (NONE,):
            return True
        said = f"{self.answers[0].focus} {self.answers[0].text}".lower() if self.answers else ""
        return any(word.format(**self.words).lower() in said for word in self.case.focus)

    @property
    def right(self) -> bool:
        return self.named and self.located

    @property
    def word(self) -> str:
        if self.problem:
            return f"no: {self.problem}"
        if not self.named:
            return "no"
        if not self.located:
            return "no: not where"
        return "yes" if self.steady else "yes, not always"


def answers_in(text: str) -> tuple[Answer, ...]:
    """What `weft why --format json` has printed."""
    return tuple(
        Answer(
            one["hypothesis"],
            str(one.get("focus") or ""),
            one.get("share"),
            str(one.get("text") or ""),
        )
        for one in json.loads(text)["answers"]
    )


def ask(
    case: Case, seconds: float, rounds: int, with_throughput: bool, weft: Sequence[str] = WEFT
) -> Verdict:
    """Start a case and ask so many times; what is answered first is judged."""
    try:
        return _asked(case, seconds, rounds, with_throughput, weft)
    except (AssertionError, EOFError, OSError, RuntimeError, subprocess.SubprocessError) as error:
        # It did not start, or did not survive: the others are still to be asked about.
        return Verdict(case, problem=f"{type(error).__name__}: {error}")


def _asked(
    case: Case, seconds: float, rounds: int, with_throughput: bool, weft: Sequence[str]
) -> Verdict:
    given: list[tuple[Answer, ...]] = []
    ratios: list[float] = []
    took = 0.0
    with started(case) as target:
        before = rate(target, seconds / 2) if with_throughput else 0.0
        for _ in range(rounds):
            done, began = target.done(), time.monotonic()
            try:
                given.append(_answers(target.pid, seconds, weft))
            except Unanswered as error:
                return Verdict(case, seconds=time.monotonic() - began, problem=str(error))
            spent = time.monotonic() - began
            if not Path(f"/proc/{target.pid}/exe").exists():
                raise RuntimeError("the program has ended meanwhile")
            took = max(took, spent)
            if with_throughput:
                meanwhile = (target.done() - done) / spent
                after = rate(target, seconds / 2)
                ratios.append(meanwhile / max((before + after) / 2, 1e-9))
                before = after
        return Verdict(
            *(case, given[0], took),
            throughput=median(ratios) if ratios else None,
            steady=len({found[0].hypothesis for found in given if found}) <= 1,
            words=target.words,
        )


def _answers(pid: int, seconds: float, weft: Sequence[str]) -> tuple[Answer, ...]:
    why = ["why", str(pid), "--for", f"{seconds:g}", "--format", "json"]
    try:
        run = subprocess.run(
            [*weft, *why], capture_output=True, text=True, timeout=seconds + PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unanswered("no answer in time") from None
    if run.returncode != 0:
        last = run.stderr.strip().splitlines()[-1:] or ["no message"]
        raise Unanswered(f"status {run.returncode}: {last[0]}")
    try:
        return answers_in(run.stdout)
    except (ValueError, KeyError, TypeError) as error:
        raise Unanswered(f"not the promised JSON: {error!r}") from None
