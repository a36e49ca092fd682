"""How much of everything was executed, held against what is asked for."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from weft.errors import CoverageTooLow
from weft.tools.coverage.parts import Share
from weft.tools.coverage.result import Coverage

__all__ = ["check_limit", "figure", "percent"]


def figure(coverage: Coverage) -> tuple[Share, Literal["lines", "functions"]]:
    """Return how much was executed of what is looked at in detail, each line of a file once.

    It is about lines, or about functions where no lines are known.
    """
    lines = sum((file.line_share for file, _ in coverage.files()), Share(0, 0))
    if lines.total:
        return lines, "lines"
    return Share.of(function.count for _, function in coverage.functions()), "functions"


def percent(share: Share) -> str:
    """Return a share in percent, never rounded up: 99.99 % is not all."""
    return f"{math.floor(Fraction(1000 * share.hit, share.total)) / 10:.1f}%"


def check_limit(coverage: Coverage, limit: float) -> str:
    """Return a sentence that says the figure and the limit, or raise if the figure is below it."""
    share, what = figure(coverage)
    incomplete = "; ".join(coverage.flow.lost)
    if not share.total:
        raise CoverageTooLow(
            f"there is no coverage to hold against the limit of {limit:g}%",
            incomplete or "of what was executed neither lines nor functions are known",
            "choose modules with --module",
        )
    told = f"{percent(share)} of {what} ({share.hit:,} of {share.total:,})"
    left_out = [one.name for one in coverage.modules if one.is_detailed and not one.files]
    if what == "lines" and left_out:
        told += f" without {', '.join(left_out)}, of which no lines are known"
    if Fraction(100 * share.hit, share.total) < Fraction(str(limit)):
        raise CoverageTooLow(
            f"coverage is {told}, and the limit is {limit:g}%",
            f"it is incomplete, and may be higher: {incomplete}" if incomplete else "",
        )
    return f"coverage is {told}, the limit is {limit:g}%" + (
        f"; it is incomplete: {incomplete}" if incomplete else ""
    )
