"""Whether every name stands for something, and for one thing only."""

from __future__ import annotations

from collections.abc import Iterable

from weft.mdl import ast
from weft.mdl.diagnostics import Diagnostic, did_you_mean
from weft.mdl.passes.scope import (
    Owner,
    Report,
    Scope,
    expressions,
    inserts,
    owners,
    statements,
)

__all__ = ["PLACES", "VARIABLES", "check", "check_duplicates"]

VARIABLES = {
    "arg": True,
    "return": False,
    "thread": False,
    "caller": False,
    "address": False,
    "time": False,
    "cpu": False,
    "frame": False,
    "ticks": False,
    "size": False,
    "value": False,
    "constraint": True,
}
"""What code can ask for with ``$``, and whether it takes an index."""

PLACES = ("$procedures", "$modules", "$focus", "$constraint")
"""The places that need no definition."""


def check_duplicates(documents: Iterable[ast.Document]) -> list[Diagnostic]:
    """Find definitions with the same name, in all documents that are used together."""
    found: list[Diagnostic] = []
    first: dict[tuple[str, str], tuple[ast.Node, str]] = {}
    for document in documents:
        report = Report(document)
        for definition in document.definitions:
            if isinstance(definition, ast.Import):
                continue
            kind = _kind(definition)
            earlier = first.setdefault((kind, definition.name), (definition, document.file))
            if earlier[0] is not definition:
                place = f"{earlier[1]}:{earlier[0].span.line}"
                message = f"there is a {kind} `{definition.name}` already"
                hint = f"rename one of them; the other is at {place}"
                report.add("MDL020", message, hint, definition, definition.name)
        found += report.found
    return found


def check(document: ast.Document, scope: Scope) -> list[Diagnostic]:
    """Find names that nothing has, and variables that hide each other."""
    report = Report(document)
    for owner, body in owners(document):
        if isinstance(owner, ast.Metric):
            _check_attributes(owner, scope, report)
        elif isinstance(owner.body, ast.Key):
            _check_expression(owner.body.value, set(), report)
        _check_places(body, frozenset(), scope, report)
        known = _variables(owner)
        for insert in inserts(body):
            for statement in statements(insert.code.body):
                _check_statement(statement, known, report)
    return report.found


def _kind(definition: ast.ListDefinition | Owner) -> str:
    if isinstance(definition, ast.ListDefinition):
        return "list"
    return "constraint" if isinstance(definition, ast.Constraint) else "metric"


def _variables(owner: Owner) -> set[str]:
    if isinstance(owner, ast.Constraint):
        return {owner.name}
    return {owner.name, *owner.locals, *owner.constraints}


def _check_attributes(metric: ast.Metric, scope: Scope, report: Report) -> None:
    for name in metric.constraints:
        if name not in scope.constraints:
            otherwise = "define it, or import the file that does"
            hint = did_you_mean(name, scope.constraints, otherwise)
            report.add("MDL022", f"there is no constraint `{name}`", hint, metric, name)
    seen = {metric.name}
    for name in (*metric.locals, *metric.constraints):
        if name in seen:
            message = f"`{name}` is declared already in this metric"
            report.add("MDL025", message, "give each variable a name of its own", metric, name)
        seen.add(name)
    fields: set[str] = set()
    for name in metric.base.fields:
        if name in fields:
            message = f"there is a field `{name}` already"
            report.add("MDL025", message, "give each field a name of its own", metric.base, name)
        fields.add(name)


def _check_places(
    body: Iterable[ast.Where], variables: frozenset[str], scope: Scope, report: Report
) -> None:
    for where in body:
        place = where.place if isinstance(where, ast.Foreach) else where.point.place
        known = {*variables, *scope.lists}
        if place.name.startswith("$"):
            if place.name not in PLACES:
                hint = did_you_mean(place.name, PLACES, f"there are {', '.join(PLACES)}")
                report.add("MDL024", f"there is no place `{place.name}`", hint, place, place.name)
        elif place.name and place.name not in known:
            message = f"there is no list or foreach variable `{place.name}`"
            hint = did_you_mean(place.name, known, "define it, or import the file that does")
            report.add("MDL021", message, hint, place, place.name)
        if isinstance(where, ast.Foreach):
            _check_places(where.body, variables | {where.variable}, scope, report)


def _check_statement(statement: ast.Statement, known: set[str], report: Report) -> None:
    if (
        isinstance(statement, ast.Assign | ast.Observe | ast.TimerAction | ast.Emit)
        and statement.name not in known
    ):
        _report_variable(statement.name, known, statement, report)
    for expression in expressions(statement):
        _check_one(expression, known, report)


def _check_expression(value: ast.Expression, known: set[str], report: Report) -> None:
    for expression in expressions(value):
        _check_one(expression, known, report)


def _check_one(expression: ast.Expression, known: set[str], report: Report) -> None:
    if isinstance(expression, ast.Name) and expression.name not in known:
        _report_variable(expression.name, known, expression, report)
    elif isinstance(expression, ast.Variable) and expression.name not in VARIABLES:
        names = [f"${name}" for name in VARIABLES]
        hint = did_you_mean(f"${expression.name}", names, f"there are {', '.join(names)}")
        report.add("MDL024", f"there is no `${expression.name}`", hint, expression)


def _report_variable(name: str, known: set[str], node: ast.Node, report: Report) -> None:
    otherwise = f"declare it: `local {name};`; a variable of the program is `readSymbol(...)`"
    if name in ("arg", "return"):
        otherwise = f"write `${name}`"
    hint = did_you_mean(name, known, otherwise)
    report.add("MDL023", f"there is no variable `{name}`", hint, node, name)
