"""The metrics that come with weft: their files, and how they are asked for."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from weft.base.names import closest
from weft.errors import InvalidArgument
from weft.mdl.loader import Library, load

__all__ = ["library_files", "metric_and_focus", "metrics_in", "shipped", "unknown_metric"]


def metric_and_focus(text: str) -> tuple[str, str]:
    """Return the name and the focus of ``METRIC[@FOCUS]``; the focus may be empty."""
    name, at, focus = text.partition("@")
    if at and not focus:
        raise InvalidArgument(
            f"{text} has no focus behind the @",
            advice=f"leave the @ out to measure all of the program, or say where: {name}@/Code/...",
        )
    return name, focus


def unknown_metric(name: str, library: Library) -> InvalidArgument:
    """Say that there is no such metric, and which one may be meant."""
    close = closest(name, library.metrics, 1)
    meant = f"did you mean {close[0]}? " if close else ""
    return InvalidArgument(
        f"there is no metric {name}", advice=f"{meant}`weft metrics` lists what there is"
    )


def library_files() -> list[Path]:
    """The files of the metrics that come with weft."""
    return sorted(Path(__file__).parent.glob("library/*.mdl"))


# Definitions never change, so all sessions of a process have the same.
@cache
def metrics_in(file: Path) -> frozenset[str]:
    """The names of the metrics that a file of weft's own defines, found without parsing it."""
    return frozenset(re.findall(r"^metric (\w+) ", file.read_text(), re.MULTILINE))


@cache
def shipped(file: Path) -> Library:
    """What a file of weft's own defines."""
    return load(file)
