"""Whether code goes to places that exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.mdl import ast
from weft.mdl.diagnostics import Diagnostic, did_you_mean
from weft.mdl.passes.scope import Owner, Report, Scope, expressions, inserts, owners, statements

__all__ = ["KINDS", "check"]

KINDS = (
    "entry",
    "return",
    "calls",
    "blocks",
    "edges",
    "taken",
    "loops",
    "insns",
    "loads",
    "stores",
    "syscalls",
)
"""The kinds of points that a procedure has."""

_LEVELS = {"/Code": 2}
"""How many parts a resource has below its root: a module and a procedure. Others have one."""


def check(document: ast.Document, scope: Scope) -> list[Diagnostic]:
    """Find places and points that cannot be."""
    report = Report(document)
    for owner, body in owners(document):
        checker = _Checker(owner, scope, report)
        checker.wheres(body, {})
        for insert in inserts(body):
            for statement in statements(insert.code.body):
                for expression in expressions(statement):
                    checker.expression(expression)
        if isinstance(owner, ast.Constraint) and isinstance(owner.body, ast.Key):
            for expression in expressions(owner.body.value):
                checker.expression(expression)
    return report.found


class _Checker:
    """Checks the places of one definition."""

    def __init__(self, owner: Owner, scope: Scope, report: Report) -> None:
        self.owner = owner
        self.scope = scope
        self.report = report

    def wheres(self, body: Iterable[ast.Where], variables: Mapping[str, str]) -> None:
        """Check insertions; ``variables`` are those of ``foreach``, and what they stand for."""
        for where in body:
            if isinstance(where, ast.Insert):
                self._point(where.point, variables)
                continue
            kind = self._place(where.place, variables)
            if where.place.name in variables and not where.place.attribute:
                message = f"`{where.place.name}` is one {kind}, not a list"
                hint = f"write `{where.place.name}.funcs`" if kind == "module" else ""
                self.report.add("MDL045", message, hint, where.place)
            if where.variable in variables:
                message = f"`{where.variable}` is the variable of an outer foreach already"
                hint = "give one of them another name"
                self.report.add("MDL040", message, hint, where, where.variable)
            self.wheres(where.body, {**variables, where.variable: kind})

    def expression(self, expression: ast.Expression) -> None:
        """Check ``$constraint[i]`` as a number."""
        if isinstance(expression, ast.Variable) and expression.name == "constraint":
            self._constraint(max(0, expression.index), expression)

    def _point(self, point: ast.PointExpression, variables: Mapping[str, str]) -> None:
        self._place(point.place, variables)
        if point.kind and point.kind not in KINDS:
            hint = did_you_mean(point.kind, KINDS, f"there are {', '.join(KINDS)}")
            if point.kind == "funcs":
                hint = "add the kind of point: `.funcs.entry`"
            message = f"no points are called `{point.kind}`"
            self.report.add("MDL044", message, hint, point, point.kind)

    def _place(self, place: ast.Place, variables: Mapping[str, str]) -> str:
        """Check a place; return whether it stands for procedures or modules, if that is known."""
        kind = self._kind(place, variables)
        if not place.attribute:
            return kind
        if place.attribute != "funcs":
            message = f"a place has no `{place.attribute}`"
            hint = did_you_mean(
                place.attribute, ["funcs"], "the procedures of a module are `.funcs`"
            )
            if place.attribute in KINDS:
                hint = "points are not places: write them after `append preInsn`"
            self.report.add("MDL045", message, hint, place, place.attribute)
        elif kind == "procedure":
            message = f"`{place.name}` stands for procedures already"
            self.report.add("MDL045", message, "leave `.funcs` out", place, place.attribute)
        return "procedure"

    def _kind(self, place: ast.Place, variables: Mapping[str, str]) -> str:
        if place.name == "$constraint":
            self._constraint(place.index, place)
            is_code = isinstance(self.owner, ast.Constraint) and self.owner.hierarchy == "/Code"
            return "module" if is_code and place.index == 1 else "procedure" if is_code else ""
        if place.name == "$focus" and not isinstance(self.owner, ast.Metric):
            message = "a constraint has no `$focus`"
            hint = "what it is for is `$constraint[0]`"
            self.report.add("MDL043", message, hint, place)
        if place.name in variables:
            self._no_index(place, "is one thing, not a list")
            return variables[place.name]
        if place.name in self.scope.lists:
            definition = self.scope.lists[place.name]
            if place.index >= len(definition.items) > 0:
                message = f"the list `{place.name}` has {len(definition.items)} items"
                hint = f"the last is `{place.name}[{len(definition.items) - 1}]`"
                self.report.add("MDL042", message, hint, place)
            return definition.kind
        if place.name.startswith("$"):
            self._no_index(place, "has no order")
        return {"$procedures": "procedure", "$modules": "module"}.get(place.name, "")

    def _no_index(self, place: ast.Place, why: str) -> None:
        if place.index >= 0:
            message = f"`{place.name}` {why}, and takes no index"
            self.report.add("MDL042", message, f"write `{place.name}`", place)

    def _constraint(self, index: int, node: ast.Node) -> None:
        if not isinstance(self.owner, ast.Constraint):
            hint = "write `$focus.funcs` for the procedures that the metric is asked for"
            self.report.add("MDL041", "only constraints have `$constraint`", hint, node)
            return
        levels = _LEVELS.get(self.owner.hierarchy, 1)
        if not 0 <= index < levels:
            shown = "`$constraint[0]`"
            if levels > 1:
                shown += " is its last part, `$constraint[1]` the one before"
            else:
                shown += " is the only part that there is"
            message = f"`$constraint` of {self.owner.hierarchy} has no such part"
            self.report.add("MDL042", message, shown, node)
