"""The files of the library are examples: they are complete, and say what they do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from weft.mdl import ast
from weft.mdl.parser import parse
from weft.mdl.passes import names, places, types
from weft.mdl.passes.scope import Scope

LIBRARY = Path(weft.__file__).parent / "metrics" / "library"
FILES = sorted(LIBRARY.glob("*.mdl"))
DOCUMENTS = [parse(file.read_text(), file.name) for file in FILES]


def definitions() -> Iterator[ast.Definition]:
    for document, _ in DOCUMENTS:
        yield from document.definitions


METRICS = [definition for definition in definitions() if isinstance(definition, ast.Metric)]


def test_nothing_is_wrong_with_it() -> None:
    documents = [document for document, _ in DOCUMENTS]
    scope = Scope.of(documents)
    found = [*names.check_duplicates(documents)]
    for document, diagnostics in DOCUMENTS:
        found += diagnostics
        found += names.check(document, scope)
        found += places.check(document, scope)
        found += types.check(document)
    assert [str(diagnostic) for diagnostic in found] == []


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_says_what_it_counts_and_how_it_is_asked_for(metric: ast.Metric) -> None:
    assert metric.title
    assert metric.units
    text, _, example = metric.doc.partition("\n\n")
    assert text.endswith(".")
    assert re.fullmatch(rf" {{4}}weft attach PID -m {metric.name}(@/Code/\S+)?", example)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_with_constraints_is_constrained(metric: ast.Metric) -> None:
    def inserts(body: tuple[ast.Where, ...]) -> Iterator[ast.Insert]:
        for where in body:
            if isinstance(where, ast.Insert):
                yield where
            else:
                yield from inserts(where.body)

    is_constrained = any(insert.constrained for insert in inserts(metric.base.body))
    assert is_constrained == bool(metric.constraints)


def test_files_import_what_they_use() -> None:
    for document, _ in DOCUMENTS:
        own = {d.name for d in document.definitions if isinstance(d, ast.Constraint)}
        used = {
            name
            for d in document.definitions
            if isinstance(d, ast.Metric)
            for name in d.constraints
        }
        imports = {d.file for d in document.definitions if isinstance(d, ast.Import)}
        assert imports == ({"constraints.mdl"} if used - own else set())
