"""The stacks that probes have taken, for the numbers that stand for them."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from weft.errors import WeftError
from weft.model.stacks import Stack, StackFrame

if TYPE_CHECKING:
    from weft import _native
    from weft.program.frames import Names

__all__ = ["TakenStacks"]

_SIGNAL = 1 << 63
"""In an address: a signal handler returns there."""
_NO_ROOM = "(a stack for which there was no room: {:#x})"
_NOT_TAKEN = "(no stack)"


class TakenStacks:
    """The stacks of a target, by the numbers that are in its maps and records."""

    def __init__(self) -> None:
        self._stacks: dict[int, Stack] = {}

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
        return target.probe_stacks()

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
            frames += self._names.frames(address, kind)
            kind = "return"
        return frames
