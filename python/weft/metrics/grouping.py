"""Values by key: what `--by` divides a metric by, and what its keys are called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from weft.errors import InvalidArgument, WeftError
from weft.mdl import ast
from weft.mdl.diagnostics import did_you_mean, has_errors
from weft.mdl.passes.names import VARIABLES
from weft.mdl.passes.scope import expressions
from weft.mdl.passes.texts import columns, is_stack, is_text
from weft.metrics.locking import LOCK, LockNames
from weft.model.stacks import FoldedStacks, Stack
from weft.model.values import MapValue

if TYPE_CHECKING:
    from weft.model.program import Function, Module

__all__ = ["WORDS", "By", "Naming", "Symbols", "is_by_stack", "named", "namings"]

Naming: TypeAlias = "Callable[[Any], str]"
"""What one key is called."""

_Found: TypeAlias = "tuple[Function, int, Module]"

_ADDRESSES = {"caller": ast.Variable("caller"), "function": ast.Variable("address")}
WORDS: Mapping[str, str] = {
    "function": "the function that it happens in",
    "module": "the program, or the library",
    "caller": "where the function was called from",
    "stack": "all calls that the thread is in",
    "thread": "the thread",
    "lock": "the lock that is taken, for lock_wait and lock_contention",
}
"""What a metric can be divided by beside expressions, each with what it means."""
_KEYS = VARIABLES.keys() - {"constraint"}
"""What an expression may name; only constraints have a resource that was chosen."""


@dataclass(frozen=True)
class By:
    """What a metric is divided by."""

    name: str
    """As it was said: ``caller``, ``$arg[0] & 0xff``."""
    key: ast.Expression | None
    """The key in the target; none if weft tells the values apart itself, as those of threads."""

    @classmethod
    def parse(cls, text: str) -> By:
        """Read ``function``, ``module``, ``caller``, ``stack``, ``thread``, ``lock``, or a key."""
        if text == "thread":
            return cls(text, None)
        if text == "lock":
            return cls(text, LOCK)
        if text == "module":
            return cls(text, _ADDRESSES["function"])
        if text in _ADDRESSES:
            return cls(text, _ADDRESSES[text])
        from weft.mdl.parser import parse_code

        spelled = "stack()" if text == "stack" else text
        code, problems = parse_code(f"(* key = {spelled}; *)")
        first = code.body[0] if len(code.body) == 1 else None
        if has_errors(problems) or not isinstance(first, ast.Assign):
            raise InvalidArgument(
                f"nothing can be divided by {text!r}",
                "it is no expression",
                f"--by {', '.join(WORDS)}, or an expression such as '$arg[0]'",
            )
        inner = list(expressions(first.value))
        unknown = [one for one in inner if isinstance(one, ast.Variable) and not _is_known(one)]
        if unknown:
            names = [f"${name}" for name in sorted(_KEYS)]
            raise InvalidArgument(
                f"nothing can be divided by {text!r}",
                f"${unknown[0].name} is no value of a point",
                did_you_mean(f"${unknown[0].name}", names, f"there are {', '.join(names)}"),
            )
        if any(isinstance(one, ast.Name) for one in inner):
            raise InvalidArgument(
                f"nothing can be divided by {text!r}",
                f"there are {', '.join(WORDS)}, and expressions such as '$arg[0]'",
                did_you_mean(text.lower(), [*WORDS]),
            )
        return cls(text, first.value)


def _is_known(variable: ast.Variable) -> bool:
    """Whether a variable is one of a point, with an index if it needs one and only then."""
    takes_index = VARIABLES.get(variable.name, False)
    return variable.name in _KEYS and takes_index == (variable.index >= 0)


class Symbols:
    """The functions at addresses of a target, also of modules that have gone meanwhile."""

    def __init__(self, *, lines: bool = False) -> None:
        self._lines = lines
        self._modules: dict[tuple[str, int], Module] = {}
        self._found: dict[int, _Found | None] = {}
        self._names: dict[tuple[int, int], str] = {}
        self._locks: LockNames | None = None

    def see(self, modules: Iterable[Module]) -> None:
        """Take note of what is loaded: once the target has ended, its files cannot be found."""
        if self._locks is not None:
            self._locks.see()
        for module in modules:
            place = module.path, module.bias
            if place not in self._modules:
                self._modules[place] = module
                self._found.clear()
                self._names.clear()
                with suppress(WeftError):
                    _ = module.frames_at(0) if self._lines else module.symbols

    def place(self, address: int) -> str:
        """The function at an address, how far behind its start, and its module."""
        return self._named(address, address)

    def caller(self, address: int) -> str:
        """The same for an address that a call returns to, which may be behind its function."""
        return self._named(address, address - 1)

    def caller_path(self, address: int) -> str:
        """The path of the function that a call at an address returns to."""
        found = self._find(address - 1)
        return hex(address) if found is None else f"/Code/{found[2].name}/{found[0].name}"

    def function(self, address: int) -> str:
        """The function and its module."""
        found = self._find(address)
        return hex(address) if found is None else f"{found[0].display_name} ({found[2].name})"

    def module(self, address: int) -> str:
        """The module."""
        found = self._find(address)
        return hex(address) if found is None else found[2].name

    def locks(self, pid: int) -> LockNames:
        """The variables that are locks; from now on they are taken note of, too."""
        if self._locks is None:
            self._locks = LockNames(pid)
        return self._locks

    def _named(self, address: int, inside: int) -> str:
        """What an address is called, by the instruction at, or right before it."""
        if (address, inside) not in self._names:
            self._names[address, inside] = self._name(address, inside)
        return self._names[address, inside]

    def _name(self, address: int, inside: int) -> str:
        found = self._find(inside)
        if found is None:
            return hex(address)
        function, start, module = found
        text = f"{function.display_name}+{address - start:#x} ({module.name})"
        if self._lines:
            with suppress(WeftError, OSError):
                frames = module.frames_at(inside - module.bias)
                if frames and (place := frames[0].location) is not None:
                    text += f" at {place}"
        return text

    def _find(self, address: int) -> _Found | None:
        """The function with an address in it, where it starts, and its module."""
        if address not in self._found:
            self._found[address] = self._look_for(address)
        return self._found[address]

    def _look_for(self, address: int) -> _Found | None:
        below = [module for module in self._modules.values() if module.bias <= address]
        for module in sorted(below, key=lambda module: -module.bias):
            # A module that cannot be read has no names.
            with suppress(WeftError):
                if function := module.function_at(address - module.bias):
                    return function, module.bias + function.offset, module
        return None


def namings(
    metric: ast.Metric, by: By | None, symbols: Callable[[], Symbols], pid: int
) -> list[Naming]:
    """What the keys of a metric's map are called, one for each of its keys.

    ``symbols`` reads those of every module: it is called only where a key is an address.
    """
    own = columns(metric) if metric.base.type == "map" else []
    found = [_naming(keys, symbols) for keys in own]
    if by is not None and by.name in ("function", "module"):
        found.append(symbols().function if by.name == "function" else symbols().module)
    elif by is not None and by.name == "lock":
        found.append(symbols().locks(pid).shown)
    elif by is not None:
        found.append(_naming([by.key], symbols))
    return found


def is_by_stack(metric: ast.Metric, by: By | None) -> bool:
    """Whether the keys of a metric are stacks, and nothing else."""
    keys = [*(columns(metric) if metric.base.type == "map" else ())]
    if by is not None:
        keys.append([] if by.key is None else [by.key])
    return len(keys) == 1 and any(map(is_stack, keys[0]))


def named(raw: MapValue, names: Sequence[Naming], scale: float) -> dict[str, int | float]:
    """A map by what its keys are called; several may have one name, as calls of a function."""
    found: dict[str, int | float] = {}
    folded: dict[str, FoldedStacks] = {}
    for key, value in raw.items():
        keys = key if isinstance(key, tuple) else (key,)
        # What a constraint has divided has keys that are numbers.
        shown = [names[at](one) if at < len(names) else str(one) for at, one in enumerate(keys)]
        text = ", ".join(shown)
        scaled = value if scale == 1.0 else value * scale
        if isinstance(key, Stack):
            text = folded.setdefault(text, FoldedStacks(text))
            text.stacks[key] = scaled
        found[text] = found.get(text, 0) + scaled
    return found


def _naming(keys: Sequence[ast.Expression | None], symbols: Callable[[], Symbols]) -> Naming:
    if any(map(is_text, keys)):
        return lambda text: text or '""'
    if any(map(is_stack, keys)):
        return str
    names = {key.name if isinstance(key, ast.Variable) else "" for key in keys}
    if names == {"caller"}:
        return symbols().caller
    return symbols().place if names == {"address"} else str
