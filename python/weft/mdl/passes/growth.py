"""Whether a metric only grows, as its definition says: receivers may rely on it until the end."""

from __future__ import annotations

from collections.abc import Iterable

from weft.mdl import ast
from weft.mdl.passes.scope import inserts, statements

__all__ = ["only_grows"]

_CLOCKS = frozenset({"time", "cpu"})


def only_grows(metric: ast.Metric) -> bool:
    """Whether the value of a metric can never become less.

    What is added by an expression with a difference in it may be negative, unless that is the time
    which has passed since something. Values of the program itself are taken for amounts.
    """
    if metric.aggregate != "sum":
        # A thread that comes later may have less.
        return False
    body = [one for insert in inserts(metric.base.body) for one in statements(insert.code.body)]
    assigned = [one for one in body if isinstance(one, ast.Assign)]
    return not any(_may_fall(one, assigned) for one in assigned if one.name == metric.name)


def _may_fall(statement: ast.Assign, assigned: Iterable[ast.Assign]) -> bool:
    if statement.operator != "+=":
        return True
    locals_ = {one.name: one.value for one in assigned if one.name != statement.name}
    return _may_be_negative(statement.value, locals_)


def _may_be_negative(value: ast.Expression, locals_: dict[str, ast.Expression]) -> bool:
    if isinstance(value, ast.Number):
        return value.value < 0
    if isinstance(value, ast.Unary):
        return value.operator == "-" or _may_be_negative(value.value, locals_)
    if isinstance(value, ast.Binary):
        if value.operator == "-":
            left = value.left
            return not (isinstance(left, ast.Variable) and left.name in _CLOCKS)
        return any(_may_be_negative(one, locals_) for one in (value.left, value.right))
    if isinstance(value, ast.Call):
        return any(_may_be_negative(one, locals_) for one in value.arguments)
    if isinstance(value, ast.Name) and value.name in locals_:
        # Each is looked at once, so that they may be in terms of each other.
        others = {name: text for name, text in locals_.items() if name != value.name}
        return _may_be_negative(locals_[value.name], others)
    return False
