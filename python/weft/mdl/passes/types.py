"""Whether what is done to a variable fits its type."""

from __future__ import annotations

from weft.mdl import ast
from weft.mdl.diagnostics import Diagnostic
from weft.mdl.functions import FUNCTIONS
from weft.mdl.passes.names import VARIABLES
from weft.mdl.passes.places import KINDS
from weft.mdl.passes.scope import Report, expressions, inserts, owners, statements
from weft.mdl.passes.texts import columns, is_stack, kind_of, misplaced

__all__ = ["check"]

_NUMBERS = ("counter", "rate")
_CLOCKS = {"wallTimer": "wall", "processTimer": "process"}
_MOST_KEYS = 2
_DEEPEST = 127
"""How many frames of a stack are kept."""


def check(document: ast.Document) -> list[Diagnostic]:
    """Find what cannot be done to the variable that it is done to."""
    report = Report(document)
    for owner, body in owners(document):
        found = list(inserts(body))
        for insert in found:
            _check_point(insert, report)
        if isinstance(owner, ast.Constraint):
            if isinstance(owner.body, ast.Key):
                _check_values(owner.body.value, report)
            for insert in found:
                _check_predicate(owner, insert, report)
        else:
            _check_base(owner.base, report)
            _check_columns(owner, report)
            for insert in found:
                for statement in statements(insert.code.body):
                    _check_statement(owner, statement, report)
    return report.found


def _check_point(insert: ast.Insert, report: Report) -> None:
    if insert.when == "postInsn" and insert.point.kind in set(KINDS) - {"calls"}:
        message = f"`postInsn` does not go with `{insert.point.kind}`"
        hint = "use `preInsn`; only a call has something behind it that belongs to it"
        report.add("MDL035", message, hint, insert.point)


def _check_base(base: ast.Base, report: Report) -> None:
    if base.type == "map" and len(base.fields) > _MOST_KEYS:
        message = f"this map has {len(base.fields)} keys"
        report.add("MDL033", message, "a map has one key or two", base, base.fields[_MOST_KEYS])
    if base.process and base.type not in _NUMBERS:
        message = f"what the kernel counts is no {base.type}"
        report.add("MDL030", message, "write `base is counter $process...`", base)


def _check_columns(metric: ast.Metric, report: Report) -> None:
    """A key, or a field, is a text, or a stack, everywhere or nowhere."""
    for number, column in enumerate(columns(metric)):
        unlike = [one for one in column if kind_of(one) != kind_of(column[0])]
        if unlike:
            kinds = {kind_of(unlike[0]), kind_of(column[0])}
            what, use = ("text", "str(...)") if "str" in kinds else ("stack", "stack()")
            message = f"key or field {number + 1} of `{metric.name}` is a {what} elsewhere, or here"
            report.add("MDL033", message, f"use `{use}` for all of them or none", unlike[0])


def _check_predicate(constraint: ast.Constraint, insert: ast.Insert, report: Report) -> None:
    """A predicate is set where something begins, and cleared where it ends: no more, no less."""
    kind = insert.point.kind
    if kind not in ("entry", "return"):
        message = f"a constraint cannot be set at `{kind}`"
        hint = "set it at `entry`, and clear it at `return`"
        report.add("MDL036", message, hint, insert.point)
        return
    value = 1 if kind == "entry" else 0
    wanted = ast.Assign(constraint.name, "=", ast.Number(value))
    for statement in insert.code.body:
        if statement != wanted:
            message = f"at `{kind}` a constraint can do one thing only"
            hint = f"write `{constraint.name} = {value};`"
            report.add("MDL036", message, hint, statement)


def _check_statement(metric: ast.Metric, statement: ast.Statement, report: Report) -> None:
    if isinstance(statement, ast.Assign | ast.Observe | ast.TimerAction | ast.Emit):
        kind = _type_of(metric, statement.name)
        if kind:
            _check_action(metric, statement, kind, report)
    elif isinstance(statement, ast.Call) and statement.function in FUNCTIONS:
        message = f"`{statement.function}` alone does nothing"
        report.add("MDL030", message, "use what it gives", statement)
    for text in misplaced(statement):
        hint = "`str(...)` can be a key of a map, a field of a record, or compared with another"
        if is_stack(text):
            hint = "`stack()` can be a key of a map, or a field of a record"
        what = "stack" if is_stack(text) else "text"
        report.add("MDL046", f"a {what} where a number is needed", hint, text)
    for expression in expressions(statement):
        if isinstance(expression, ast.Name):
            kind = _type_of(metric, expression.name)
            if kind not in ("", "local", "constraint", *_NUMBERS):
                message = f"`{expression.name}` is a {kind}, which has no value inside the program"
                report.add("MDL037", message, "keep what you need in a `local`", expression)
        _check_value(expression, report)


def _type_of(metric: ast.Metric, name: str) -> str:
    """Return the type of a variable; nothing for one that does not exist."""
    if name == metric.name:
        return metric.base.type
    if name in metric.locals:
        return "local"
    return "constraint" if name in metric.constraints else ""


