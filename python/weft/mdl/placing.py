"""What the names of procedures and modules in a definition stand for in a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from weft.errors import InvalidArgument
from weft.mdl import ast
from weft.mdl.plan import Program
from weft.model.program import Procedures

__all__ = ["Places", "instance"]


def instance(part: tuple[str, ...]) -> int:
    """The number of the instance that a path of a hierarchy of keys ends with."""
    try:
        return int(part[-1], 0)
    except ValueError:
        raise InvalidArgument(
            f"/{'/'.join(part)} names no instance",
            "instances of this hierarchy are numbers",
            f"for example /{'/'.join(part[:-1])}/7",
        ) from None


@dataclass
class Places:
    """What names of procedures and modules stand for."""

    program: Program
    lists: Mapping[str, ast.ListDefinition]
    constraint: tuple[str, ...] = ()
    """The path that a constraint is for."""
    focus: Procedures = field(default_factory=dict)
    takes_focus: bool = False
    """Whether the code of the focus is where the metric is woven."""
    waits: bool = False
    """Whether what is not there may come later."""
    missing: list[str] = field(default_factory=list)

    def evaluate(
        self, body: Iterable[ast.Where], variables: Mapping[str, Procedures]
    ) -> Iterator[tuple[ast.Insert, Procedures]]:
        """Each insertion, with the procedures whose points it goes to."""
        for where in body:
            if isinstance(where, ast.Foreach):
                found = self.procedures(where.place, variables)
                yield from self.evaluate(where.body, {**variables, where.variable: found})
            else:
                yield where, self.procedures(where.point.place, variables)

    def procedures(self, place: ast.Place, variables: Mapping[str, Procedures]) -> Procedures:
        """The procedures of a place; ``variables`` are those of ``foreach``."""
        if place.name in variables:
            return _indexed(variables[place.name], place)
        if place.name == "$procedures":
            return self.program.own()
        if place.name == "$modules":
            return self.program.modules("*")
        if place.name == "$focus":
            return self.focus
        if place.name == "$constraint":
            return self._constrained(place)
        definition = self.lists[place.name]
        found: Procedures = {}
        for item in definition.items:
            if definition.kind == "module":
                some = self.program.modules(item.pattern)
            else:
                some = self.program.named(item.pattern, is_regex=item.is_regex)
            if not some and item.pattern not in self.missing:
                self.missing.append(item.pattern)
            found.update(some)
        return _indexed(found, place)

    def _constrained(self, place: ast.Place) -> Procedures:
        # /Code has modules and procedures; the procedure may not be given.
        depth = 2 if self.constraint[0] == "Code" and place.index == 1 else len(self.constraint)
        path = "/" + "/".join(self.constraint[:depth])
        found = self.program.procedures(path)
        if not found and not self.waits:
            raise InvalidArgument(f"no function matches {path}", advice=self.program.similar(path))
        return found


def _indexed(procedures: Procedures, place: ast.Place) -> Procedures:
    if place.index < 0:
        return procedures
    some = list(procedures.items())[place.index : place.index + 1]
    return dict(some)
