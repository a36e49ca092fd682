"""Coverage held against a limit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.test_coverage import known, written
from weft.cli import main
from weft.errors import CoverageTooLow
from weft.export.coverage import json as coverage_json
from weft.model.flow import CodeModule, Flow
from weft.tools.coverage import (
    Coverage,
    FileCoverage,
    FunctionCoverage,
    ModuleCoverage,
    Share,
    check_limit,
    figure,
    functions_only,
)


def of_lines(hit: int, total: int, lost: tuple[str, ...] = ()) -> Coverage:
    lines = {line: int(line <= hit) for line in range(1, total + 1)}
    module = ModuleCoverage("/x", True, 0, (), (FileCoverage("/x.c", lines, ()),))
    place = CodeModule("/x", None, 0, 0, 0, ())
    return Coverage(Flow((place,), (), False, ("x",), lost), (module,))


def test_the_figure_is_about_lines_and_without_any_about_functions() -> None:
    assert figure(known()) == (Share(2, 3), "lines")
    functions = (FunctionCoverage("f", 0, 1, 1), FunctionCoverage("g", 1, 1, 0))
    module = ModuleCoverage("/x", True, 2, functions, ())
    what = functions_only([module], ["x"], is_counted=False)
    assert figure(what) == (Share(1, 2), "functions")


def test_a_file_in_two_modules_counts_once() -> None:
    what = of_lines(1, 2)
    twice = replace(
        what, modules=what.modules * 2, flow=replace(what.flow, modules=what.flow.modules * 2)
    )
    assert figure(twice)[0] == Share(1, 2)


@pytest.mark.parametrize(("hit", "total", "limit"), [(2, 3, 66.6), (4, 5, 80), (0, 3, 0)])
def test_what_is_reached_is_said(hit: int, total: int, limit: float) -> None:
    assert f"the limit is {limit:g}%" in check_limit(of_lines(hit, total), limit)


@pytest.mark.parametrize(
    ("hit", "total", "limit", "shown"),
    [(2, 3, 66.7, "66.6%"), (9999, 10000, 100, "99.9%"), (0, 3, 0.1, "0.0%"), (7, 8, 88, "87.5%")],
)
def test_what_is_not_reached_fails_and_is_not_rounded_up(
    hit: int, total: int, limit: float, shown: str
) -> None:
    with pytest.raises(CoverageTooLow, match=rf"coverage is {shown} .* limit is {limit:g}%$"):
        check_limit(of_lines(hit, total), limit)


def test_what_is_incomplete_is_said_with_the_figure() -> None:
    with pytest.raises(CoverageTooLow, match="may be higher: the log was full"):
        check_limit(of_lines(1, 2, ("the log was full",)), 90)
    assert check_limit(of_lines(1, 2, ("the log was full",)), 10).endswith(
        "it is incomplete: the log was full"
    )


def test_modules_without_lines_are_named() -> None:
    what = of_lines(1, 2)
    other = ModuleCoverage("/lib/liby.so", True, 3, (), ())
    flow = replace(what.flow, modules=what.flow.modules * 2)
    assert "without liby.so, of which no lines" in check_limit(
        Coverage(flow, (*what.modules, other)), 10
    )


def test_nothing_reaches_no_limit() -> None:
    nothing = functions_only([ModuleCoverage("/x", False, 5, (), ())], ["x"], is_counted=False)
    with pytest.raises(CoverageTooLow, match="there is no coverage"):
        check_limit(nothing, 0)


@pytest.mark.parametrize("words", [["report"], ["merge"]])
def test_the_commands_that_read_files(tmp_path: Path, words: list[str]) -> None:
    file, out = tmp_path / "known.json", tmp_path / "out.json"
    file.write_bytes(written(coverage_json, known()))
    arguments = ["cov", *words, str(file), "--format", "json", "-o", str(out)]
    below = CliRunner().invoke(main, [*arguments, "--fail-under", "67"])
    assert below.exit_code == 6
    error = json.loads(below.stderr.splitlines()[-1])["error"]
    assert error["kind"] == "CoverageTooLow" and "66.6% of lines (2 of 3)" in error["what"]
    assert "some" in error["why"]
    # The report is there nevertheless.
    assert coverage_json.read(out).modules == known().modules
    assert CliRunner().invoke(main, [*arguments, "--fail-under", "66"]).exit_code == 0
