"""Why a program is slow: hypotheses that were confirmed, with their evidence."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Answer", "Answers", "Evidence", "Tested"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something that was measured, and that speaks for an answer."""

    text: str
    """All of it, for a person."""
    metric: str
    """What was measured."""
    focus: str
    """Where: a process, a thread, a function, a lock, a descriptor."""
    value: float
    unit: str
    seconds: float
    """For how long it was measured."""
    low: float | None = None
    high: float | None = None
    """Between which values it lies with 95% confidence, if it is an estimate."""
    threshold: float | None = None
    """From what value on it speaks for the hypothesis, if that was decided by it."""
    command: str | None = None
    """What shows it again."""

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {
            "text": self.text,
            "metric": self.metric,
            "focus": self.focus,
            "value": self.value,
            "unit": self.unit,
            "seconds": self.seconds,
            "interval": None if self.low is None else [self.low, self.high],
            "threshold": self.threshold,
            "command": self.command,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """A hypothesis that was confirmed."""

    hypothesis: str
    focus: str
    """Where: as precise as could be found."""
    share: float
    """Of the time in which the program did, or waited for, something; 0 to 1."""
    focus_share: float
    """Of that, the part that belongs to the focus."""
    text: str
    """For a person: what it is, and what may be done."""
    evidence: tuple[Evidence, ...]

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {
            "hypothesis": self.hypothesis,
            "focus": self.focus,
            "share": self.share,
            "focus_share": self.focus_share,
            "text": self.text,
            "evidence": [one.to_json() for one in self.evidence],
        }


@dataclass(frozen=True, slots=True)
class Tested:
    """A hypothesis, and how it did."""

    name: str
    title: str
    share: float
    low: float
    high: float
    threshold: float
    is_confirmed: bool

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {
            "hypothesis": self.name,
            "share": self.share,
            "interval": [self.low, self.high],
            "threshold": self.threshold,
            "confirmed": self.is_confirmed,
        }


@dataclass(frozen=True, slots=True)
class Answers:
    """Why a program is slow, the most important answer first."""

    pid: int
    command: str
    seconds: float
    """For how long it was watched."""
    busy: float
    """The share of the time in which its busiest thread did, or waited for, something."""
    answers: tuple[Answer, ...]
    tested: tuple[Tested, ...]
    notes: tuple[str, ...] = ()
    """What could not be found out."""

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {
            "pid": self.pid,
            "name": self.command,
            "seconds": self.seconds,
            "busy": self.busy,
            "answers": [answer.to_json() for answer in self.answers],
            "tested": [one.to_json() for one in self.tested],
            "notes": list(self.notes),
        }
