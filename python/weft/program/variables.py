"""The variables of modules that addresses of a process lie in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from weft import _native
from weft.base.numbers import printable
from weft.errors import WeftError
from weft.model.program import Module

__all__ = ["Variables"]


class Variables:
    """What addresses are called by the variables that they lie in."""

    def __init__(self, pid: int, modules: Sequence[Module]) -> None:
        self._pid = pid
        self._modules = modules
        self._found: dict[int, tuple[str, int] | None] = {}

    def symbol(self, address: int) -> str | None:
        """The variable of a module that an address lies in."""
        found = self._variable(address)
        return None if found is None else found[0]

    def place(self, address: int) -> str | None:
        """The variable, and how far behind its start an address is, as in an array of locks."""
        found = self._variable(address)
        if found is None:
            return None
        name, start = found
        return name if start == address else f"{name}+{address - start:#x}"

    def shown(self, address: int) -> str:
        """The same with the address; only that where there is no variable."""
        place = self.place(address)
        return f"{address:#x}" if place is None else f"{place} ({address:#x})"

    def module(self, address: int) -> Module | None:
        """The module whose data an address is in: mapped from its file, or right behind that."""
        path, end = "", 0
        for one in self.maps:
            if one["path"].startswith("/"):
                path = one["path"].removesuffix(" (deleted)")
            elif one["path"] or one["start"] != end:
                path = ""
            end = one["end"]
            if one["start"] <= address < end:
                break
        else:
            return None
        if not path:
            return None
        # A library that was replaced may be mapped beside the one that took its name.
        named = [one for one in self._modules if one.path == path and one.bias <= address]
        return max(named, key=lambda one: one.bias, default=None)

    @cached_property
    def maps(self) -> list[_native._Mapping]:
        """What was mapped when it was first asked for."""
        try:
            return _native.maps(self._pid)
        except WeftError:
            return []

    def _variable(self, address: int) -> tuple[str, int] | None:
        if address not in self._found:
            self._found[address] = self._look_for(address)
        return self._found[address]

    def _look_for(self, address: int) -> tuple[str, int] | None:
        module = self.module(address)
        if module is None:
            return None
        try:
            found = module.variable_at(address - module.bias)
        except (WeftError, OverflowError):
            return None
        return None if found is None else (printable(found[0]), found[1] + module.bias)
