"""The table of all cases: what was planted, and what was answered."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from tests.bottlenecks.asking import Verdict
from tests.bottlenecks.model import KINDS

_FOLDER = f"{Path.cwd()}/"
"""What node says in front of the names of its files: the table is the same wherever it is made."""
HEADS = ("case", "language", "planted", "answered first", "where", "right", "s", "throughput")


def cells(verdict: Verdict) -> tuple[str, ...]:
    case = verdict.case
    first, where = "-", ""
    if verdict.answers:
        answer = verdict.answers[0]
        share = "" if answer.share is None else f" ({100 * answer.share:.0f}%)"
        first, where = f"{answer.hypothesis}{share}", answer.focus.replace(_FOLDER, "")
    ratio = "-" if verdict.throughput is None else f"{verdict.throughput:.3f}"
    return (
        *(case.name, case.language, case.planted),
        *(first, where, verdict.word, f"{verdict.seconds:.1f}", ratio),
    )


def line(verdict: Verdict) -> str:
    name, language, planted, first, where, right, seconds, ratio = cells(verdict)
    return (
        f"{name:17} {language:7} {planted:26} {first:20} {right:14} {seconds:>5} {ratio:>6}  "
        f"{where[:60]}"
    ).rstrip()


def text(verdicts: Sequence[Verdict]) -> str:
    return "\n".join([*map(line, verdicts), summary(verdicts)])


def _as_code(row: tuple[str, ...]) -> tuple[str, ...]:
    """Names of functions have signs in them that mean something else in a text."""
    *before, where, right, seconds, ratio = row
    return (*before, f"`{where}`" if where else "", right, seconds, ratio)


def markdown(verdicts: Sequence[Verdict]) -> str:
    rows = [HEADS, ("---",) * len(HEADS), *map(_as_code, map(cells, verdicts))]
    table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([*table, "", summary(verdicts)])


def as_json(verdicts: Sequence[Verdict]) -> str:
    return json.dumps(
        [
            {
                "case": verdict.case.name,
                "kind": verdict.case.kind,
                "language": verdict.case.language,
                "planted": verdict.case.expected,
                "answers": [vars(answer) for answer in verdict.answers],
                "right": verdict.right,
                "hypothesis_right": verdict.named,
                "steady": verdict.steady,
                "seconds": verdict.seconds,
                "throughput": verdict.throughput,
                "problem": verdict.problem,
            }
            for verdict in verdicts
        ],
        indent=2,
    )


def summary(verdicts: Sequence[Verdict]) -> str:
    parts = []
    for kind in KINDS:
        of_kind = [verdict for verdict in verdicts if verdict.case.kind == kind]
        if of_kind:
            parts.append(f"{kind}: {sum(v.right for v in of_kind)} of {len(of_kind)}")
    right = sum(verdict.right for verdict in verdicts)
    named = sum(verdict.named for verdict in verdicts)
    said = f"right: {right} of {len(verdicts)} ({', '.join(parts)}); hypothesis alone: {named}"
    ratios = [verdict.throughput for verdict in verdicts if verdict.throughput is not None]
    if ratios:
        said += f"; throughput: {median(ratios):.3f} (median), {min(ratios):.3f} (least)"
    return said


FORMATS: dict[str, Callable[[Sequence[Verdict]], str]] = {
    "text": text,
    "json": as_json,
    "markdown": markdown,
}
