"""What a host asks of the machine that it is on: which processes there are, and to measure them.

A host needs nothing else of it. So a host can be of a machine whose processes are made up, which is
how thousands of them are run side by side to see what they cost a broker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from weft.fleet.folding import Series
from weft.fleet.plan import Identity, Process
from weft.fleet.protocol import Request
from weft.fleet.texts import Texts

__all__ = ["Cleaned", "Measures", "Processes", "Reading", "RequestKey"]

RequestKey: TypeAlias = "tuple[str, str]"
"""A requester, and the id of a request."""


@dataclass(frozen=True)
class Reading:
    """What was measured in a process, and what one should know of that."""

    series: tuple[Series, ...] = ()
    notes: tuple[str, ...] = ()
    ended: bool = False
    """Whether the process has ended."""


class Processes(Protocol):
    """Which processes there are. All but :meth:`look` is quick."""

    @property
    def of_host(self) -> Mapping[str, tuple[str, ...]]:
        """What is known of every process of this host."""

    @property
    def netns(self) -> str:
        """The network namespace of the host."""

    def look(self) -> list[Process]:
        """The processes that are for this host."""

    def lock_name(self, process: Process) -> str:
        """The name of a process that no other on this machine has; an OSError if it has ended."""

    def has_weft(self, pid: int) -> bool:
        """Whether there is anything of a weft in a process, also of one that is no more."""


@dataclass(frozen=True)
class Cleaned:
    """What was done about processes in which a weft has left something that was killed."""

    cleaned: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    """Those that are for others, or that cannot be attached to now."""


class Measures(Protocol):
    """What measures; one thread at a time does all of this."""

    def clean(self, pids: Collection[int]) -> Cleaned:
        """Take out of these processes what a weft has left that was killed."""

    def begin(
        self, identity: Identity, key: RequestKey, request: Request, texts: Texts, share: float
    ) -> None:
        """Begin to measure in a process all that can be measured there.

        ``share`` is what part of its time the process may lose. If nothing can be measured, this
        raises an error, and the process is as before.
        """

    def read(self, identity: Identity, key: RequestKey, texts: Texts) -> Reading:
        """Read what has been measured in a process for a request."""

    def end(self, identity: Identity, key: RequestKey, texts: Texts) -> Reading:
        """Read it for the last time, and measure it no more."""

    def load(self) -> float:
        """What all processes lose to being measured, in seconds of processors since last asked."""

    def close(self) -> None:
        """Leave all processes."""
