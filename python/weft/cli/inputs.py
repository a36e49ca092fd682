"""What commands take from a command line: process ids and lengths of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import click

from weft.errors import NoSuchProcess

_HIGHEST_PID = (1 << 31) - 1
_LONGEST = 100 * 365 * 86400.0
"""The most seconds that can be waited for; the kernel's limit is not much higher."""


class Seconds(click.FloatRange):
    """A length of time: a number from a least one on, and no more than can be waited for."""

    def __init__(self, min: float) -> None:
        super().__init__(min=min, max=_LONGEST)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Refuse what is no number, and what is no time."""
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            # Every comparison with it is false: it would pass any range.
            self.fail(f"{value} is no number of seconds.", param, ctx)
        return seconds


class Pid(click.IntRange):
    """The id of a process."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it."""
        found = process_id([str(value)])
        if found is None:
            self.fail(f"{value!r} is no process id.", param, ctx)
        return found


def process_id(words: Sequence[str]) -> int | None:
    """Return the process that words name, or nothing if they are a command.

    A command whose name is a number has to be written as a path: ``./123``.
    """
    if len(words) != 1 or not (words[0].isascii() and words[0].isdecimal()):
        return None
    digits = words[0].lstrip("0") or "0"
    if len(digits) > len(str(_HIGHEST_PID)) or int(digits) > _HIGHEST_PID:
        raise NoSuchProcess(
            f"there is no process {digits[:40]}",
            "no process has an id that high",
            "list the processes: weft ps",
        )
    return int(digits)
