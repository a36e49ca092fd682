"""What weft knows about a target, as plain values.

Everything here is frozen: it says how things were when it was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread of a target."""

    tid: int
    """Its id, as weft's own PID namespace counts."""
    name: str
    """Its name, at most 15 bytes long."""
    state: str
    """The kernel's letter for what it does: ``R`` runs, ``S`` sleeps, ``D``, ``T``, ``Z``, ..."""


@dataclass(frozen=True, slots=True)
class Pong:
    """A thread's answer to a ping."""

    tid: int
    """The thread."""
    unasked: str | None = None
    """Why it was not asked, or nothing when it was asked and answered. weft does not disturb a
    thread that sleeps in a call which an interruption would cut short: a half-done ``write``."""

    @property
    def answered(self) -> bool:
        """Whether the thread answered from inside the target."""
        return self.unasked is None


@dataclass(frozen=True, slots=True)
class Pause:
    """A time for which threads of the target stood still because of weft."""

    seconds: float
    """From the first request to stop until the last thread ran again."""
    threads: int
    """How many threads."""


@dataclass(frozen=True, slots=True)
class Processor:
    """What the agent saw of the processor, from inside the target."""

    features: tuple[str, ...]
    """The names of the features that matter to weft."""
    vector_state_size: int
    """How many bytes the vector registers of one thread take."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """A range of the target's memory."""

    start: int
    end: int
    permissions: str
    """Four letters as in ``/proc/PID/maps``: ``r-xp``."""
    offset: int
    """Where in the file it starts."""
    inode: int
    path: str
    """The file's path in the target's own mount namespace, a name in brackets, or nothing."""


@dataclass(frozen=True, slots=True)
class Registers:
    """The registers of a thread."""

    general: dict[str, int]
    """By name: ``rax`` to ``r15``, ``rip``, ``eflags``, the segments and their bases."""
    zmm: tuple[bytes, ...]
    """The 32 vector registers, 64 bytes each; their low 16 bytes are ``xmm``, their low 32 ``ymm``.
    What the processor does not have is zero."""
    opmask: tuple[int, ...]
    """The eight mask registers of AVX-512."""
    xsave: bytes
    """The whole extended state, as the ``xsave`` instruction lays it out."""

    def __getitem__(self, name: str) -> int:
        return self.general[name]
