"""What threads wait for, and who can end the waiting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Descriptor", "DescriptorKind", "Holder", "Sureness", "Wait", "WaitKind"]

WaitKind: TypeAlias = Literal[
    "lock",
    "read-write lock",
    "condition",
    "semaphore",
    "barrier",
    "futex",
    "thread",
    "descriptor",
    "file",
    "file lock",
    "child",
    "timer",
    "signal",
    "message",
    "memory",
    "device",
    "call",
]
"""What is waited for.

``futex`` is a word of memory of which nothing tells what it belongs to; ``thread`` the end of a
thread; ``file`` the opening of one; ``message`` a queue or semaphore of System V or POSIX;
``memory`` a page; ``device`` what the kernel does not say more of; ``call`` a system call that is
none of these.
"""

Sureness: TypeAlias = Literal["sure", "shortly after", "possible"]
"""How sure it is that somebody holds what is waited for.

``sure``: the thread that waits has slept all the while between two looks, and the holder was read
between them. ``shortly after``: the thread may have gone on since its stack was read. ``possible``:
one of those that can end the waiting, as several have the other end of a pipe open.
"""

DescriptorKind: TypeAlias = Literal[
    "file",
    "directory",
    "pipe",
    "socket",
    "terminal",
    "eventfd",
    "timerfd",
    "signalfd",
    "pidfd",
    "inotify",
    "fanotify",
    "epoll",
    "io_uring",
    "userfaultfd",
    "device",
    "closed",
    "other",
]
"""What a descriptor is of. ``closed`` is one that was gone when it was looked at."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody who holds what a thread waits for, or who can end its waiting."""

    pid: int
    tid: int | None
    """None where any thread of the process may do it."""
    name: str
    """The thread's, or the process's."""
    sure: Sureness = "sure"

    def __str__(self) -> str:
        """What a person reads."""
        what = f"process {self.pid}" if self.tid is None else f"thread {self.tid}"
        return f"{what} '{self.name}'" if self.name else what

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {"pid": self.pid, "tid": self.tid, "name": self.name, "sure": self.sure}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A descriptor, and what it is of."""

    number: int
    kind: DescriptorKind
    text: str
    """For a person: the path, the two ends of a connection."""
    inode: int | None = None
    protocol: str | None = None
    """Of a socket: ``unix``, ``tcp``, ``udp``, and the like."""
    local: str | None = None
    peer: str | None = None
    direction: Literal["read", "write", "both"] | None = None
    """What is waited for; none if that is not known."""
    watches: tuple[Descriptor, ...] = ()
    """Of an epoll: those that it watches."""

    def __str__(self) -> str:
        return f"{self.number} ({self.text})"

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {
            "number": self.number,
            "kind": self.kind,
            "text": self.text,
            "inode": self.inode,
            "protocol": self.protocol,
            "local": self.local,
            "peer": self.peer,
            "direction": self.direction,
            "watches": [one.to_json() for one in self.watches],
        }


@dataclass(frozen=True, slots=True)
class Wait:
    """What a thread waits for."""

    kind: WaitKind
    text: str
    """All of it, for a person."""
    address: int | None = None
    """Of a lock or the like."""
    symbol: str | None = None
    """The global variable that the address lies in."""
    descriptors: tuple[Descriptor, ...] = ()
    timeout: float | None = None
    """After how many seconds it ends by itself: as the call has it, or what was left of a deadline
    when it was looked at. None if it does not."""
    holders: tuple[Holder, ...] = ()
    """Who can end it."""
    only_holders: bool = False
    """Whether nobody else can: nothing from outside, no time that passes, no other event. Signals
    are not thought of, as any wait may be ended by one."""
    doubt: str | None = None
    """Why it is not certain what is said here, or who holds it; none if it is certain."""

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {
            "kind": self.kind,
            "text": self.text,
            "address": self.address,
            "symbol": self.symbol,
            "descriptors": [one.to_json() for one in self.descriptors],
            "timeout": self.timeout,
            "holders": [one.to_json() for one in self.holders],
            "only_holders": self.only_holders,
            "doubt": self.doubt,
        }
