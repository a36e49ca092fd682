"""What came of the comparison, as a table and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from tests.patch_against_clone.model import WEAVERS, Verdict

HEADINGS = (
    *("program", "functions", "executed", "compared", "timed", "differences"),
    *("refused by patch", "refused by clone", "varying", "seconds"),
)
WIDTHS = (28, 10, 9, 9, 7, 12, 17, 17, 8, 8)


def heading() -> str:
    """Return the first line of the table."""
    return _cells(HEADINGS)


def line(name: str, verdicts: Sequence[Verdict]) -> str:
    """Return the line of a program, or of several together."""
    if len(verdicts) == 1 and (reason := verdicts[0].missing or verdicts[0].failure):
        word = "not installed" if verdicts[0].missing else "failed"
        return f"{name:{WIDTHS[0]}} {word}: {reason.strip().splitlines()[-1]}"
    executed = sum(one.executed for one in verdicts)
    return _cells(
        (
            name,
            *(sum(one.functions for one in verdicts), executed),
            *(sum(one.compared for one in verdicts), sum(one.timed for one in verdicts)),
            sum(len(one.differences) for one in verdicts),
            *(_share(sum(len(one.refused[w]) for one in verdicts), executed) for w in WEAVERS),
            sum(len(one.varying) for one in verdicts),
            f"{sum(one.seconds for one in verdicts):.1f}",
        )
    )


def groups(verdicts: Iterable[Verdict]) -> str:
    """Return the table of what belongs together, with the sum of it all."""
    by_group: dict[str, list[Verdict]] = {}
    for one in verdicts:
        by_group.setdefault(one.subject.group, []).append(one)
    lines = [heading()]
    for name, its in by_group.items():
        lines.append(line(f"{name} ({len(its)})" if len(its) > 1 else name, its))
    everything = [one for its in by_group.values() for one in its]
    return "\n".join([*lines, line(f"all ({len(everything)})", everything)])


def refusals(verdicts: Iterable[Verdict]) -> str:
    """Return which executed functions were refused, and why; those of several programs once."""
    found: Counter[tuple[str, str, str, str]] = Counter()
    for one in verdicts:
        for weaver in WEAVERS:
            for refused in one.refused[weaver]:
                module, function = refused.function
                module = one.subject.name if module == "program" else module
                kinds, reasons = " and ".join(refused.kinds), "; ".join(refused.reasons)
                found[weaver, f"{module}/{function}", kinds, reasons] += 1
    lines = []
    for (by, function, kinds, reasons), count in sorted(found.items()):
        times = f" ({count} programs)" if count > 1 else ""
        lines.append(f"refused by {by}: {function}: {kinds}: {reasons}{times}")
    return "\n".join(lines)


def as_json(verdicts: Iterable[Verdict]) -> str:
    """Return all of it, for programs."""
    return json.dumps([_plain(one) for one in verdicts], indent=1)


def _plain(one: Verdict) -> dict[str, Any]:
    found = {
        **{"program": one.subject.name, "group": one.subject.group},
        **{"functions": one.functions, "executed": one.executed, "compared": one.compared},
        **{"is_between_compared": one.is_between_compared, "timed": one.timed},
        **{"calls": one.calls, "seconds": round(one.seconds, 1)},
        "differences": [asdict(difference) for difference in one.differences],
        "refused": {w: [asdict(refused) for refused in one.refused[w]] for w in WEAVERS},
        **{"varying": one.varying, "unbalanced": one.unbalanced},
    }
    return found | {key: getattr(one, key) for key in ("missing", "failure") if getattr(one, key)}


def _share(number: int, of: int) -> str:
    return f"{number} ({number / of:.2%})" if of else str(number)


def _cells(cells: Iterable[object]) -> str:
    first, *rest = zip(cells, WIDTHS, strict=True)
    return f"{first[0]!s:{first[1]}}" + "".join(f" {cell!s:>{width}}" for cell, width in rest)
