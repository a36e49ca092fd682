"""What has to be woven for a metric, as data: instruments, where their code goes, and the focus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from weft.errors import InvalidArgument
from weft.model.points import Point, PointSelection
from weft.model.program import Procedures

__all__ = [
    "Focus",
    "Instrument",
    "Key",
    "Plan",
    "Program",
    "Role",
    "Unseen",
    "Weaving",
]

Key: TypeAlias = "tuple[object, ...]"
"""What tells instruments apart."""


class Program(Protocol):
    """What lowering asks of a target."""

    def procedures(self, path: str) -> Procedures:
        """The functions that a path below ``/Code`` stands for; none when there is none."""

    def named(self, pattern: str, *, is_regex: bool) -> Procedures:
        """The functions of a name in any module; a pattern may be a path."""

    def own(self) -> Procedures:
        """The functions of the program itself, not of its libraries."""

    def modules(self, pattern: str) -> Procedures:
        """The functions of the modules of a name."""

    def points(
        self, procedures: Procedures, kind: PointSelection
    ) -> tuple[list[Point], list[Point]]:
        """The points of a kind that functions have, and instructions behind which more may be."""

    def jump_target(self, point: Point) -> int | None:
        """Where the instruction at a point jumps to, if it says so itself."""

    def pointer_guard(self) -> int | None:
        """What the C library of GNU hides stack pointers by, if it is known."""

    def variable(self, name: str) -> tuple[int, int]:
        """The address and the size of a variable."""

    def function(self, name: str, module: str) -> int:
        """The address of a function that snippets in a module may call."""

    def similar(self, path: str) -> str:
        """What may be meant by a path, or a name, that stands for nothing: advice for people."""


@dataclass(frozen=True, slots=True)
class Focus:
    """What a metric is narrowed to: at most one resource, or pattern, of each hierarchy."""

    parts: tuple[tuple[str, ...], ...] = ()
    """Paths, each as its components: ``("Code", "libc.so.6", "malloc")``."""

    @classmethod
    def parse(cls, text: str) -> Focus:
        """Read ``/Code/server/handle,/Thread/worker-*``."""
        parts: list[tuple[str, ...]] = []
        for path in _split_paths(text):
            root, *rest = path[1:].rstrip("/").split("/")
            if root == "Code":
                # What follows a module is the name of a function, slashes and all: Go has them.
                rest = "/".join(rest).split("/", 1) if rest else []
            if any(root == other[0] for other in parts):
                raise InvalidArgument(
                    f"the focus names /{root} twice",
                    "a focus has one resource, or one pattern, of each hierarchy",
                    "ask for two metrics instead",
                )
            parts.append((root, *rest))
        return cls(tuple(parts))

    def of(self, root: str) -> tuple[str, ...] | None:
        """The part below a root: its components without the root."""
        return next((part[1:] for part in self.parts if part[0] == root), None)

    def __str__(self) -> str:
        return ",".join("/" + "/".join(part) for part in self.parts)


def _split_paths(text: str) -> Iterator[str]:
    """Split at commas that begin another path: C++ names have commas, too."""
    text = text.strip()
    while text:
        if not text.startswith("/"):
            raise InvalidArgument(
                f"{text!r} is no focus",
                "a focus is a path of the resource tree, or several joined by commas",
                "for example /Code/libc.so.6/malloc or /Code/server/*,/Thread/worker",
            )
        head, comma, tail = text.partition(",/")
        yield head.strip()
        text = "/" + tail if comma else ""


Role: TypeAlias = Literal["", "opens", "closes"]
"""Whether code starts a timer or enters a constraint, or stops and leaves it."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """An instruction behind which there may be points that weft does not know of."""

    point: Point
    kind: PointSelection
    """What is looked for."""
    role: Role


@dataclass(frozen=True, slots=True)
class Weaving:
    """A piece of code, and where it goes."""

    points: tuple[Point, ...]
    order: Literal["append", "prepend"]
    body: str
    place: int
    """Which of its definition's insertions it is: those that have no points are no weavings."""
    role: Role = ""


@dataclass(frozen=True, slots=True)
class Instrument:
    """Data, and the code that measures into them."""

    key: Key
    """Instruments of equal keys are the same, and need to be woven only once."""
    declarations: tuple[str, ...]
    weavings: tuple[Weaving, ...]
    imports: tuple[tuple[Key, str], ...] = ()
    """Data of other instruments that the code uses: the other's key, and the declaration there."""
    missing: tuple[str, ...] = ()
    """Names that the program does not have."""
    unseen: tuple[Unseen, ...] = ()
    tail_calls: tuple[str, ...] = ()
    """The paths of functions that it times, and that are left by a jump to another function."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a metric with a focus needs."""

    predicates: tuple[Instrument, ...]
    base: Instrument
    datum: str
    """The name of what the base measures into."""
    kind: Literal["counter", "timer", "histogram", "map", "ring"]
    by_function: Literal["", "point", "address", "key"] = ""
    """Whether values are kept apart: one for each point, by the address of a point, or by a key."""
    selected: tuple[int, ...] = ()
    """The keys of a vectorised metric that the focus asks for."""
    kept: str = ""
    """What is kept of calls that have not ended: a timer or a mark; empty if nothing is."""
