"""What commands take from a command line: process ids and lengths of time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from weft.errors import NoSuchProcess

if TYPE_CHECKING:
    _Time = click.ParamType[float]
else:
    _Time = click.ParamType  # which takes no parameters in older versions

_HIGHEST_PID = (1 << 31) - 1
_LONGEST = 100 * 365 * 86400.0
"""The most seconds that can be waited for; the kernel's limit is not much higher."""


_NUMBER = r"(?:[0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})"
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""The units of time, from the longest on."""
_EXAMPLES = "write 90 or 90s, 500ms, 10m, 1h30m"


class Seconds(_Time):
    """A length of time: seconds, or numbers with units: ``90``, ``1.5s``, ``500ms``, ``1h30m``.

    It is no less than a least one, and no more than can be waited for.
    """

    name = "time"

    def __init__(self, min: float) -> None:
        self.min = min

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return it in seconds."""
        seconds = _in_seconds(str(value))
        if seconds is None:
            self.fail(f"{value!r} is no length of time: {_EXAMPLES}.", param, ctx)
        if not self.min <= seconds <= _LONGEST:
            limit = f"at least {self.min:g}s" if seconds < self.min else f"at most {_LONGEST:g}s"
            self.fail(f"{value} is out of range: it is {limit}.", param, ctx)
        return seconds


def _in_seconds(text: str) -> float | None:
    """Return a length of time in seconds; ``None`` if the text is none.

    Units come from the longest to the shortest, each once. A number without one is in seconds, and
    stands alone: what ``1m30`` means is anybody's guess.
    """
    text = text.strip()
    if re.fullmatch(_NUMBER, text):
        return float(text)
    parts = re.findall(rf"({_NUMBER})\s*([a-z]+)\s*", text)
    if not parts or not re.fullmatch(rf"(?:{_NUMBER}\s*[a-z]+\s*)+", text):
        return None
    places = [list(_UNITS).index(unit) if unit in _UNITS else -1 for _, unit in parts]
    if -1 in places or places != sorted(set(places)):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


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
