"""Whether a metric only grows, as its definition says: receivers may rely on it until the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from weft.mdl import ast
from weft.mdl.passes.scope import inserts, statements

__all__ = ["must_grow", "only_grows"]

_CLOCKS = frozenset({"time", "cpu"})


def only_grows(metric: ast.Metric) -> bool:
    """Whether the value of a metric is not meant to become less.

    What is added by an expression with a difference in it may be negative, unless that is the time
    which has passed since something. Values of the program itself are taken for amounts.
    """
    return _grows(metric, lambda value: False)


def must_grow(metric: ast.Metric) -> bool:
    """Whether the value can never become less, whatever values the program has."""
    return _grows(metric, _is_of_program)


_MayBeNegative: TypeAlias = Callable[[ast.Expression], bool]


def _grows(metric: ast.Metric, may_be_negative: _MayBeNegative) -> bool:
    if metric.aggregate != "sum":
        # A thread that comes later may have less.
        return False
    body = [one for insert in inserts(metric.base.body) for one in statements(insert.code.body)]
    assigned = [one for one in body if isinstance(one, ast.Assign)]
    own = [one for one in assigned if one.name == metric.name]
    return not any(_may_fall(one, assigned, may_be_negative) for one in own)


def _is_of_program(value: ast.Expression) -> bool:
    if isinstance(value, ast.Variable):
        return value.name in ("arg", "return")
    return isinstance(value, ast.Field | ast.ReadSymbol | ast.Call)


def _may_fall(
    statement: ast.Assign, assigned: Iterable[ast.Assign], may_be_negative: _MayBeNegative
) -> bool:
    if statement.operator != "+=":
        return True
    locals_ = [(one.name, one.value) for one in assigned if one.name != statement.name]
    return _is_negative(statement.value, locals_, may_be_negative)


def _is_negative(
    value: ast.Expression,
    locals_: Sequence[tuple[str, ast.Expression]],
    may_be_negative: _MayBeNegative,
) -> bool:
    """Whether a value may be negative, given all that variables of threads may be."""
    if isinstance(value, ast.Number):
        return value.value < 0
    if isinstance(value, ast.Unary):
        return value.operator == "-" or _is_negative(value.value, locals_, may_be_negative)
    if isinstance(value, ast.Binary):
        if value.operator == "-":
            left = value.left
            return not (isinstance(left, ast.Variable) and left.name in _CLOCKS)
        sides = (value.left, value.right)
        return any(_is_negative(one, locals_, may_be_negative) for one in sides)
    if may_be_negative(value):
        return True
    if isinstance(value, ast.Call):
        return any(_is_negative(one, locals_, may_be_negative) for one in value.arguments)
    if isinstance(value, ast.Name):
        # Each is looked at once, so that they may be in terms of each other.
        others = [(name, text) for name, text in locals_ if name != value.name]
        own = (text for name, text in locals_ if name == value.name)
        return any(_is_negative(text, others, may_be_negative) for text in own)
    return False
