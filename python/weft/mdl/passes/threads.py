"""Whether it matters to a metric which thread is at a point."""

from __future__ import annotations

from collections.abc import Iterator

from weft.mdl import ast
from weft.mdl.passes.scope import expressions, inserts, statements

__all__ = ["asks_for_thread", "tells_threads_apart"]


def tells_threads_apart(metric: ast.Metric) -> bool:
    """Whether the value depends on which thread has measured what.

    So it does where the thread is asked for, where one thread's value stands for all, and where a
    variable of each thread says what has happened in it since it began.
    """
    if metric.base.process:
        return False
    body = [one for insert in inserts(metric.base.body) for one in statements(insert.code.body)]
    is_asked_for = any(asks_for_thread(inner) for one in body for inner in expressions(one))
    return metric.aggregate != "sum" or is_asked_for or any(_kept(metric.locals, body))


def asks_for_thread(expression: ast.Expression) -> bool:
    """Whether a part of an expression is the thread."""
    inner = expressions(expression)
    return any(isinstance(one, ast.Variable) and one.name == "thread" for one in inner)


def _kept(names: tuple[str, ...], body: list[ast.Statement]) -> Iterator[str]:
    """The variables that leave 0 and never come back, and count something or are flags."""
    for name in names:
        assigned = [one for one in body if isinstance(one, ast.Assign) and one.name == name]
        conditions = [one.condition for one in body if isinstance(one, ast.If)]
        comes_back = any(one.operator == "-=" or _is_zero(one.value) for one in assigned)
        is_counted = any(one.operator == "+=" or _names(one.value, name) for one in assigned)
        is_flag = all(isinstance(one.value, ast.Number) for one in assigned)
        is_asked = is_flag and any(_is_compared(one, name) for one in conditions)
        if not comes_back and (is_counted or is_asked):
            yield name


def _is_zero(value: ast.Expression) -> bool:
    return isinstance(value, ast.Number) and value.value == 0


def _names(value: ast.Expression, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.name == name for one in expressions(value))


def _is_compared(condition: ast.Expression, name: str) -> bool:
    """Whether a condition is about a variable alone, or has a part that is."""
    if isinstance(condition, ast.Unary):
        return _is_compared(condition.value, name)
    if isinstance(condition, ast.Binary):
        parts = (condition.left, condition.right)
        if condition.operator in ("&&", "||") or any(isinstance(one, ast.Number) for one in parts):
            return any(_is_compared(one, name) for one in parts)
        return False
    return isinstance(condition, ast.Name) and condition.name == name
