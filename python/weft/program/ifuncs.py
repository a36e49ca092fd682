"""Which code a process runs when it calls an indirect function.

The symbol of an indirect function (``STT_GNU_IFUNC``: ``memcpy``, ``strlen``) is that of a
resolver, which the loader calls once for each module that uses the name. What the resolver chooses
is stored in a slot of that module. So the slots of a live process say which implementations are
called. Where the loader has not filled one yet, because it binds at the first call or has not come
that far, all implementations that the resolver can choose stand for the name: only those that it
chooses are called.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from weft import _native
from weft.errors import BadFile, InvalidArgument
from weft.model.program import Function, Module, Procedures

__all__ = ["Implementations", "by_address", "unbound"]


@dataclass
class Implementations:
    """What indirect functions of a process stand for, as it is at the first question."""

    pid: int
    modules: Sequence[Module]
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of those that were asked for, by path, the names of what they stand for."""
    _found: dict[Function, tuple[Function, ...]] = field(default_factory=dict)

    def of(self, functions: Iterable[Function]) -> dict[Function, tuple[Function, ...]]:
        """The functions that are called by the names of indirect ones; none where it is unknown.

        One that has lost its own name bears that of the indirect function.
        """
        asked = list(functions)
        new = [one for one in asked if one not in self._found]
        for function, bound in self._bound(new).items():
            chosen = bound or self._possible(function)
            self._found[function] = tuple(chosen)
            path = f"/Code/{function.module.name}/{function.name}"
            self.names[path] = tuple(one.name for one in chosen)
        return {one: self._found[one] for one in asked}

    def _bound(self, functions: Sequence[Function]) -> dict[Function, list[Function]]:
        """What the loader has stored in the slots of all modules."""
        if not functions:
            return {}
        addresses: dict[Function, list[int]] = {one: [] for one in functions}
        by_offset = {(one.module.bias, one.offset): one for one in functions}
        by_name: dict[str, list[Function]] = {}
        for function in functions:
            for name in {one.partition("@")[0] for one in _names(function)}:
                by_name.setdefault(name, []).append(function)
        for module in self.modules:
            for offset, resolver, name, version in _slots(module, sorted(by_name)):
                slot = module.bias + offset
                if resolver is None:
                    for function in by_name.get(name, ()):
                        if _is_of_version(function, name, version):
                            addresses[function].append(slot)
                elif owner := by_offset.get((module.bias, resolver)):
                    addresses[owner].append(slot)
        return {one: self._functions(one, self._words(slots)) for one, slots in addresses.items()}

    def _possible(self, function: Function) -> list[Function]:
        """What the code of the resolver can choose; `None` if that is not known."""
        try:
            offsets, slots, is_open = function.module.symbols.candidates(function.index)
        except BadFile:
            return []
        bias = function.module.bias
        if is_open:
            return []
        words = self._words([bias + slot for slot in slots])
        return self._functions(function, [*(bias + offset for offset in offsets), *words])

    def _words(self, addresses: Sequence[int]) -> list[int]:
        return [word for word in _native.read_words(self.pid, addresses) if word is not None]

    def _functions(self, indirect: Function, addresses: Iterable[int]) -> list[Function]:
        """The functions that begin at addresses; slots that are not filled lead elsewhere."""
        found: dict[int, Function] = {}
        for address in addresses:
            for function in self._at(address):
                if function.kind == "function":
                    found[address] = _named(function, indirect)
        return [found[address] for address in sorted(found)]

    def _at(self, address: int) -> Iterator[Function]:
        place = bisect_right(self._biases, address) - 1
        if place >= 0:
            module = self._by_bias[place]
            try:
                function = module.function_at(address - module.bias)
            except BadFile:
                return
            if function is not None and module.bias + function.offset == address:
                yield function

    @cached_property
    def _by_bias(self) -> list[Module]:
        return sorted(self.modules, key=lambda module: module.bias)

    @cached_property
    def _biases(self) -> list[int]:
        return [module.bias for module in self._by_bias]


def unbound(name: str) -> InvalidArgument:
    """Say that it is not known which code an indirect function is."""
    return InvalidArgument(
        f"it is not known what code {name} is",
        "its resolver chooses it at run time, by means that weft cannot follow, and no module has "
        "been given it yet",
        "ask again when the program has called it, or have it started with LD_BIND_NOW=1",
    )


def _slots(module: Module, names: Sequence[str]) -> list[tuple[int, int | None, str, str]]:
    try:
        return module.symbols.slots(names)
    except BadFile:
        return []


def _names(function: Function) -> tuple[str, ...]:
    return function.name, *function.aliases


def _is_of_version(function: Function, name: str, version: str) -> bool:
    """Whether a symbol of some version, which a module refers to, is this function."""
    names, hidden = _names(function), f"{name}@{version}"
    if hidden in names or f"{name}@@{version}" in names:
        return True
    # The version may be the default of this name, or that of other code.
    return name in names and not (version and function.module.symbols.find(hidden))


def _named(function: Function, indirect: Function) -> Function:
    """Call an implementation whose name is lost by that which programs use."""
    if function.origin != "frames":
        return function
    return replace(function, name=indirect.name, demangled=indirect.demangled)


def by_address(functions: Iterable[Function], implementations: Implementations) -> Procedures:
    """What is called by the names of functions, by address.

    A function of several names is one. Stubs of the linkage table are none, and indirect functions
    are their implementations.
    """
    listed = list(functions)
    chosen = implementations.of(one for one in listed if one.kind == "ifunc")
    found: Procedures = {}
    for function in listed:
        for one in chosen.get(function, (function,)):
            if one.kind == "function":
                found.setdefault(one.module.bias + one.offset, (one.name, one.module.name))
    return found
