"""What is known about a program: how it starts, and what a right answer about it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

HYPOTHESES = (
    "cpu",
    "lock_wait",
    "io_wait",
    "peer_wait",
    "allocation",
    "page_faults",
    "syscalls",
    "run_queue",
    "imbalance",
    "spinning",
)
NONE = "none"
KINDS = ("one", "two", "healthy", "server")
LANGUAGES = ("C", "C++", "Go", "Rust", "Python", "Java", "node")


@dataclass(frozen=True)
class Case:
    """A program, or a server under load, with a bottleneck or without.

    In what it is started with, {counter} is the file of its operations, {folder} one of its own on
    a disk, {port} a free port, and {program} the program itself.
    """

    name: str
    language: str
    source: str
    """A file of ``programs/``, or the name of the server."""
    kind: str
    expected: tuple[str, ...]
    """What may be answered first; where two are planted, both must be among the answers."""
    focus: tuple[str, ...]
    """Any of these is in a right answer's focus or text; nothing is asked of healthy programs."""
    truth: str
    """What slows it down, and how that shows without weft."""
    arguments: tuple[str, ...] = ("{counter}",)
    options: tuple[str, ...] = ()
    """For what executes it: the virtual machine or the interpreter."""
    peers: tuple[tuple[str, ...], ...] = ()
    """What runs beside it from before it starts: arguments of ``peers.py``, or a command whose
    first word is {program}."""
    warm: float = 1.0
    """How many seconds it takes until it does what it will do from then on."""
    accepts: str = ""
    """Why more than one hypothesis is right where one is planted."""

    @property
    def planted(self) -> str:
        return (" or " if self.accepts else " and ").join(self.expected)


@dataclass(frozen=True)
class Target:
    """A process that does what it will do from now on."""

    pid: int
    done: Callable[[], float]
    """How many operations it has done."""
    words: dict[str, str]
    """What the names in its focus stand for."""
