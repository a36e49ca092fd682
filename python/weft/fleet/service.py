"""What a host is, as the requests that it serves see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from weft.fleet.audit import Audit
from weft.fleet.broker import Broker
from weft.fleet.local import LocalMachine
from weft.fleet.offering import Offer
from weft.fleet.plan import Identity
from weft.fleet.policy import Policy
from weft.fleet.selectors import EVERYTHING, Selector
from weft.fleet.sinks import Sinks
from weft.fleet.texts import Reader

__all__ = ["HostOptions", "Service"]


@dataclass(frozen=True)
class HostOptions:
    """What a host is, and what it may do."""

    name: str
    labels: Mapping[str, str]
    policy: Policy
    claims: Path
    """The folder by which several hosts of one machine know of each other."""
    only: Selector = EVERYTHING
    """The processes that there are for this host."""
    offer: Offer | None = None
    """The files that can be fetched."""


class Service(Protocol):
    """What a request is served with."""

    options: HostOptions
    audit: Audit
    broker: Broker
    machine: LocalMachine
    reader: Reader
    sinks: Sinks | None
    epoch: int
    """Which start of the host this is: the broker counts them."""

    def running(self, requester: str) -> int:
        """How many requests of somebody are served."""

    def measured(self, requester: str) -> set[Identity]:
        """The processes that are measured for somebody."""

    @property
    def is_full(self) -> bool:
        """Whether no more requests can be served."""
