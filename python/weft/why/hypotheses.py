"""Hypotheses: files that say which time speaks for one, and from what share on.

Each is a TOML file. weft's own are beside this module; a user's are in a folder of theirs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from importlib import resources
from pathlib import Path
from re import Pattern
from re import compile as compile_pattern
from typing import Any

from weft.errors import InvalidArgument
from weft.why.spots import Spot

if sys.version_info >= (3, 11):
    from importlib.resources.abc import Traversable

    import tomllib
else:
    from importlib.abc import Traversable

    import tomli as tomllib

__all__ = ["FOCUSES", "MEASURES", "Hypothesis", "TimeFilter", "load"]

FOCUSES = ("function", "caller", "call", "lock", "descriptor", "peer", "thread")
"""What an answer may be narrowed down to."""
MEASURES = ("page_faults", "run_queue", "imbalance")
"""What weft finds out by other means than by where threads are found."""
_STATES = ("running", "blocked")
_LISTS = ("waits", "calls", "functions", "threads", "descriptors")
_FLAGS = ("spins", "kernel", "asks", "never_sleeps", "fails")


@lru_cache(maxsize=4096)
def _pattern(globs: tuple[str, ...]) -> Pattern[str]:
    return compile_pattern("|".join(translate(glob) for glob in globs))


@dataclass(frozen=True, slots=True)
class TimeFilter:
    """Which time of threads it is: all of it for which everything holds that is given here."""

    state: str
    waits: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    descriptors: tuple[str, ...] = ()
    flags: tuple[tuple[str, bool], ...] = ()

    def matches(self, spot: Spot) -> bool:
        """Whether the time of a thread in a place is such time."""
        # What a thread does when it has its turn is what it is ready to do.
        state = "running" if spot.state == "runnable" else spot.state
        if state != self.state:
            return False
        if self.waits and spot.wait_kind not in self.waits:
            return False
        if self.calls and not (spot.call and _pattern(self.calls).match(spot.call)):
            return False
        if self.threads and not _pattern(self.threads).match(spot.thread):
            return False
        if self.descriptors and not spot.descriptor_kinds & set(self.descriptors):
            return False
        if any(bool(getattr(spot, name)) != wanted for name, wanted in self.flags):
            return False
        if not self.functions:
            return True
        pattern = _pattern(self.functions)
        return any(pattern.match(name) for name in spot.names)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What may make a program slow."""

    name: str
    title: str
    """What its time is spent with, in a few words."""
    order: int
    """Time belongs to the first hypothesis that it speaks for, in this order."""
    threshold: float
    """From what share of the time on it is one."""
    weight: float
    """By how much it is to be put before others, or behind them."""
    focus: str
    text: str
    advice: str
    command: str
    measure: str | None
    time: tuple[TimeFilter, ...]

    def claims(self, spot: Spot) -> bool:
        """Whether the time of a thread in a place speaks for it."""
        return any(one.matches(spot) for one in self.time)

    def hides(self, name: str) -> bool:
        """Whether a function is one of those that the hypothesis is about."""
        return any(one.functions and _pattern(one.functions).match(name) for one in self.time)


def load(folders: Iterable[Path] = ()) -> list[Hypothesis]:
    """Read weft's own hypotheses, and those in folders; one of the same name replaces another."""
    found: dict[str, Hypothesis] = {}
    for entry in _own().iterdir():
        if entry.name.endswith(".toml"):
            one = _read(entry.name, entry.read_text())
            found[one.name] = one
    for folder in folders:
        if not folder.is_dir():
            raise InvalidArgument(
                f"{folder} is no folder", advice="give one with files that end in .toml"
            )
        for path in sorted(folder.glob("*.toml")):
            try:
                text = path.read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise _wrong(str(path), str(error)) from error
            one = _read(str(path), text)
            found[one.name] = one
    return sorted(found.values(), key=lambda one: (one.order, one.name))


def _own() -> Traversable:
    """The folder of weft's own hypotheses."""
    return resources.files("weft.why").joinpath("hypotheses")


def _read(place: str, text: str) -> Hypothesis:
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _wrong(place, str(error)) from error
    known = {
        *("name", "title", "order", "threshold", "weight", "focus", "text", "advice", "command"),
        *("measure", "time"),
    }
    for key in raw:
        if key not in known:
            raise _wrong(place, f"nothing is called {key!r}")
    try:
        hypothesis = Hypothesis(
            name=_text(raw, "name"),
            title=_text(raw, "title"),
            order=int(raw.get("order", 1)),
            threshold=float(raw["threshold"]),
            weight=float(raw.get("weight", 1.0)),
            focus=str(raw.get("focus", "function")),
            text=_text(raw, "text"),
            advice=str(raw.get("advice", "")),
            command=str(raw.get("command", "weft stacks {pid}")),
            measure=raw.get("measure"),
            time=tuple(_filter(place, one) for one in raw.get("time", [])),
        )
        hypothesis.text.format(share="", focus="", most="", rate="")
        hypothesis.command.format(pid=1)
    except KeyError as error:
        raise _wrong(place, f"{error} is missing, or not known") from error
    except (TypeError, ValueError, IndexError) as error:
        raise _wrong(place, str(error)) from error
    if hypothesis.focus not in FOCUSES:
        raise _wrong(place, f"focus is one of {', '.join(FOCUSES)}")
    if hypothesis.measure is not None and hypothesis.measure not in MEASURES:
        raise _wrong(place, f"measure is one of {', '.join(MEASURES)}")
    if not hypothesis.time and hypothesis.measure is None:
        raise _wrong(place, "it needs a [[time]] that speaks for it")
    if not 0 < hypothesis.threshold <= 1:
        raise _wrong(place, "threshold is a share: above 0, and 1 at most")
    return hypothesis


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw[key]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} is a text")
    return value


def _filter(place: str, raw: Mapping[str, Any]) -> TimeFilter:
    for key in raw:
        if key not in ("state", *_LISTS, *_FLAGS):
            raise _wrong(place, f"nothing in [[time]] is called {key!r}")
    if raw.get("state") not in _STATES:
        raise _wrong(place, f"the state of [[time]] is one of {', '.join(_STATES)}")
    lists = {}
    for key in _LISTS:
        values = raw.get(key, [])
        if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
            raise _wrong(place, f"{key} is a list of texts")
        lists[key] = tuple(values)
    flags = tuple((key, bool(raw[key])) for key in _FLAGS if key in raw)
    return TimeFilter(raw["state"], flags=flags, **lists)


def _wrong(place: str, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"{place} is no hypothesis", why, f"see how weft's own are written: {_own()}"
    )
