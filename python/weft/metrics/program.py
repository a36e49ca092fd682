"""A target as the language sees it: its functions, their points, and its variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from weft import _native
from weft.base.names import closest
from weft.errors import InvalidArgument
from weft.mdl.diagnostics import did_you_mean
from weft.metrics.glibc import nameless
from weft.metrics.lookup import function_names
from weft.model.points import Point, PointSelection
from weft.model.program import Function, Module, Procedures
from weft.program.ifuncs import Implementations, by_address, unbound

if TYPE_CHECKING:
    from weft.control.probing import Probing
    from weft.program.resources import ResourceTree

__all__ = ["TargetProgram"]

_PATTERN = frozenset("*?[")
_AT_RANDOM = 25
_JUMP = re.compile(r"jmp (?:short )?(0x[0-9a-f]+)")
_LONGEST = 15
"""How many bytes an instruction has at most."""
_KEPT = 1 << 17
"""How many functions and points are kept, of those that were asked for last."""

_Asked: TypeAlias = "tuple[tuple[tuple[int, tuple[str, str]], ...], PointSelection]"
_Found: TypeAlias = "tuple[list[Point], list[Point]]"


class TargetProgram:
    """What :func:`weft.mdl.lower.lower` asks of a target, answered by a session.

    It is a picture of one moment: modules that are loaded later are not in it.
    """

    def __init__(self, session: Probing) -> None:
        self._session = session
        self._tree = session.resources()
        self.implementations = Implementations(session.pid, self._tree.modules)
        # Metrics are asked for at the same functions again and again.
        self._points: dict[_Asked, _Found] = {}
        """What was asked for last is last."""
        self._kept = 0
        self._named: dict[str, Procedures] = {}
        """Some names are asked for with every metric."""

    def procedures(self, path: str) -> Procedures:
        """The functions that a path below ``/Code`` stands for; none when there is none."""
        found: list[Function] = []
        for resource in self._tree.match(path):
            is_whole = resource.kind in ("module", "source")
            inner = self._tree.children(resource) if is_whole else iter([resource])
            found += (one.value for one in inner if isinstance(one.value, Function))
        called = self._by_address(found)
        if found and not called and path in self.implementations.names:
            raise unbound(path)
        return called

    def named(self, pattern: str, *, is_regex: bool) -> Procedures:
        """The functions of a name in any module; a pattern may be a path."""
        if pattern.startswith("/Code/"):
            return self.procedures(pattern)
        if is_regex:
            expression = re.compile(pattern)
            return self._by_address(
                function
                for function in self._all()
                if expression.search(function.name) or expression.search(function.display_name)
            )
        if pattern in self._named:
            return self._named[pattern]
        found: list[Function] = []
        for module in self._tree.modules:
            if _PATTERN & set(pattern):
                found += module.functions(pattern)
            else:
                found += module.find(pattern) or nameless(module, pattern)
        self._named[pattern] = self._by_address(found)
        return self._named[pattern]

    @property
    def tree(self) -> ResourceTree:
        """All that a focus can name."""
        return self._tree

    def own(self) -> Procedures:
        """The functions of the program itself, not of its libraries."""
        return self._by_address(self._tree.modules[0].functions())

    def modules(self, pattern: str) -> Procedures:
        """The functions of the modules of a name."""
        return self._by_address(
            function
            for module in self._tree.modules
            if module.is_called(pattern)
            for function in module.functions()
        )

    def points(
        self, procedures: Procedures, kind: PointSelection
    ) -> tuple[list[Point], list[Point]]:
        """The points of a kind that functions have, and instructions behind which more may be."""
        asked = tuple(procedures.items()), kind
        found = self._points.pop(asked, None)
        if found is None:
            found = self._session._points_of(procedures, kind)
            self._kept += _size(asked, found)
        self._points[asked] = found
        while self._kept > _KEPT and len(self._points) > 1:
            oldest = next(iter(self._points))
            self._kept -= _size(oldest, self._points.pop(oldest))
        return found

    def jump_target(self, point: Point) -> int | None:
        """Where the instruction at a point jumps to, if it says so itself."""
        for module in self._tree.modules:
            offset = point.address - module.bias
            if module.name == point.module and offset >= 0 and module.function_at(offset):
                (instructions,) = module.disassemble([(offset, _LONGEST)])
                jump = _JUMP.fullmatch(instructions[0][1]) if instructions else None
                return module.bias + int(jump[1], 16) if jump else None
        return None

    def pointer_guard(self) -> int | None:
        """What the C library of GNU hides stack pointers by: the last of AT_RANDOM's words."""
        try:
            words = memoryview(Path(f"/proc/{self._session.pid}/auxv").read_bytes()).cast("Q")
        except OSError:
            return None
        auxiliary = dict(zip(words[::2], words[1::2], strict=False))
        if _AT_RANDOM not in auxiliary:
            return None
        return _native.read_words(self._session.pid, [auxiliary[_AT_RANDOM] + 8])[0]

    def variable(self, name: str) -> tuple[int, int]:
        """The address and the size of a variable."""
        for module in self._tree.modules:
            for offset, size in module.variables(name):
                return module.bias + offset, size
        raise InvalidArgument(
            f"the program has no variable {name}",
            "it may be local to a function, optimised away, or its symbols stripped",
            "`nm` on the program's file lists the variables that have names",
        )

    def function(self, name: str, module: str) -> int:
        """The address of a function that snippets in a module may call.

        The module's own, or the only one of that name.
        """
        found = self.named(name, is_regex=False)
        own = [address for address, (_, where) in found.items() if where == module]
        if own:
            return own[0]
        if not found:
            raise InvalidArgument(
                f"the program has no function {name} to call", advice=self.similar(name)
            )
        if len(found) > 1:
            modules = ", ".join(where for _, where in found.values())
            raise InvalidArgument(
                f"it is not clear which {name} to call in {module}",
                f"there is one in {modules}",
                "measure in one of these modules",
            )
        return next(iter(found))

    def similar(self, path: str) -> str:
        """What may be meant by a path, or a name, that stands for nothing: advice for people."""
        name, modules = path, list(self._tree.modules)
        parts = path.split("/", 3)
        if path.startswith("/Code/"):
            name = parts[3] if len(parts) > 3 else ""
            matching = self._tree.match("/".join(parts[:3]))
            modules = [one.value for one in matching if isinstance(one.value, Module)]
            if not modules:
                known = [module.name for module in self._tree.modules]
                meant = did_you_mean(parts[2], known)
                return f"{meant} The program has loaded {', '.join(known)}".lstrip()
        if any(one.endswith(f"/{name}") for one in self.implementations.names):
            return str(unbound(name))
        listed = f"`weft points {modules[0].path}` lists what there is"
        close = closest(name, function_names(modules))
        return f"did you mean {' or '.join(f'`{one}`' for one in close)}?" if close else listed

    def _all(self) -> Iterator[Function]:
        for module in self._tree.modules:
            yield from module.functions()

    def _by_address(self, functions: Iterable[Function]) -> Procedures:
        return by_address(functions, self.implementations)


def _size(asked: _Asked, found: _Found) -> int:
    return len(asked[0]) + sum(map(len, found))
