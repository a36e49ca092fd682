"""Reads MDL with everything that it imports, and checks all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weft.errors import BadMetric
from weft.mdl import ast
from weft.mdl.diagnostics import MOST_ERRORS, Diagnostic, has_errors, render
from weft.mdl.passes import names, places, types
from weft.mdl.passes.imports import Sources
from weft.mdl.passes.scope import Scope

__all__ = ["Library", "bad_metric", "check", "load"]

_UNKNOWN = ("MDL021", "MDL022")
"""What is not said when some definition is broken: it may be the one that is missed."""


@dataclass(frozen=True)
class Library:
    """Definitions by their names, ready for use."""

    lists: Mapping[str, ast.ListDefinition] = field(default_factory=dict)
    constraints: Mapping[str, ast.Constraint] = field(default_factory=dict)
    metrics: Mapping[str, ast.Metric] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    """Warnings: what is odd, but can be used."""
    shipped: Library | None = None
    """What comes with weft, where definitions of other files hide some of it."""

    def plus(self, other: Library) -> Library:
        """Return the definitions of both, which may have some in common."""
        return Library(
            {**self.lists, **other.lists},
            {**self.constraints, **other.constraints},
            {**self.metrics, **other.metrics},
            (*self.diagnostics, *other.diagnostics),
        )

    def used_by(self, metric: ast.Metric) -> Library:
        """Return the definitions that the names in a metric stand for.

        What a user's file defines hides what weft's own files have under the same name, but not
        from the metrics of these files: they mean what they meant.
        """
        shipped = self.shipped
        return shipped if shipped and shipped.metrics.get(metric.name) is metric else self


def load(*sources: str | Path) -> Library:
    """Read files or texts that belong together, and what they import.

    A :class:`~pathlib.Path`, or a single line that ends in ``.mdl``, is a file; any other string is
    a text. Mistakes raise :class:`~weft.errors.BadMetric`, which carries all of them.
    """
    found = Sources()
    for source in sources:
        if isinstance(source, Path):
            found.add_file(source)
        elif source.endswith(".mdl") and "\n" not in source:
            found.add_file(Path(source))
        else:
            found.add_text(source)
    diagnostics = found.diagnostics + check(found.own, found.shipped)
    if has_errors(found.diagnostics):
        diagnostics = [one for one in diagnostics if one.code not in _UNKNOWN]
    if has_errors(diagnostics):
        raise bad_metric(diagnostics, found.texts)
    inner = Scope.of(found.shipped)
    shipped = Library(inner.lists, inner.constraints, inner.metrics)
    scope = Scope.of([*found.own, *found.shipped])
    return Library(
        scope.lists, scope.constraints, scope.metrics, tuple(diagnostics), shipped=shipped
    )


def check(
    documents: Sequence[ast.Document], shipped: Sequence[ast.Document] = ()
) -> list[Diagnostic]:
    """Run all passes over documents that are used together.

    Those that come with weft do not see the others, which may hide what they define.
    """
    found = names.check_duplicates(shipped) + names.check_duplicates(documents)
    inner, outer = Scope.of(shipped), Scope.of([*documents, *shipped])
    for some, scope in ((shipped, inner), (documents, outer)):
        for document in some:
            found += names.check(document, scope)
            found += types.check(document)
            found += places.check(document, scope)
    order = {document.file: number for number, document in enumerate([*shipped, *documents])}
    return sorted(found, key=lambda one: (order[one.file], one.span.line, one.span.column))


def bad_metric(diagnostics: Iterable[Diagnostic], texts: Mapping[str, str]) -> BadMetric:
    """Return the error that shows all mistakes, each in its text."""
    errors = [one for one in diagnostics if one.severity == "error"]
    where = ", ".join(dict.fromkeys(one.file for one in errors))
    count = "a mistake" if len(errors) == 1 else f"{len(errors)} mistakes"
    codes = ", ".join(dict.fromkeys(one.code for one in errors))
    lines = {file: text.split("\n") for file, text in texts.items()}
    shown = "\n".join(render(one, lines.get(one.file, [])) for one in errors[:MOST_ERRORS])
    if len(errors) > MOST_ERRORS:
        shown += f"\nand {len(errors) - MOST_ERRORS} more"
    return BadMetric(
        f"there is {count} in {where}" if len(errors) == 1 else f"there are {count} in {where}",
        f"\n{shown}",
        f"the reference has more, with examples, under {codes}",
        diagnostics,
    )
