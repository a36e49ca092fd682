"""The files of the library are examples: they are complete, and say what they do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from weft.mdl import ast
from weft.mdl.format import format_document
from weft.mdl.loader import load

LIBRARY = Path(weft.__file__).parent / "metrics" / "library"
FILES = sorted(LIBRARY.glob("*.mdl"))
METRICS = list(load(*FILES).metrics.values())

every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
every_metric = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)


@every_file
def test_a_file_imports_what_it_uses(file: Path) -> None:
    assert not load(file).diagnostics


@every_file
def test_a_file_looks_as_files_should(file: Path) -> None:
    text = file.read_text()
    assert format_document(text) == text
    assert text.startswith("// ")


@every_metric
def test_a_metric_says_what_it_counts_and_how_it_is_asked_for(metric: ast.Metric) -> None:
    assert metric.title
    assert metric.units
    text, _, example = metric.doc.partition("\n\n")
    assert text.endswith(".")
    assert re.fullmatch(rf" {{4}}weft attach PID -m {metric.name}(@/Code/\S+)?", example)


@every_metric
def test_a_metric_with_constraints_is_constrained(metric: ast.Metric) -> None:
    is_constrained = any(insert.constrained for insert in inserts(metric.base.body))
    assert is_constrained == bool(metric.constraints)


def inserts(body: tuple[ast.Where, ...]) -> Iterator[ast.Insert]:
    for where in body:
        if isinstance(where, ast.Insert):
            yield where
        else:
            yield from inserts(where.body)
