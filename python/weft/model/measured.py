"""What a measurement is, as data: what exporters, the live table and `weft top` show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from weft.base.names import program_name
from weft.model.completeness import EXACT, Completeness, Interval, Missing, Status
from weft.model.values import Histogram

__all__ = [
    "EXACT",
    "Completeness",
    "Interval",
    "Measured",
    "MetricKind",
    "Missing",
    "Sample",
    "Shed",
    "Status",
    "TargetFacts",
    "Value",
]

MetricKind: TypeAlias = Literal["counter", "rate", "timer", "histogram", "map", "record"]
"""A counter and a map count in their unit; a rate is what happens per second, and has no total; a
timer is in seconds; a histogram is of nanoseconds or of what its unit says; a record counts
records."""

Value: TypeAlias = "int | float | Histogram | dict[str, int | float]"
"""Counters are whole numbers, unless they count time; times are in seconds, rates per second. Only
histograms of times are in nanoseconds. The keys of maps are readable texts."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A metric at one moment: what was measured since it was asked for."""

    time: float
    """Seconds since 1970."""
    value: Value
    change: float
    """How much it has grown since the sample before: of histograms and maps, in how many values or
    in sum."""
    seconds: float
    """How long ago that was."""
    completeness: Completeness = EXACT
    """How far the value could be relied on at that moment."""

    @property
    def rate(self) -> float:
        """How much it grows per second."""
        return self.change / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Shed:
    """What weft does not measure all the time, or no longer, to stay within the budget."""

    metric: str
    focus: str
    how: Literal["sampled", "removed"]
    since: float
    """Seconds since 1970."""
    share: float
    """The part of the time that it is measured, from 0 to 1."""
    effect: str
    """What that does to the value, in words for a person."""
    cost: float | None = None
    """The part of the target's time that measuring it all the time would take, where it is known;
    1 is as much as the target's own work."""


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """Whom it is about."""

    pid: int
    program: str
    command: tuple[str, ...] = ()
    exit_code: int | None = None
    has_ended: bool = False
    """The exit code of a process that weft has not started is not known."""

    @property
    def name(self) -> str:
        """What it was started as: the file may be shared by several commands, as redis-server's."""
        return program_name(self.command, self.program)


class Measured(Protocol):
    """A metric of a target, narrowed to a focus, that is being measured; or was."""

    @property
    def name(self) -> str:
        """The metric's name: ``calls``."""

    @property
    def focus(self) -> str:
        """The focus as it was given: ``/Code/libc.so.6/malloc``; empty for the whole program."""

    @property
    def title(self) -> str:
        """The metric's name for people."""

    @property
    def unit(self) -> str:
        """What the value is in: ``calls``, ``bytes``, ``s``, ``calls/s``; of histograms ``ns``."""

    @property
    def is_monotonic(self) -> bool:
        """Whether the value only grows, by its definition."""

    @property
    def seconds(self) -> float:
        """How long it has been measured."""

    @property
    def kind(self) -> MetricKind:
        """What the value is."""

    @property
    def value(self) -> Value:
        """The value since it was asked for; :attr:`completeness` says what it is worth."""

    @property
    def completeness(self) -> Completeness:
        """Whether the value is exact, an estimate, or incomplete; and why."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What one should know of the value, although nothing is missing of it."""

    @property
    def shed(self) -> Shed | None:
        """What was shed of it to stay within the budget."""

    def history(self) -> list[Sample]:
        """The samples so far, the oldest first. When there are many, they get further apart."""

    def by_function(self) -> dict[str, int | float]:
        """The value of each function of the focus, by its path; empty when it is not known."""
