"""Whether a value is all that it says to be: exact, an estimate, or incomplete; and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["EXACT", "Completeness", "Interval", "Missing", "Status", "status_of"]

Status: TypeAlias = Literal["exact", "estimate", "incomplete"]
"""All was measured; a part was, and stands for the rest; or something is missing."""

STATUSES: tuple[Status, ...] = ("exact", "estimate", "incomplete")
SIGNS: Mapping[Status, str] = {"exact": "", "estimate": "~", "incomplete": "!"}
"""What stands before a value."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the true value is, with the given confidence."""

    low: float
    high: float
    confidence: float


def status_of(interval: Interval | None, *, is_exact: bool) -> Status:
    """What a value is of which an interval is only known if nothing is missing from it."""
    if is_exact:
        return "exact"
    return "incomplete" if interval is None else "estimate"


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that a value does not contain."""

    what: str
    """What kind of thing it is, in plural: ``exit points``, ``records``."""
    where: str
    """The path of the function, or whatever else it belongs to."""
    why: str
    count: int | None = 1
    """How many; nothing when that is not known."""
    advice: str = ""
    """What to do to have it measured; empty when nothing helps."""

    def __str__(self) -> str:
        number = f" ({self.count:,})" if self.count is not None and self.count > 1 else ""
        place = f" of {self.where}" if self.where else ""
        return f"{self.what}{place}{number}: {self.why}"


@dataclass(frozen=True, slots=True)
class Completeness:
    """What is known of how far a value can be relied on."""

    interval: Interval | None = None
    """Where the true value is, if it was measured for a part of the time."""
    missing: tuple[Missing, ...] = ()
    """What it does not contain, whatever the interval says."""

    @property
    def status(self) -> Status:
        """``exact``, ``estimate`` or ``incomplete``."""
        if self.missing:
            return "incomplete"
        return "exact" if self.interval is None else "estimate"

    @property
    def is_exact(self) -> bool:
        """Whether nothing is missing and nothing estimated."""
        return self.interval is None and not self.missing

    @property
    def advice(self) -> str:
        """What to do to have all of it measured; empty when nothing helps."""
        return next((one.advice for one in self.missing if one.advice), "")

    def with_missing(self, more: Iterable[Missing]) -> Completeness:
        """Return the same, with more that is missing."""
        return Completeness(self.interval, (*self.missing, *more))

    def summary(self) -> str:
        """Return what is missing in one line; empty if nothing is."""
        if not self.missing:
            return ""
        first, *others = self.missing
        text = f"missing {first}"
        if others:
            text += f"; and {len(others):,} more"
        return text


EXACT = Completeness()
