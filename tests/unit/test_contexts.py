"""Names on what was executed: kept, merged, asked for and shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.test_coverage import known, written
from weft.cli import main
from weft.errors import BadFile, InvalidArgument
from weft.export.coverage import cobertura
from weft.export.coverage import html as coverage_html
from weft.export.coverage import json as coverage_json
from weft.export.coverage import text as coverage_text
from weft.tools import coverage
from weft.tools.coverage import Coverage, Executed, contexts_at, in_context


def other_run() -> Coverage:
    """The same program, of which the other function and the last line are executed."""
    what = known()
    program, library = what.modules
    [file] = program.files
    functions = (replace(program.functions[0], count=0), replace(program.functions[1], count=2))
    program = replace(
        program, functions=functions, files=(replace(file, lines={3: 0, 5: 1, 6: 1}),)
    )
    return replace(what, flow=replace(what.flow, lost=()), modules=(program, library))


def both() -> Coverage:
    """Two tests, merged."""
    return coverage.merge([in_context(known(), "first"), in_context(other_run(), "second")])


def names(what: Coverage, where: str) -> list[list[str]]:
    return [[context.name for context in place.contexts] for place in contexts_at(what, where)]


def test_a_context_has_what_was_executed_and_no_more() -> None:
    [context] = in_context(known(), "first").contexts
    path = known().modules[0].files[0].path
    assert context.modules == (
        Executed(frozenset([0x1000]), {path: frozenset([3, 5])}),
        Executed(frozenset([0]), {}),
    )
    # What the run lacks, the context lacks.
    assert context.lost == ("some",)


def test_merged_contexts_stay_apart_while_counts_add_up() -> None:
    merged = both()
    assert dict(merged.modules[0].files[0].lines) == {3: 3, 5: 2, 6: 1}
    assert names(merged, "short.c:3") == [["first"]]
    assert names(merged, "short.c:5") == [["first", "second"]]
    assert names(merged, "short.c:6") == [["second"]]
    assert names(merged, "f") == [["first"]]
    assert names(merged, "g<int>()") == [["second"]]
    assert names(merged, "h") == [["first", "second"]]
    assert [context.lost for context in merged.contexts] == [("some",), ()]


def test_contexts_of_one_name_become_one() -> None:
    merged = coverage.merge([in_context(known(), "a"), in_context(other_run(), "a")])
    assert [context.name for context in merged.contexts] == ["a"]
    assert names(merged, "short.c:3") == names(merged, "short.c:6") == [["a"]]


def test_a_run_without_contexts_is_the_one_without_a_name() -> None:
    merged = coverage.merge([in_context(known(), "first"), other_run()])
    assert names(merged, "short.c:6") == [[""]]
    assert [context.shown_name for context in merged.contexts] == ["first", "(no context)"]
    assert coverage.merge([known(), other_run()]).contexts == ()


def test_contexts_follow_their_modules() -> None:
    """The modules of the second run are in another order, and one of them is another build."""
    second = other_run()
    first, library = second.flow.modules
    flow = replace(second.flow, modules=(library, replace(first, build_id="ef01")), edges=())
    swapped = replace(second, flow=flow, modules=second.modules[::-1])
    merged = coverage.merge([in_context(known(), "first"), in_context(swapped, "second")])
    assert [module.build_id for module in merged.flow.modules] == ["abcd", None, "ef01"]
    executed = {context.name: context.modules for context in merged.contexts}
    assert [one.functions for one in executed["first"]] == [{0x1000}, {0}, set()]
    assert [one.functions for one in executed["second"]] == [set(), {0}, {0x1030}]


def test_json_keeps_contexts_and_reads_what_has_none(tmp_path: Path) -> None:
    file = tmp_path / "both.json"
    file.write_bytes(written(coverage_json, both()))
    assert coverage_json.read(file) == both()
    document = json.loads(file.read_bytes())
    assert document["schema"] == 1
    del document["contexts"]
    file.write_text(json.dumps(document))
    assert coverage_json.read(file) == replace(both(), contexts=())


@pytest.mark.parametrize(
    ("modules", "told"),
    [([{"functions": [], "files": {}}], "other modules"), ([{"functions": [], "files": []}], "")],
)
def test_contexts_that_make_no_sense_are_refused(
    tmp_path: Path, modules: list[object], told: str
) -> None:
    document = json.loads(written(coverage_json, both()))
    document["contexts"][1]["modules"] = modules
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(document))
    with pytest.raises(BadFile, match=f"no coverage that weft has written.*{told}"):
        coverage_json.read(file)


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("short.c:4", "line 4 of .* has no code"),
        ("shrt.c:5", "did you mean short.c"),
        ("hort.c:5", "no lines of hort.c"),
        ("ff", "no function is called ff"),
    ],
)
def test_what_is_not_there_is_said(where: str, told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        contexts_at(both(), where)


def test_without_contexts_nothing_can_be_said_of_them() -> None:
    with pytest.raises(InvalidArgument, match="no contexts"):
        contexts_at(known(), "f")


def test_html_names_the_contexts_of_a_line() -> None:
    page = written(coverage_html, both()).decode()
    assert '<span class="x" title="first&#10;second">&times;2</span>' in page
    assert '<span class="x" title="second">&times;1</span>' in page
    assert "first (incomplete: some)" in page and "second (incomplete" not in page
    # Without contexts there is no place for them.
    assert 'class="x"' not in written(coverage_html, known()).decode()


def test_html_names_the_contexts_of_a_function() -> None:
    page = written(coverage_html, both()).decode()
    [row] = [line for line in page.splitlines() if "g&lt;int&gt;()</td>" in line]
    assert '<td><span class="x" title="second">&times;1</span></td>' in row
    assert "<th>contexts</th>" not in written(coverage_html, known()).decode()


def test_without_lines_it_is_functions_that_only_one_has() -> None:
    def stripped(what: Coverage) -> Coverage:
        functions = tuple(replace(one, file=None, line=None) for one in what.modules[0].functions)
        program = replace(what.modules[0], files=(), functions=functions)
        return replace(what, modules=(program, what.modules[1]))

    runs = [in_context(stripped(known()), "a"), in_context(stripped(other_run()), "b")]
    lines = [
        line.split() for line in written(coverage_text, coverage.merge(runs)).decode().splitlines()
    ]
    at = lines.index(["CONTEXT", "(2)", "FUNCTIONS", "ONLY", "HERE"])
    assert lines[at + 1 : at + 3] == [["a", "(incomplete)", "1", "1"], ["b", "1", "1"]]


def test_a_line_of_very_many_contexts_names_some() -> None:
    many = coverage.merge([in_context(known(), f"t{number}") for number in range(25)])
    page = written(coverage_html, many).decode()
    assert "t19&#10;and 5 more" in page and "&times;25" in page


def test_text_lists_contexts_by_what_only_they_have() -> None:
    second = both()
    lines = [line.split() for line in written(coverage_text, second).decode().splitlines()]
    at = lines.index(["CONTEXT", "(2)", "FUNCTIONS", "LINES", "ONLY", "HERE"])
    assert lines[at + 1] == ["first", "(incomplete)", "1", "2", "1"]
    assert lines[at + 2] == ["second", "1", "2", "1"]


def test_what_is_incomplete_is_marked_in_the_documents() -> None:
    assert "incomplete: some" in written(coverage_html, known()).decode()
    assert b"<!-- incomplete: some -->" in written(cobertura, known())


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "both.json"
    file.write_bytes(written(coverage_json, both()))
    shown = CliRunner().invoke(main, ["cov", "contexts", "short.c:5", str(file)])
    assert shown.stdout.splitlines()[0].endswith("short.c:5: executed in 2 of 2 contexts")
    assert shown.stdout.splitlines()[1:] == ["  first", "  second"]
    assert shown.stderr == "note: first is incomplete: some\n"
    arguments = ["cov", "contexts", "f", str(file), "--format", "json"]
    found = json.loads(CliRunner().invoke(main, arguments).stdout)
    assert found["incomplete"] == {"first": ["some"]}
    [place] = found["places"]
    assert (place["function"], place["contexts"], place["count"]) == ("f(int, char)", ["first"], 3)


def test_a_format_without_contexts_says_so(tmp_path: Path) -> None:
    file = tmp_path / "both.json"
    file.write_bytes(written(coverage_json, both()))
    result = CliRunner().invoke(main, ["cov", "report", str(file), "--format", "lcov"])
    assert "lcov has no place for contexts" in result.stderr
