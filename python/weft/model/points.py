"""Points of a program's code: where a probe can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from weft.model.completeness import Missing

__all__ = [
    "Point",
    "PointKind",
    "PointSelection",
    "Process",
    "Refusal",
    "is_of_kernel",
    "kind_of",
    "refused_points",
    "unseen_points",
]

PointKind: TypeAlias = Literal[
    "entry",
    "exit",
    "call",
    "after",
    "block",
    "edge",
    "insn",
    "load",
    "store",
    "syscall",
    "sysreturn",
]
"""Where a function is entered; each exit of it; before and after each call that it makes; the
start of a basic block; a way from one block to another; any instruction; each read of memory, and
each write to it, before it happens; a system call before it is made, and when it comes back."""

PointSelection: TypeAlias = Literal[
    PointKind, "loads", "stores", "syscalls", "loops", "taken", "returns"
]
"""All points of a kind, or some of them: the instructions (``insn``) that read memory, that write
memory, or that call the kernel; the blocks that loops begin with; the edges that jumps take; the
exits that lead to the caller. What pushes, pops, calls and returns move through the stack is
neither a load nor a store."""

Process: TypeAlias = int | Literal["all"] | None
"""A process by its id, the target and all its children, or the target alone."""


@dataclass(frozen=True, slots=True)
class Point:
    """A place in the code of the target: a kind, an address, and whose code it is.

    ``target`` is where an edge leads; of a load or a store, which one of its instruction's it is,
    counted from 0; and 0 for all other kinds. The address of a system call is its number. Points
    can be compared, hashed and kept, but addresses mean nothing in another process.
    """

    kind: PointKind
    address: int
    function: str
    module: str
    target: int = 0

    @property
    def path(self) -> str:
        """The path of the function, or the system call, in the resource tree."""
        if is_of_kernel(self.kind):
            return f"/Syscall/{self.function}"
        return f"/Code/{self.module}/{self.function}"

    def __str__(self) -> str:
        if is_of_kernel(self.kind):
            return f"{self.path} {self.kind}"
        return f"{self.path} {self.kind} {self.address:#x}"


def refused_points(refused: Iterable[Refusal], advice: str = "") -> list[Missing]:
    """Say which points were refused, by function and reason."""
    found = Counter((one.point.path, one.point.kind, one.reason) for one in refused)
    return [
        Missing(f"{kind} points", where, why, count, advice)
        for (where, kind, why), count in found.items()
    ]


def unseen_points(points: Iterable[tuple[Point, str]]) -> list[Missing]:
    """Say which functions may have points that are not known.

    ``points`` are instructions behind which they would be, each with their kind as far as it is
    known.
    """
    why = "not all jumps of the function are known, so that there may be more"
    found = dict.fromkeys((point.path, kind) for point, kind in points)
    return [Missing(f"{kind} points".lstrip(), where, why, None) for where, kind in found]


def is_of_kernel(kind: PointSelection) -> bool:
    """Return whether points of a kind are system calls, and not places in the code."""
    return kind == "syscall" or kind == "sysreturn"


def kind_of(selection: PointSelection) -> PointKind:
    """Return the kind that the points of a selection have."""
    if selection == "loops":
        return "block"
    if selection == "taken":
        return "edge"
    if selection == "returns":
        return "exit"
    if selection == "loads" or selection == "stores" or selection == "syscalls":
        return "insn"
    return selection


@dataclass(frozen=True, slots=True)
class Refusal:
    """A point at which a probe could not be woven, and why.

    The code there is untouched; the other points of the probe are woven.
    """

    point: Point
    reason: str

    @property
    def is_anothers(self) -> bool:
        """Whether another weft, or another session, has probes in the function."""
        return self.reason.endswith("has probes in this function")

    def __str__(self) -> str:
        return f"{self.point}: {self.reason}"
