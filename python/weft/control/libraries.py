"""Libraries that come and go while something is measured in them.

What a library does between its loading and its being woven is not measured. Whoever notices that
it was loaded says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from weft import _native
from weft.base.patience import patiently
from weft.errors import CodeGone, WeftError
from weft.model.completeness import Missing

if TYPE_CHECKING:
    from weft.model.program import Module

__all__ = [
    "Arrivals",
    "Code",
    "Loader",
    "Reload",
    "arrived",
    "loaded_again",
    "mapped_code",
    "steadily",
    "unnoticed",
]

_Result = TypeVar("_Result")

_TRIES = 20
"""How often to try something with libraries that are unloaded while one looks at them."""

_TOLD = "_dl_debug_state"
"""What the loader calls, for debuggers, before it changes what is loaded and when it has."""
_EACH = 2
"""How often it does for each time that something is loaded, or unloaded."""


@dataclass(frozen=True, slots=True)
class Code:
    """Code of a file that a process has mapped."""

    start: int
    end: int
    file: str
    """Its device and its inode: files are renamed, removed and replaced while programs run them."""


@dataclass(frozen=True, slots=True)
class Reload:
    """Somewhere a library was unloaded and loaded again."""

    start: int
    end: int
    seen: float
    """When that was noticed, by the monotonic clock."""

    def has(self, address: int) -> bool:
        """Whether an address is in the library."""
        return self.start <= address < self.end


def mapped_code(pid: int) -> frozenset[Code]:
    """The files that a process has code of, and where; nothing when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return frozenset()
    found = set()
    for line in lines:
        if " r-xp " in line and "/" in line and "/memfd:weft" not in line:
            place, _, _, device, inode, _ = line.split(None, 5)
            start, end = (int(one, 16) for one in place.split("-"))
            found.add(Code(start, end, f"{device} {inode}"))
    return frozenset(found)


def arrived(before: Iterable[Code], now: Iterable[Code], *, by_place: bool = False) -> list[Code]:
    """What was not there before. A part of what was there is not new.

    With ``by_place``, nothing is new where anything was.
    """
    known: dict[str, list[Code]] = {}
    for one in before:
        known.setdefault("" if by_place else one.file, []).append(one)

    def is_known(one: Code) -> bool:
        there = known.get("" if by_place else one.file, ())
        return any(old.start < one.end and one.start < old.end for old in there)

    return [one for one in now if not is_known(one)]


def steadily(attempt: Callable[[], _Result]) -> _Result:
    """Look at the target's code and do something with it, again when it is unloaded meanwhile.

    Also when the target's threads are too busy just then: it runs on in between.
    """
    for _ in range(_TRIES):
        try:
            return patiently(attempt)
        except CodeGone as error:
            last = error
    raise CodeGone(
        "libraries of the program come and go faster than weft can look at them",
        last.what,
        "try again, or when the program is less busy with it",
    )


@dataclass
class Arrivals:
    """The modules that came while something was measured, when, and how often."""

    _times: dict[str, list[float]] = field(default_factory=dict)
    """When they were woven: by the monotonic clock."""

    def note(self, modules: Iterable[str]) -> None:
        """Note that modules have come, and were woven just now."""
        for module in modules:
            self._times.setdefault(module, []).append(time.monotonic())

    def missing(self, since: float = 0.0) -> list[Missing]:
        """Say what is missing because of it, of what is measured since then."""
        found = []
        for module, all_times in self._times.items():
            times = [one for one in all_times if one > since]
            if times:
                found.append(_missing(module, len(times), times[-1]))
        return found


def _missing(module: str, count: int, last: float) -> Missing:
    ago = time.monotonic() - last
    when = time.strftime("%H:%M:%S", time.localtime(time.time() - ago))
    often = "" if count == 1 else f" {count:,} times"
    then = "" if count == 1 else "each time a moment later, last "
    why = (
        f"it was loaded{often} meanwhile, and woven {then}at {when}; what it did before is missing"
    )
    return Missing("events", f"/Code/{module}", why, None)


def loaded_again(module: str, count: int, advice: str) -> Missing:
    """Say what is missing of a probe in a library that was loaded again at the same place."""
    often = "again" if count == 1 else f"again {count:,} times"
    why = f"it was loaded {often} meanwhile; what it did before it was woven again is missing"
    return Missing("events", f"/Code/{module}", why, None, advice)


class Loader:
    """Counts what the loader of a target does: a library may come and go between two looks."""

    def __init__(self, target: _native.Target, modules: Iterable[Module]) -> None:
        self._target = target
        self._number: int | None = None
        self._expected = 0
        self._last = 0
        # Programs without a loader that can load libraries have no such function.
        loaders = (module for module in modules if module.name.startswith(("ld-", "ld.", "libc.")))
        with suppress(WeftError):
            found = (one for module in loaders for one in module.find(_TOLD))
            if (function := next(found, None)) is not None:
                address = function.module.bias + function.offset
                text = "counter changes shared\nchanges += 1"
                self._number = target.insert(text, ["entry"], [address], [0], False)

    def leave(self) -> None:
        """Count no longer."""
        if self._number is not None:
            with suppress(WeftError):
                self._target.remove_probes([self._number])
                self._target.discard_probe(self._number)

    @property
    def is_there(self) -> bool:
        """Whether it counts at all."""
        return self._number is not None and not self._target.probe_refused(self._number)

    def has_called(self) -> bool:
        """Whether it has called the function since the last look."""
        return self.count() != self._last

    def count(self) -> int:
        """How often it has called the function; read before one looks at what is loaded."""
        if self._number is None:
            return 0
        return sum(self._target.probe_counters(self._number, "changes", None, None))

    def has_more(self, count: int, changes: int) -> bool:
        """Whether it did more than make the changes that were seen since the last look."""
        self._last = count
        self._expected += _EACH * changes
        # What is loaded together is told together; and one may look right between two calls.
        unseen = count - self._expected
        is_more = unseen > _EACH
        if is_more or unseen < 0:
            self._expected = count
        return is_more

    def has_any(self, count: int) -> bool:
        """Whether it did anything since the last look."""
        self._last = count
        return count != self._expected


def unnoticed(focus: str, last: float) -> Missing:
    """Say that libraries came and went that nobody has seen."""
    when = time.strftime("%H:%M:%S", time.localtime(time.time() - (time.monotonic() - last)))
    why = f"libraries were loaded and unloaded unnoticed, last at {when}; what they did is missing"
    return Missing("events", focus, why, None)
