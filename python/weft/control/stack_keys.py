"""The stacks that probes have taken, for the numbers that stand for them."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from weft.errors import WeftError
from weft.model.stacks import REPLACED, Stack, StackFrame

if TYPE_CHECKING:
    from weft import _native
    from weft.model.program import Module
    from weft.program.frames import Names

__all__ = ["TakenStacks"]

_SIGNAL = 1 << 63
"""In an address: a signal handler returns there."""
_GUESSED = 1 << 62
"""In an address: a frame pointer alone has led there, so there may be calls in between."""
_NO_ROOM = "(a stack for which there was no room: {:#x})"
_NOT_TAKEN = "(no stack)"


@dataclass(frozen=True, slots=True)
class _Code:
    """Code of a module that the target has, or had."""

    start: int
    end: int
    bias: int
    file: str
    path: str

    @property
    def module(self) -> str:
        return self.path.rpartition("/")[2]


class TakenStacks:
    """The stacks of a target, by the numbers that are in its maps and records.

    A number stands for the same addresses all the time. Where libraries have taken each other's
    place, nobody can tell which of them was meant: such frames are marked.
    """

    def __init__(self) -> None:
        self._stacks: dict[int, Stack] = {}
        self._code: list[_Code] = []
        """All that was seen since stacks are taken."""

    @cached_property
    def _names(self) -> Names:
        # What describes programs is loaded when there are stacks.
        from weft.program.frames import Names

        return Names()

    def see(self, target: _native.Target) -> None:
        """Take note of the modules that there are now: when it has ended, nobody can tell."""
        from weft.program.live_modules import live_modules

        with suppress(WeftError, OSError):
            self._names.see(target.pid, live_modules(target.pid))

    def read(self, target: _native.Target) -> dict[int, tuple[list[int], bool]]:
        """Read what probes have kept. A number is in a map only after its stack was kept."""
        self.see(target)
        # What came meanwhile is not missed: stacks that were taken in it are read before it is.
        found = target.probe_stacks()
        code = [_Code(*row) for row in target.probe_stack_code()]
        if code != self._code:
            self._code = code
            self._stacks.clear()
            self._names.add(module for one in code if (module := _still_there(one)) is not None)
        return found

    def stack(self, number: int, found: dict[int, tuple[list[int], bool]]) -> Stack | str:
        """Return the stack that a number stands for, or why there is none."""
        if number not in self._stacks:
            if number == 0:
                return _NOT_TAKEN
            if number not in found:
                return _NO_ROOM.format(number)
            addresses, is_cut = found[number]
            self._stacks[number] = Stack(tuple(self._frames(addresses)), not is_cut)
        return self._stacks[number]

    def _frames(self, addresses: list[int]) -> list[StackFrame]:
        frames: list[StackFrame] = []
        kind = "next"
        for address in addresses:
            if address & _SIGNAL:
                frames += self._names.frames(address & ~_SIGNAL, "signal")
                kind = "next"
                continue
            here = self._here(address & ~_GUESSED, kind)
            if address & _GUESSED:
                here = [replace(frame, is_guess=True) for frame in here]
            frames += here
            kind = "return"
        return frames

    def _here(self, address: int, kind: str) -> list[StackFrame]:
        inside = address - (kind == "return")
        seen = [one for one in self._code if one.start <= inside < one.end]
        if len({(one.file, one.bias) for one in seen}) < 2:
            return self._names.frames(address, kind)
        named = (self._names.function(one.path, one.bias, inside) for one in seen)
        names = " or ".join(dict.fromkeys(name for name in named if name is not None))
        modules = " or ".join(dict.fromkeys(one.module for one in seen))
        return [StackFrame(address, f"{names} {REPLACED}".lstrip(), None, modules, None)]


def _still_there(code: _Code) -> Module | None:
    """The module that some code is of, if its file has stayed where it was."""
    from weft.model.program import Module

    try:
        found = os.stat(code.path)  # noqa: PTH116
    except OSError:
        return None
    file = f"{os.major(found.st_dev):x}:{os.minor(found.st_dev):x}:{found.st_ino}"
    return Module(code.path, bias=code.bias) if file == code.file else None
