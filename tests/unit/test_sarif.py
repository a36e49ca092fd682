"""What was not executed, as code scanning reads it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_coverage import known, written
from weft.export.coverage import sarif
from weft.model.flow import CodeModule, Flow
from weft.tools.coverage import Coverage, FileCoverage, FunctionCoverage, ModuleCoverage


def covered(path: str, lines: dict[int, int], functions: list[tuple[str, int, int]]) -> Coverage:
    """A file with lines and functions, the latter by name, line and count."""
    found = tuple(
        FunctionCoverage(name, number, 1, count, path, line)
        for number, (name, line, count) in enumerate(functions)
    )
    module = ModuleCoverage("/x", True, len(found), found, (FileCoverage(path, lines, ()),))
    place = CodeModule("/x", None, 0, 0, 0, ())
    return Coverage(Flow((place,), (), False, ("x", "-y")), (module,))


def run_of(what: Coverage) -> dict[str, Any]:
    document = json.loads(written(sarif, what))
    assert document["version"] == "2.1.0"
    [run] = document["runs"]
    assert isinstance(run, dict)
    return run


def told(what: Coverage) -> list[tuple[str, int, int]]:
    results = run_of(what)["results"]
    places = [result["locations"][0]["physicalLocation"]["region"] for result in results]
    return [
        (result["message"]["text"], place["startLine"], place["endLine"])
        for result, place in zip(results, places, strict=True)
    ]


def test_functions_are_one_note_and_lines_only_in_executed_ones(tmp_path: Path) -> None:
    lines = {1: 1, 2: 0, 3: 0, 4: 1, 6: 0, 10: 0, 11: 0, 20: 1, 21: 0}
    functions = [("f", 1, 1), ("g", 10, 0), ("h", 20, 1)]
    assert told(covered("/src/a.c", lines, functions)) == [
        ("g was not executed", 10, 10),
        ("lines 2 to 3 were not executed", 2, 3),
        ("line 6 was not executed", 6, 6),
        ("line 21 was not executed", 21, 21),
    ]


def test_every_result_has_a_rule_and_a_level() -> None:
    run = run_of(covered("/src/a.c", {1: 1, 2: 0}, [("f", 1, 1), ("g", 9, 0)]))
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in run["results"]} == rules
    assert {result["level"] for result in run["results"]} == {"note"}


def test_files_are_named_from_where_the_repository_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inside = run_of(covered(f"{tmp_path}/a dir/b.c", {1: 0}, [("f", 1, 0)]))
    [result] = inside["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {
        "uri": "a%20dir/b.c",
        "uriBaseId": "%SRCROOT%",
    }
    assert inside["originalUriBaseIds"]["%SRCROOT%"]["uri"] == f"{tmp_path.as_uri()}/"
    [result] = run_of(covered("/src/b.c", {1: 0}, [("f", 1, 0)]))["results"]
    location = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location == {"uri": "file:///src/b.c"}


def test_what_is_incomplete_is_a_notification() -> None:
    def notes(what: Coverage) -> list[str]:
        [invocation] = run_of(what)["invocations"]
        return [note["message"]["text"] for note in invocation["toolExecutionNotifications"]]

    assert notes(known()) == ["incomplete: some"]
    what = covered("/src/b.c", {1: 1}, [("f", 1, 1)])
    assert notes(what) == []
    [module] = what.modules
    nameless = replace(module, functions=(FunctionCoverage("g", 5, 1, 0),))
    assert "source is not known" in notes(replace(what, modules=(nameless,)))[0]


def test_no_more_than_can_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "_MOST", 3)
    what = covered("/src/b.c", {1: 0}, [(f"f{line}", line, 0) for line in range(1, 6)])
    run = run_of(what)
    assert len(run["results"]) == 3
    [note] = run["invocations"][0]["toolExecutionNotifications"]
    assert "2 results are left out" in note["message"]["text"]
