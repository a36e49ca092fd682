"""What must hold of values whatever a program does; where it does not, they are incomplete."""

from __future__ import annotations

from weft.model.completeness import Missing

__all__ = ["LARGEST_SLACK", "fallen", "too_long"]

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


def too_long(seconds: float, threads: int, wall: float, focus: str) -> Missing | None:
    """Say that threads have spent more time in functions than has passed for them."""
    if seconds <= threads * wall * (1 + LARGEST_SLACK) + _SHORT:
        return None
    why = f"{seconds:.6g} s is more than {threads} threads can spend in {wall:.6g} s"
    return Missing("ends of calls", focus, why, None)
