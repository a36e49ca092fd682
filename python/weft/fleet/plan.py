"""What is wanted and what is there, and what to do about the difference."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from weft.fleet.selectors import Facts, Selector

__all__ = ["Changes", "Process", "changes"]

_LONGEST_NAME = 200

Identity: TypeAlias = "tuple[int, int]"
"""A process: its id, and when it was started, for ids are given again."""


@dataclass(frozen=True)
class Process:
    """A process of this machine, and what selectors may ask of it."""

    pid: int
    started: int
    """When, in ticks of the kernel's clock since the machine was."""
    facts: Facts
    parent: int = 0
    is_hidden: bool = False
    """Whether this user may not look at it, nor measure it: what it executes is not known then."""

    @property
    def identity(self) -> Identity:
        """What tells it from all others that there were."""
        return self.pid, self.started

    @property
    def name(self) -> str:
        """What a person calls it: its program and its id."""
        return f"{self.facts['exe'][0][:_LONGEST_NAME]} ({self.pid})"


@dataclass(frozen=True)
class Changes:
    """What is to be done for a request."""

    begin: tuple[Process, ...]
    """These match, and are not measured yet."""
    end: tuple[Identity, ...]
    """These have ended."""


def changes(
    selector: Selector,
    there: Iterable[Process],
    measured: Collection[Identity],
    settled: Collection[Identity],
) -> Changes:
    """Say what there is to do for a request.

    ``measured`` are the processes that are measured for it, and ``settled`` those of which it was
    decided that they are not: they are not tried again. What has begun to be measured goes on even
    if it would no longer match, as when a process has changed its name: its values are part of the
    total. Of one that may not be looked at it may not be known whether it matches: it is begun
    with, which fails, so that this is said.
    """
    everybody = {one.identity: one for one in there}
    known = {*measured, *settled}
    return Changes(
        begin=tuple(
            one
            for identity, one in sorted(everybody.items())
            if identity not in known
            and (selector.may_match(one.facts) if one.is_hidden else selector.matches(one.facts))
        ),
        end=tuple(sorted(identity for identity in measured if identity not in everybody)),
    )
