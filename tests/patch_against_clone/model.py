"""What is measured, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

Weaver: TypeAlias = Literal["patch", "clone"]
WEAVERS: tuple[Weaver, Weaver] = ("patch", "clone")

Place: TypeAlias = tuple[str, str, int]
"""A point as it is called in every run: its kind, its module, and where it is in the module."""

Name: TypeAlias = tuple[str, str]
"""A function: its module, and its name in it."""


@dataclass(frozen=True)
class Work:
    """A program that does the same each time that it is run."""

    command: tuple[str, ...]
    """The program, by its path, and its arguments."""
    stdin: str = ""
    """A file of its folder that it reads; nothing, if it has none."""
    client: Callable[[Path, int, float], None] | None = None
    """What a server is asked: given the folder that it runs in, its process, and how many seconds
    to wait before and in between, which shows what the server does by the clock."""
    environment: Mapping[str, str] = field(default_factory=dict)
    prefixes: tuple[str, ...] = ()
    """What the names of the functions begin with that are looked at; without it, all are."""
    is_unprivileged: bool = False
    """Whether it refuses to be run by root."""
    statuses: tuple[int, ...] = (0,)
    """How it ends if all goes well."""


@dataclass(frozen=True)
class Subject:
    """A program of the comparison, and how to come by it."""

    name: str
    group: str
    """What it is counted with in the table."""
    prepare: Callable[[Path], Work]
    """Makes what it takes, in a folder, of which every run is given a copy."""
    needs: tuple[str, ...] = ()
    """Programs that must be installed."""
    is_short: bool = False
    """Whether it is part of the short form."""
    varies_by_mappings: bool = False
    """Whether it reads its own /proc/self/maps, where each weaver has mappings of its own: what
    differs varies by these."""


@dataclass(frozen=True)
class Difference:
    """Something that the two weavers do not agree on."""

    what: str
    function: Name
    place: Place | None
    patch: int
    clone: int

    def __str__(self) -> str:
        module, function = self.function
        where = f" at {self.place[2]:#x}" if self.place else ""
        values = f"{self.patch} by patch, {self.clone} by clone"
        return f"{self.what} of {module}/{function}{where}: {values}"


@dataclass(frozen=True)
class Refused:
    """A function that was executed, and of which something could not be woven."""

    function: Name
    kinds: tuple[str, ...]
    """Of the points that could not be: entry, exit."""
    reasons: tuple[str, ...]
    calls: int
    """How often it was called, as far as that is known."""


@dataclass
class Verdict:
    """What came of a program."""

    subject: Subject
    functions: int = 0
    """How many it has, with its libraries."""
    executed: int = 0
    compared: int = 0
    """Executed ones that are in neither of the sets below."""
    timed: int = 0
    """Of those, how many were timed."""
    differences: list[Difference] = field(default_factory=list)
    refused: dict[Weaver, list[Refused]] = field(default_factory=lambda: {"patch": [], "clone": []})
    varying: list[Name] = field(default_factory=list)
    """Functions for which one weaver alone counts something else each time."""
    unbalanced: list[Name] = field(default_factory=list)
    """Functions that are not left as often as entered, by both."""
    calls: int = 0
    """How many calls of functions that makes."""
    is_between_compared: bool = True
    """Whether what happens between entries and exits could be compared, too."""
    seconds: float = 0.0
    missing: str = ""
    """What is not installed, if it could not be run for that."""
    failure: str = ""
    """What went wrong, if it did not come to a comparison."""

    @property
    def is_good(self) -> bool:
        """Whether both weavers agree."""
        return not self.failure and not self.differences