def _check_action(
    metric: ast.Metric,
    statement: ast.Assign | ast.Observe | ast.TimerAction | ast.Emit,
    kind: str,
    report: Report,
) -> None:
    name = statement.name
    if isinstance(statement, ast.Assign):
        _check_assign(metric, statement, kind, report)
    elif isinstance(statement, ast.Observe):
        if kind != "histogram":
            message = f"`{name}` is a {kind}, and `<<` is for histograms"
            report.add("MDL031", message, _instead(name, kind), statement)
    elif isinstance(statement, ast.TimerAction):
        if kind != "histogram" and kind not in _CLOCKS:
            message = f"`{name}` is a {kind}, not a timer"
            hint = f"write `base is {statement.clock or 'wall'}Timer`, or `base is histogram`"
            report.add("MDL032", message, hint, statement)
        elif kind == "histogram" and statement.clock == "process":
            message = "a histogram takes wall time, not the time that the thread runs"
            hint = f"write `{statement.action} {name};`, or `base is processTimer`"
            report.add("MDL032", message, hint, statement)
        elif statement.clock and _CLOCKS.get(kind, statement.clock) != statement.clock:
            hint = f"write `{statement.action} {name};`"
            report.add("MDL032", f"`{name}` is a {kind}", hint, statement)
    elif kind != "record":
        message = f"`{name}` is a {kind}, and `emit` is for records"
        report.add("MDL034", message, _instead(name, kind), statement)
    elif len(statement.values) != len(metric.base.fields):
        message = f"`{name}` has {len(metric.base.fields)} fields, not {len(statement.values)}"
        fields = ", ".join(metric.base.fields)
        report.add("MDL034", message, f"give one value for each of {fields}", statement)


def _check_assign(metric: ast.Metric, statement: ast.Assign, kind: str, report: Report) -> None:
    name = statement.name
    if kind == "map":
        fields = ", ".join(metric.base.fields)
        if len(statement.keys) != len(metric.base.fields):
            message = f"`{name}` has {_count(len(metric.base.fields), 'key')}"
            report.add("MDL033", message, f"write `{name}[{fields}] += ...;`", statement)
        elif statement.operator == "=":
            message = "a map can be added to, but not set"
            report.add("MDL030", message, f"write `{name}[{fields}] += ...;`", statement)
    elif statement.keys:
        hint = f"write `{name}` without brackets, or `base is map[...]`"
        report.add("MDL033", f"`{name}` is a {kind}, and has no keys", hint, statement)
    elif kind in _NUMBERS:
        if statement.operator == "=":
            message = f"a {kind} can be added to, but not set"
            hint = "use `+=` or `-=`; what has to be set can be a `local`"
            report.add("MDL030", message, hint, statement)
    elif kind == "constraint":
        message = f"`{name}` is a constraint, and only its own definition sets it"
        report.add("MDL030", message, "declare a `local` of another name", statement)
    elif kind != "local":
        message = f"`{name}` is a {kind}, and cannot be set or added to"
        report.add("MDL030", message, _instead(name, kind), statement)


def _check_values(value: ast.Expression, report: Report) -> None:
    for expression in expressions(value):
        _check_value(expression, report)


def _check_value(expression: ast.Expression, report: Report) -> None:
    if is_stack(expression) and isinstance(expression, ast.Call) and expression.arguments:
        depth = expression.arguments[0]
        if not isinstance(depth, ast.Number) or not 1 <= depth.value <= _DEEPEST:
            hint = f"write `stack()`, or `stack(n)` with a number from 1 to {_DEEPEST}"
            report.add("MDL038", "a stack cannot have so many frames", hint, depth)
    if isinstance(expression, ast.Call) and expression.function in FUNCTIONS:
        counts = FUNCTIONS[expression.function]
        if len(expression.arguments) not in counts:
            count = counts[-1]
            few = f"{counts[0]} or " if len(counts) > 1 else ""
            message = f"`{expression.function}` takes {few}{_count(count, 'argument')}"
            hint = f"write `{expression.function}({', '.join('ab'[:count])})`"
            report.add("MDL038", message, hint, expression)
    elif isinstance(expression, ast.Variable) and expression.name in VARIABLES:
        takes_index = VARIABLES[expression.name]
        if takes_index and expression.index < 0:
            message = f"`${expression.name}` has no index"
            report.add("MDL039", message, f"write `${expression.name}[0]`", expression)
        elif not takes_index and expression.index >= 0:
            message = f"`${expression.name}` takes no index"
            report.add("MDL039", message, f"write `${expression.name}`", expression)


def _instead(name: str, kind: str) -> str:
    """Say what can be done to a variable of a type."""
    if kind == "histogram":
        return f"write `{name} << value;`"
    if kind in _CLOCKS:
        return f"write `start {name};` and `stop {name};`"
    if kind == "record":
        return f"write `emit {name}(...);`"
    if kind == "map":
        return f"write `{name}[key] += value;`"
    return f"write `{name} += value;`"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
