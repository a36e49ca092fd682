"""What `str` gives: texts, which are keys and fields, and can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.mdl import ast
from weft.mdl.passes.scope import inserts, statements

__all__ = ["columns", "is_text", "misplaced"]


def is_text(value: ast.Expression | None) -> bool:
    """Whether an expression is a text."""
    return isinstance(value, ast.Call) and value.function == "str"


def columns(metric: ast.Metric) -> Sequence[Sequence[ast.Expression]]:
    """Return the expressions for each key of a metric's own map, or each field of its records."""
    rows = [
        one.keys if isinstance(one, ast.Assign) else one.values
        for insert in inserts(metric.base.body)
        for one in statements(insert.code.body)
        if isinstance(one, ast.Assign | ast.Emit) and one.name == metric.name
    ]
    return list(zip(*(row for row in rows if row), strict=False))


def misplaced(node: ast.Statement | ast.Expression) -> Iterator[ast.Expression]:
    """Find the texts where a number is needed."""
    allowed: Sequence[ast.Expression] = ()
    others: Sequence[ast.Expression] = ()
    if isinstance(node, ast.Assign):
        allowed, others = node.keys, (node.value,)
    elif isinstance(node, ast.Emit):
        allowed = node.values
    elif isinstance(node, ast.Observe):
        others = (node.value,)
    elif isinstance(node, ast.If):
        others = (node.condition,)
    elif isinstance(node, ast.Binary):
        both = (node.left, node.right)
        compares = node.operator in ("==", "!=") and all(map(is_text, both))
        allowed, others = (both, ()) if compares else ((), both)
    elif isinstance(node, ast.Unary | ast.Field):
        others = (node.value,)
    elif isinstance(node, ast.Call):
        others = node.arguments
    yield from (one for one in others if is_text(one))
    for part in (*allowed, *others):
        yield from misplaced(part)
