"""What must hold of values whatever a program does; where it does not, they are incomplete."""

from __future__ import annotations

from weft.mdl import ast
from weft.mdl.passes.growth import must_grow, only_grows
from weft.model.completeness import Missing

__all__ = ["LARGEST_SLACK", "Growth", "fallen", "too_long"]

LARGEST_SLACK = 0.01
"""How much more time than there was may be measured, as a share: clocks are read one after the
other."""
_SHORT = 0.001


def fallen(before: float, now: float, focus: str) -> Missing | None:
    """Return that a value which only grows has become less; `None` if it has not."""
    # Times are sums of what is rounded.
    if now >= before - 1e-6:
        return None
    why = f"the value only grows, and fell by {before - now:.6g}: something was not measured right"
    return Missing("amounts", focus, why, None)


class Growth:
    """Whether a value grows, as its definition says."""

    def __init__(self, definition: ast.Metric) -> None:
        self._definition = definition
        self.is_monotonic = only_grows(definition)
        """Whether it has until now, if it is meant to at all."""

    def see(self, before: float, now: float, focus: str) -> Missing | None:
        """Return what is wrong with a value that has become less, if it cannot."""
        found = fallen(before, now, focus)
        if found is not None and not must_grow(self._definition):
            # What the program has may be negative.
            self.is_monotonic = False
            return None
        return found


def too_long(seconds: float, threads: int, wall: float, focus: str) -> Missing | None:
    """Say that threads have spent more time in functions than has passed for them."""
    if seconds <= threads * wall * (1 + LARGEST_SLACK) + _SHORT:
        return None
    why = f"{seconds:.6g} s is more than {threads} threads can spend in {wall:.6g} s"
    return Missing("ends of calls", focus, why, None)
