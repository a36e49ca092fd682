"""Stacks with weights as files: flame graphs, and what other profilers read.

Each format is a module with a function ``write(file, stacks)``, and has a name here. What they
write is a :class:`weft.model.weighed.WeighedStacks`, whoever has measured it.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeAlias

from weft.errors import InvalidArgument

if TYPE_CHECKING:
    from weft.model.weighed import WeighedStacks

__all__ = ["BINARY", "ENDINGS", "FORMATS", "SEVERAL", "Format", "format_of", "save", "write"]

Format: TypeAlias = Literal["folded", "svg", "html", "speedscope", "pprof", "perfetto"]
"""``perfetto`` is for stacks that were seen at known times; Perfetto opens ``pprof``, too."""

FORMATS: dict[Format, str] = {
    "folded": "folded",
    "svg": "flame",
    "html": "html",
    "speedscope": "speedscope",
    "pprof": "pprof",
    "perfetto": "perfetto",
}
"""The module that writes each format."""

ENDINGS: dict[str, Format] = {
    ".folded": "folded",
    ".svg": "svg",
    ".html": "html",
    ".speedscope.json": "speedscope",
    ".speedscope": "speedscope",
    ".pprof": "pprof",
    ".pb.gz": "pprof",
    ".perfetto": "perfetto",
}
"""The format of a file whose name ends so."""

BINARY: tuple[Format, ...] = ("pprof", "perfetto")
"""Those that are not for terminals."""
SEVERAL: tuple[Format, ...] = ("pprof",)
"""Those that hold stacks with weights of several kinds, and weights that are negative."""


def format_of(path: str | os.PathLike[str]) -> Format:
    """Return the format that the name of a file says by its ending."""
    name = os.fspath(path)
    for ending, found in ENDINGS.items():
        if name.endswith(ending):
            return found
    raise InvalidArgument(
        f"nothing says how to write {name}",
        f"its name ends with none of {', '.join(ENDINGS)}",
        f"say the format: {', '.join(FORMATS)}",
    )


def write(file: BinaryIO, output_format: Format, *kinds: WeighedStacks) -> list[str]:
    """Write stacks to an open file, and return what one must know of them.

    Only ``pprof`` takes several kinds, of the same target.
    """
    if output_format not in FORMATS:
        raise InvalidArgument(
            f"{output_format!r} is no format of stacks", advice=f"there are {', '.join(FORMATS)}"
        )
    if len(kinds) != 1 and output_format not in SEVERAL:
        raise InvalidArgument(
            f"{output_format} shows stacks with weights of one kind, and there are {len(kinds)}",
            advice="write one of them, or all as pprof",
        )
    if output_format not in SEVERAL:
        kinds = tuple(kind.positive() for kind in kinds)
    format_ = importlib.import_module(f"{__name__}.{FORMATS[output_format]}")
    format_.write(file, *kinds)
    return [note for kind in kinds for note in kind.notes]


def save(
    path: str | os.PathLike[str], *kinds: WeighedStacks, output_format: Format | None = None
) -> list[str]:
    """Write stacks to a file, in the format that its name says if none is given.

    The file is complete or not there at all. Returns what one must know of the weights, which most
    formats hold as well.
    """
    from weft.base.files import Draft

    chosen = output_format or format_of(path)
    with Draft(path) as file:
        return write(file, chosen, *kinds)
