"""The functions at addresses of a process: the frames of stacks, with names."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

from weft import _native
from weft.errors import WeftError
from weft.model.program import Module
from weft.model.stacks import StackFrame
from weft.program.perf_map import PerfMap

__all__ = ["PROBE", "SIGNAL", "Names"]

SIGNAL = "<signal handler called>"
"""What stands for the frame that the kernel has made for a handler, as debuggers have it."""
PROBE = "<weft probe>"
"""What stands for a probe where it is not known which function it belongs to."""


class Names:
    """The functions at addresses of a process."""

    def __init__(self) -> None:
        self._pid: int | None = None
        self._modules: list[Module] = []
        self._starts: list[int] = []
        self._mapped: list[tuple[range, str]] = []
        self._known: dict[tuple[int, str, bool], list[StackFrame]] = {}

    @classmethod
    def now(cls, pid: int, modules: Iterable[Module]) -> Names:
        """Return those of a process that has these modules, which are read when they are needed."""
        names = cls()
        names._add(pid, modules)
        return names

    def see(self, pid: int, modules: Iterable[Module]) -> None:
        """Take note of more modules, and read them: their files may not be found later."""
        seen = {(module.path, module.bias) for module in self._modules}
        new = [module for module in modules if (module.path, module.bias) not in seen]
        for module in new:
            with suppress(WeftError, OSError):
                module.frames_at(0)
        if new:
            self._add(pid, new)

    def add(self, modules: Iterable[Module]) -> None:
        """Take note of modules that are no longer there, unless they are known."""
        seen = {(module.path, module.bias) for module in self._modules}
        new = [module for module in modules if (module.path, module.bias) not in seen]
        # Behind what is there now.
        self._modules = sorted([*self._modules, *new], key=lambda module: module.bias)
        self._starts = [module.bias for module in self._modules]
        self._known.clear()

    def function(self, path: str, bias: int, inside: int) -> str | None:
        """Return the function of a module at an address; none if the module is not known."""
        for module in self._modules:
            if (module.path, module.bias) == (path, bias):
                with suppress(WeftError):
                    found = module.function_at(inside - bias)
                    return None if found is None else found.display_name
        return None

    def _add(self, pid: int, modules: Iterable[Module]) -> None:
        self._pid = pid
        # What has come last is what is there now.
        self._modules = sorted([*modules, *self._modules], key=lambda module: module.bias)
        self._starts = [module.bias for module in self._modules]
        self._mapped = [
            (range(found["start"], found["end"]), found["path"]) for found in _native.modules(pid)
        ] + self._mapped
        self._known.clear()

    def frames(self, address: int, kind: str, is_guess: bool = False) -> list[StackFrame]:
        """Return a frame, after those of the functions that are inlined there."""
        key = address, kind, is_guess
        if key not in self._known:
            if kind == "signal":
                found = [StackFrame(address, SIGNAL, None, None, None)]
            elif kind == "probe":
                found = [StackFrame(address, PROBE, None, None, None)]
            else:
                # A call may be the last instruction of its function: so the one that it returns
                # to belongs to another.
                found = list(self._frames(address, address - (kind == "return")))
            if is_guess:
                found = [replace(frame, is_guess=True) for frame in found]
            self._known[key] = found
        return self._known[key]

    def _frames(self, address: int, inside: int) -> Iterator[StackFrame]:
        at = bisect_right(self._starts, inside) - 1
        # Modules may lie within the addresses of others, as those that are not PIE have no bias.
        for module in reversed(self._modules[: at + 1]):
            with suppress(WeftError):
                offset = inside - module.bias
                function = module.function_at(offset)
                if function is None:
                    continue
                found = module.frames_at(offset)
                for frame in found[:-1]:
                    yield StackFrame(
                        address, frame.function, None, module.name, frame.location, inlined=True
                    )
                yield StackFrame(
                    address,
                    function.display_name,
                    address - module.bias - function.offset,
                    module.name,
                    found[-1].location if found else None,
                )
                return
        mapped = (path for addresses, path in self._mapped if inside in addresses)
        path = next(mapped, None)
        if path is None and self._made is not None and (made := self._made.find(inside)):
            name, start = made
            yield StackFrame(address, name, address - start, None, None, language="jit")
            return
        yield StackFrame(address, None, None, path and path.rpartition("/")[2], None)

    @cached_property
    def _made(self) -> PerfMap | None:
        return None if self._pid is None else PerfMap(self._pid)
