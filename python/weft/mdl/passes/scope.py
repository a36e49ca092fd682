"""What the passes share: which definitions there are, and walks through code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from weft.mdl import ast
from weft.mdl.diagnostics import Diagnostic, problem
from weft.mdl.words import place_of

__all__ = [
    "Report",
    "Scope",
    "expressions",
    "inserts",
    "is_timed",
    "owners",
    "places",
    "statements",
]

Owner = ast.Metric | ast.Constraint


@dataclass
class Scope:
    """The definitions that a document can use: its own, and those that it imports."""

    lists: dict[str, ast.ListDefinition] = field(default_factory=dict)
    constraints: dict[str, ast.Constraint] = field(default_factory=dict)
    metrics: dict[str, ast.Metric] = field(default_factory=dict)

    @classmethod
    def of(cls, documents: Iterable[ast.Document]) -> Scope:
        """Collect the definitions of documents; of two with one name, the first counts."""
        scope = cls()
        for document in documents:
            for definition in document.definitions:
                if isinstance(definition, ast.ListDefinition):
                    scope.lists.setdefault(definition.name, definition)
                elif isinstance(definition, ast.Constraint):
                    scope.constraints.setdefault(definition.name, definition)
                elif isinstance(definition, ast.Metric):
                    scope.metrics.setdefault(definition.name, definition)
        return scope


class Report:
    """Collects what a pass finds in one document."""

    def __init__(self, document: ast.Document) -> None:
        self.file = document.file
        self.found: list[Diagnostic] = []

    def add(self, code: str, message: str, hint: str, node: ast.Node, name: str = "") -> None:
        """Note a mistake of a node, or of one of its names."""
        span = place_of(name, node) if name else node.span
        self.found.append(problem(code, message, hint, self.file, span))


def owners(document: ast.Document) -> Iterator[tuple[Owner, tuple[ast.Where, ...]]]:
    """Find the definitions that insert code, each with what it inserts."""
    for definition in document.definitions:
        if isinstance(definition, ast.Metric):
            yield definition, definition.base.body
        elif isinstance(definition, ast.Constraint):
            yield definition, definition.body if isinstance(definition.body, tuple) else ()


def inserts(wheres: Iterable[ast.Where]) -> Iterator[ast.Insert]:
    """Find all insertions, those within ``foreach`` too."""
    for where in wheres:
        if isinstance(where, ast.Foreach):
            yield from inserts(where.body)
        else:
            yield where


def places(wheres: Iterable[ast.Where]) -> Iterator[ast.Place]:
    """Find all places that are gone through or inserted at, those within ``foreach`` too."""
    for where in wheres:
        if isinstance(where, ast.Foreach):
            yield where.place
            yield from places(where.body)
        else:
            yield where.point.place


def statements(body: Iterable[ast.Statement]) -> Iterator[ast.Statement]:
    """Find all statements, those within ``if`` too."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from statements(statement.then)
            yield from statements(statement.otherwise)


def expressions(node: ast.Statement | ast.Expression) -> Iterator[ast.Expression]:
    """Find all expressions of a statement, or within an expression; not those of statements in it.

    The expression itself is among them.
    """
    parts: tuple[ast.Expression, ...] = ()
    if isinstance(node, ast.Assign):
        parts = (*node.keys, node.value)
    elif isinstance(node, ast.Observe):
        parts = (node.value,)
    elif isinstance(node, ast.Emit):
        parts = node.values
    elif isinstance(node, ast.If):
        parts = (node.condition,)
    elif not isinstance(node, ast.TimerAction):
        yield node
        if isinstance(node, ast.Binary):
            parts = (node.left, node.right)
        elif isinstance(node, ast.Unary | ast.Field):
            parts = (node.value,)
        elif isinstance(node, ast.Call):
            parts = node.arguments
    for part in parts:
        yield from expressions(part)


def is_timed(body: Iterable[ast.Where]) -> bool:
    """Whether something is started and stopped, so that what is measured are times."""
    code = (one for insert in inserts(body) for one in statements(insert.code.body))
    return any(isinstance(one, ast.TimerAction) for one in code)
