"""The goroutines of a Go program that wait: which the kernel does not know.

A goroutine that waits for a lock or a channel gives its thread to another one. So nothing of it is
seen in threads; but Go's runtime keeps a list of all goroutines, with what each waits for and where
it goes on. What is read is memory of the target while it runs: a goroutine counts if it waited both
before and after it was read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from weft.model.program import Module
from weft.model.stacks import StackFrame
from weft.program.frames import Names
from weft.program.tasks import Memory

__all__ = ["Goroutines"]

_WAITING = 4
_SCANNED = 0x1000
"""The bit that the collector sets in the status while it looks at a stack."""
_SP, _PC, _BP = 56, 64, 104
"""In the runtime's `g`: where it goes on."""
_STATUS = {17: 144, 18: 144, 19: 144, 20: 144, 21: 144, 22: 144, 23: 152, 24: 152}
"""In `g`, by the minor version: the status, and behind it the number of the goroutine."""
_MOST = 2000
_DEEPEST = 24
_LARGEST_FRAME = 1 << 20
_LONGEST_VERSION = 64


class Goroutines:
    """The goroutines of a process that wait, looked at again and again."""

    def __init__(self, pid: int, modules: Sequence[Module]) -> None:
        self._memory = Memory(pid)
        self._names = Names.now(pid, modules)
        self._list, self._status = 0, 0
        self.looks = 0
        self.notes: list[str] = []
        """What is not seen."""
        self._found: Counter[tuple[int, ...]] = Counter()
        for module in modules:
            if module.is_program:
                self._recognize(module)

    def _recognize(self, module: Module) -> None:
        found = {
            name: module.symbols.variables(name)
            for name in ("runtime.allgs", "runtime.buildVersion")
        }
        if not all(found.values()):
            return
        everything, version = (module.bias + rows[0][0] for rows in found.values())
        at, length = self._memory.words([version, version + 8])
        if at is None or length is None or length > _LONGEST_VERSION:
            return
        text = (self._memory.data(at, max(length, 8)) or b"").decode(errors="replace")
        known = re.match(r"go1\.(\d+)", text)
        if known is None or int(known[1]) not in _STATUS:
            self.notes.append("its version of Go is not known: goroutines that wait are not seen")
        else:
            self._list, self._status = everything, _STATUS[int(known[1])]

    @property
    def are_known(self) -> bool:
        """Whether it is a program of a version of Go that can be read."""
        return bool(self._list)

    def look(self) -> None:
        """Look once at all of them."""
        at, length = self._memory.words([self._list, self._list + 8])
        if not at or not length:
            return
        self.looks += 1
        count = min(length, _MOST)
        if length > _MOST and not self.notes:
            self.notes.append(f"only {_MOST:,} of its goroutines were looked at")
        everybody = [one for one in self._memory.words(range(at, at + 8 * count, 8)) if one]
        waiting = self._waiting(everybody)
        stacks = {one: self._stack(one) for one in waiting}
        still = set(self._waiting(list(waiting)))
        self._found.update(stacks[one] for one in still if stacks[one])

    def _waiting(self, some: Sequence[int]) -> list[int]:
        states = self._memory.words([one + self._status for one in some])
        return [
            one
            for one, state in zip(some, states, strict=True)
            if state is not None and state & 0xFFFFFFFF & ~_SCANNED == _WAITING
        ]

    def _stack(self, one: int) -> tuple[int, ...]:
        """Where it goes on, and its callers by frame pointers, which Go always has."""
        sp, pc, bp = self._memory.words([one + _SP, one + _PC, one + _BP])
        if not sp or not pc:
            return ()
        found = [pc]
        lowest = sp
        while bp and lowest <= bp < lowest + _LARGEST_FRAME and len(found) < _DEEPEST:
            following, back = self._memory.words([bp, bp + 8])
            if not back:
                break
            found.append(back)
            lowest, bp = bp + 8, following
        return tuple(found)

    def result(self) -> list[tuple[tuple[StackFrame, ...], float]]:
        """Return the stacks in which goroutines waited, and how many did, on the average."""
        result = []
        for addresses, count in self._found.most_common():
            rows = [
                (address, "next" if not place else "return")
                for place, address in enumerate(addresses)
            ]
            frames = tuple(frame for row in rows for frame in self._names.frames(*row))
            result.append((frames, count / max(self.looks, 1)))
        return result
