"""What `str` and `stack` give: keys and fields that are no numbers. Texts can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.mdl import ast
from weft.mdl.passes.scope import inserts, statements

__all__ = ["columns", "is_stack", "is_text", "kind_of", "misplaced"]


def is_text(value: ast.Expression | None) -> bool:
    """Whether an expression is a text."""
    return kind_of(value) == "str"


def is_stack(value: ast.Expression | None) -> bool:
    """Whether an expression is a stack."""
    return kind_of(value) == "stack"


def kind_of(value: ast.Expression | None) -> str:
    """What a key or a field is, as snippets declare it."""
    if isinstance(value, ast.Call) and value.function in ("str", "stack"):
        return str(value.function)
    return "int"


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
    """Find the texts and stacks where a number is needed."""
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
    yield from (one for one in others if kind_of(one) != "int")
    for part in (*allowed, *others):
        yield from misplaced(part)
