"""What was not executed as SARIF 2.1.0, which code scanning shows beside the source.

A function that was never entered is one note; so are lines that were not executed in functions that
were. What is incomplete is a notification of the run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from weft import __version__
from weft.tools.coverage import Coverage, FileCoverage, FunctionCoverage

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_FUNCTION, _LINES = "function-not-executed", "lines-not-executed"
_MOST = 25_000
"""How many results GitHub takes: https://docs.github.com/code-security (SARIF support)."""
_RULES = {
    _FUNCTION: "A function that was not executed",
    _LINES: "Lines that were not executed in a function that was",
}


def write(file: BinaryIO, coverage: Coverage) -> None:
    """Write a coverage to a file."""
    results = [
        result for source, functions in coverage.files() for result in _results(source, functions)
    ]
    notes = [f"incomplete: {text}" for text in coverage.flow.lost] + coverage.remarks()
    unplaced = sum(not one.count and not one.file for _, one in coverage.functions())
    if unplaced:
        notes.append(f"incomplete: of {unplaced:,} functions not executed the source is not known")
    if len(results) > _MOST:
        notes.append(f"incomplete: {len(results) - _MOST:,} results are left out")
    run = {
        "tool": {
            "driver": {
                "name": "weft cov",
                "version": __version__,
                "rules": [
                    {
                        "id": name,
                        "shortDescription": {"text": text},
                        "defaultConfiguration": {"level": "note"},
                    }
                    for name, text in _RULES.items()
                ],
            }
        },
        "invocations": [
            {
                "executionSuccessful": True,
                "commandLine": " ".join(coverage.flow.command),
                "toolExecutionNotifications": [
                    {"level": "warning", "message": {"text": text}} for text in notes
                ],
            }
        ],
        "originalUriBaseIds": {"%SRCROOT%": {"uri": f"{Path.cwd().as_uri()}/"}},
        "columnKind": "unicodeCodePoints",
        "results": results[:_MOST],
    }
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    file.write(json.dumps(document, indent=1).encode() + b"\n")


def _results(
    source: FileCoverage, functions: Sequence[FunctionCoverage]
) -> Iterator[dict[str, Any]]:
    missed = sorted((one.line, one.name) for one in functions if one.line and not one.count)
    for line, name in missed:
        yield _result(_FUNCTION, f"{name} was not executed", source.path, line, line)
    for first, last in _ranges(source, functions):
        lines = f"line {first} was" if first == last else f"lines {first} to {last} were"
        yield _result(_LINES, f"{lines} not executed", source.path, first, last)


def _ranges(
    source: FileCoverage, functions: Sequence[FunctionCoverage]
) -> Iterator[tuple[int, int]]:
    """Lines that follow each other and were not executed, in functions that were."""
    counts = {function.line: 0 for function in functions if function.line}
    for function in functions:
        if function.line:
            counts[function.line] += function.count
    first = last = 0
    is_inside = True
    for line, count in source.lines.items():
        if line in counts:
            # Here another function begins.
            if first:
                yield first, last
            first, is_inside = 0, counts[line] > 0
        if not count and is_inside:
            first, last = first or line, line
        elif first:
            yield first, last
            first = 0
    if first:
        yield first, last


def _result(rule: str, text: str, path: str, first: int, last: int) -> dict[str, Any]:
    region = {"startLine": first, "endLine": last}
    place = {"artifactLocation": _location(path), "region": region}
    return {
        "ruleId": rule,
        "level": "note",
        "message": {"text": text},
        "locations": [{"physicalLocation": place}],
    }


def _location(path: str) -> dict[str, str]:
    """The file as seen from the working directory, where a repository is; or where it is."""
    inside = os.path.relpath(path)
    if inside.startswith(".."):
        return {"uri": Path(path).as_uri() if path.startswith("/") else quote(path)}
    return {"uri": quote(inside), "uriBaseId": "%SRCROOT%"}
