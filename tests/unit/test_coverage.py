"""Coverage that is known beforehand: what is told of it, in every format, merged and compared."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from tests import drcov as drcov_reader
from tests.covered import while_slow
from tests.toolchain import PROGRAMS, compile_program
from weft.cli import main
from weft.errors import BadFile, InvalidArgument
from weft.export.coverage import cobertura, drcov, lcov
from weft.export.coverage import html as coverage_html
from weft.export.coverage import json as coverage_json
from weft.export.coverage import text as coverage_text
from weft.model.flow import NO_FILE, Block, CodeModule, Edge, Flow
from weft.tools import coverage
from weft.tools.coverage import (
    Branch,
    Change,
    Coverage,
    FileCoverage,
    FunctionCoverage,
    ModuleCoverage,
    Share,
)
from weft.tools.coverage.choice import chooser, open_symbols


def known(**changed: object) -> Coverage:
    """A program with two functions, one of which is executed three times, and a library."""
    source = str(PROGRAMS / "coverage" / "short.c")
    lines = FileCoverage(
        source, {3: 3, 5: 1, 6: 0}, (Branch(0x1010, 5, 2, 0), Branch(0x1020, 6, 0, 0))
    )
    functions = (
        FunctionCoverage("f(int, char)", 0x1000, 0x30, 3, source, 3),
        FunctionCoverage("g<int>()", 0x1030, 0x20, 0, source, 6),
    )
    blocks = (Block(0x1000, 0x12, 4, 3), Block(0x1020, 4, 1, 1))
    program = CodeModule("/program", "abcd", 0x5555_0000_0000, 0x1000, 0x1000, blocks)
    library = CodeModule(
        "/lib/libx.so", None, 0x7FFF_0000_0000, 0, 0x20000, (Block(0, 70000, 9, 1),)
    )
    edges = (Edge(0, 0x1010, 0, 0x1020, "taken", 2), Edge(0, 0x1022, 1, 0, "call", 1))
    command = ("/program", "-x")
    flow = Flow((program, library), edges, is_counted=True, command=command, lost=("some",))
    modules = (
        ModuleCoverage("/program", True, 2, functions, (lines,)),
        ModuleCoverage("/lib/libx.so", False, 9, (FunctionCoverage("h", 0, 70000, 1),), ()),
    )
    return replace(Coverage(flow, modules), **changed)  # type: ignore[arg-type]


def written(format_: ModuleType, what: Coverage) -> bytes:
    file = io.BytesIO()
    format_.write(file, what)
    return file.getvalue()


def test_drcov_is_read_by_another_reader() -> None:
    found = drcov_reader.read(written(drcov, known()))
    assert [module["path"] for module in found.modules.values()] == ["/program", "/lib/libx.so"]
    assert int(found.modules[0]["base"], 16) == 0x5555_0000_1000
    # A block that is too long for the format is two.
    assert found.blocks == [(0, 0, 0x12), (0, 0x20, 4), (1, 0, 0xFFFF), (1, 0xFFFF, 70000 - 0xFFFF)]


def test_drcov_leaves_out_what_is_too_far_away() -> None:
    blocks = (Block(0x1000, 4, 1, 1), Block(0x9_0000_0000, 4, 1, 1))
    module = CodeModule(NO_FILE, None, 0, 0x1000, 0x10_0000_0000, blocks)
    what = Coverage(
        Flow((module,), (), False, ("x",)), (ModuleCoverage(NO_FILE, False, 0, (), ()),)
    )
    assert drcov_reader.read(written(drcov, what)).blocks == [(0, 0, 4)]


def test_drcov_of_functions_alone_is_refused() -> None:
    what = coverage.functions_only(known().modules, ["/program"], is_counted=False)
    with pytest.raises(InvalidArgument, match="blocks"):
        written(drcov, what)


def test_lcov_has_functions_branches_and_lines_with_counts() -> None:
    source = PROGRAMS / "coverage" / "short.c"
    assert written(lcov, known()).decode().splitlines() == [
        "TN:",
        f"SF:{source}",
        "FN:3,f(int, char)",
        "FN:6,g<int>()",
        "FNDA:3,f(int, char)",
        "FNDA:0,g<int>()",
        "FNF:2",
        "FNH:1",
        "BRDA:5,0,0,2",
        "BRDA:5,0,1,0",
        "BRDA:6,0,0,-",
        "BRDA:6,0,1,-",
        "BRF:4",
        "BRH:1",
        "DA:3,3",
        "DA:5,1",
        "DA:6,0",
        "LF:3",
        "LH:2",
        "end_of_record",
    ]


def test_cobertura_says_the_same() -> None:
    root = ElementTree.fromstring(written(cobertura, known()))
    assert root.get("lines-covered") == "2" and root.get("lines-valid") == "3"
    assert root.get("branches-covered") == "1" and root.get("branches-valid") == "4"
    [file] = root.iter("class")
    folder = root.findtext("sources/source")
    assert folder is not None
    assert Path(folder, file.get("filename", "")) == PROGRAMS / "coverage" / "short.c"
    assert [(line.get("number"), line.get("hits")) for line in file.findall("lines/line")] == [
        ("3", "3"),
        ("5", "1"),
        ("6", "0"),
    ]
    assert file.find("lines/line[@number='5']").get("condition-coverage") == "50% (1/2)"  # type: ignore[union-attr]
    assert [method.get("name") for method in root.iter("method")] == ["f(int, char)", "g<int>()"]


def test_json_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    file.write_bytes(written(coverage_json, known()))
    assert coverage_json.read(file) == known()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no JSON"),
        ("[]", "nothing of coverage"),
        ('{"kind": "weft coverage", "schema": 99}', "schema 99"),
        ('{"kind": "weft coverage", "schema": 1}', "KeyError"),
        (
            '{"kind": "weft coverage", "schema": 1, "modules": [], "edges": [[0,1,0,2,"fall",1]]}',
            "not there",
        ),
    ],
)
def test_what_is_no_coverage_is_refused_with_the_reason(
    tmp_path: Path, text: str, told: str
) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(BadFile, match=told):
        coverage_json.read(file)


def test_html_is_well_formed_and_needs_nothing_else() -> None:
    page = written(coverage_html, known()).decode()
    checker = _Checker()
    checker.feed(page)
    assert checker.open == [] and checker.links == []
    assert "g&lt;int&gt;()" in page and "g<int>()" not in page
    assert '<div class="hit"><span class="n">3</span><span class="c">3</span>' in page
    assert '<div class="half"><span class="n">5</span><span class="c">1</span>' in page
    assert '<div class="miss"><span class="n">6</span><span class="c">0</span>' in page


class _Checker(HTMLParser):
    """Sees that what is opened is closed, and what else would be loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        self.links = [link for link in self.links if not link.startswith("#")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_text_names_what_was_not_executed_first() -> None:
    lines = written(coverage_text, known()).decode().splitlines()
    assert lines[0].startswith("NOT EXECUTED (1)")
    assert lines[1].startswith("g<int>()") and lines[1].endswith("short.c:6")
    assert any("66.7% 2/3" in line for line in lines)
    assert lines[-2:] == ["/program -x: 3 blocks, with counts", "note: some"]


def test_nothing_is_all_only_if_all_is_hit() -> None:
    lines = {line: int(line != 1) for line in range(1, 10001)}
    file = FileCoverage("/x.c", lines, ())
    what = known(modules=(ModuleCoverage("/program", True, 0, (), (file,)), known().modules[1]))
    assert "99.9% 9,999/10,000" in written(coverage_text, what).decode()


def test_a_share_of_nothing_is_all() -> None:
    assert Share(0, 0).ratio == 1 and (Share(1, 2) + Share(0, 2)).ratio == 0.25


def test_what_is_looked_at_is_what_is_here_or_else_the_program(tmp_path: Path) -> None:
    here, there = str(tmp_path / "tests"), "/usr/bin/sh"
    is_wanted = chooser([here, there], (), there, tmp_path)
    assert is_wanted(here) and not is_wanted(there)
    is_wanted = chooser([there, "/lib/libc.so.6"], (), there, tmp_path)
    assert is_wanted(there) and is_wanted(here) and not is_wanted("/lib/libc.so.6")
    is_wanted = chooser([here, there], ("libc*", "/usr/*"), here, tmp_path)
    assert [is_wanted(path) for path in (here, there, "/lib/libc.so.6", NO_FILE)] == [
        False,
        True,
        True,
        False,
    ]


# --- Merging and comparing ------------------------------------------------------------------------


def test_counts_of_two_runs_add_up() -> None:
    merged = coverage.merge([known(), known()])
    assert [block.count for block in merged.flow.modules[0].blocks] == [6, 2]
    assert {edge.kind: edge.count for edge in merged.flow.edges} == {"taken": 4, "call": 2}
    assert dict(merged.modules[0].files[0].lines) == {3: 6, 5: 2, 6: 0}
    assert merged.modules[0].files[0].branches[0].outcomes == (4, 0)
    assert [function.count for function in merged.modules[0].functions] == [6, 0]


def test_what_is_not_counted_stays_so() -> None:
    once = known(flow=replace(known().flow, is_counted=False))
    merged = coverage.merge([known(), once])
    assert not merged.is_counted
    assert {block.count for module in merged.flow.modules for block in module.blocks} == {1}
    assert dict(merged.modules[0].files[0].lines) == {3: 1, 5: 1, 6: 0}


def test_another_build_of_a_module_is_another_module() -> None:
    flow = known().flow
    other = replace(flow, modules=(replace(flow.modules[0], build_id="ef01"), flow.modules[1]))
    merged = coverage.merge([known(), known(flow=other)])
    assert [module.build_id for module in merged.flow.modules] == ["abcd", None, "ef01"]
    ends = {(edge.module, edge.to_module) for edge in merged.flow.edges}
    assert ends == {(0, 0), (0, 1), (2, 2), (2, 1)}


def test_blocks_that_are_cut_differently_are_cut_at_both(tmp_path: Path) -> None:
    program = str(compile_program("coverage/short.c", tmp_path / "short", "-O0"))
    symbols = open_symbols(CodeModule(program, None, 0, 0, 0, ()))
    [index] = symbols.find("main")
    begin = symbols.rows([index])[0][2]
    # The first instructions of a function that is not optimised have these sizes.
    [instructions] = symbols.disassemble([(begin, 32)])
    places = [at for at, _ in instructions]
    second, third, fourth, fifth = places[1:5]

    def run(blocks: tuple[Block, ...]) -> Coverage:
        module = CodeModule(program, symbols.build_id, 0, 0, 0x2000, blocks)
        details = ModuleCoverage(program, False, 0, (), ())
        return Coverage(Flow((module,), (), True, ("short",)), (details,))

    whole = run((Block(begin, fifth - begin, 4, 10),))
    part = run((Block(third, fourth - third, 1, 5),))
    merged = coverage.merge([whole, part])
    assert [(b.offset, b.instructions, b.count) for b in merged.flow.modules[0].blocks] == [
        (begin, 2, 10),
        (third, 1, 15),
        (fourth, 1, 10),
    ]
    # Where it was cut, control goes on.
    assert [(e.source, e.target, e.kind, e.count) for e in merged.flow.edges] == [
        (second, third, "fall", 10),
        (third, fourth, "fall", 10),
    ]


def test_a_difference_is_what_only_one_run_has_executed() -> None:
    new = coverage.merge([known()])
    [file] = new.modules[0].files
    functions = (replace(new.modules[0].functions[0], count=0), new.modules[0].functions[1])
    lines = replace(file, lines={3: 0, 5: 7, 6: 1})
    details = replace(new.modules[0], functions=functions, files=(lines,))
    new = replace(new, modules=(details, new.modules[1]))
    assert coverage.diff(known(), new) == [
        Change(False, file.path, 3, "f(int, char)"),
        Change(False, file.path, 3),
        Change(True, file.path, 6),
    ]
    assert coverage.diff(known(), known()) == []


def test_nothing_cannot_be_merged() -> None:
    with pytest.raises(InvalidArgument):
        coverage.merge([])


# --- The commands that read files -----------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    file = tmp_path / "known.json"
    file.write_bytes(written(coverage_json, known()))
    return file


def test_a_file_is_reported_in_another_format(recorded: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.info"
    arguments = ["cov", "report", str(recorded), "--format", "lcov", "-o", str(out)]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert out.read_bytes() == written(lcov, known())
    shown = CliRunner().invoke(main, ["cov", "report", str(recorded)])
    assert "NOT EXECUTED (1)" in shown.output


def test_files_are_merged(recorded: Path, tmp_path: Path) -> None:
    out = tmp_path / "both.json"
    arguments = ["cov", "merge", str(recorded), str(recorded), "-o", str(out)]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert coverage_json.read(out) == coverage.merge([known(), known()])
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".weft")] == []


def test_files_are_compared(recorded: Path) -> None:
    same = CliRunner().invoke(main, ["cov", "diff", str(recorded), str(recorded)])
    assert "both have executed the same" in same.output
    as_json = CliRunner().invoke(
        main, ["cov", "diff", str(recorded), str(recorded), "--format", "json"]
    )
    assert json.loads(as_json.output) == {"schema": 1, "changes": []}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["cov", "report", "nowhere.json"], "nowhere.json cannot be read"),
        (["cov", "--format", "drcov", "--", "true"], "-o cov.drcov"),
        (["cov", "-o", "/nowhere/x", "--", "true"], "cannot write /nowhere/x"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(arguments: list[str], told: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in (2, 4) and told in result.output


@pytest.mark.parametrize(
    ("function", "words", "said"),
    [
        ("weft.export.coverage.json:read", "report known.json", "reading what was recorded"),
        ("weft.export.coverage.json:read", "diff known.json known.json", "reading what"),
        ("weft.export.coverage.json:read", "contexts f* known.json", "reading what"),
        ("weft.tools.coverage:merge", "merge known.json -o all.json", "reading what"),
        ("weft.export.coverage.html:write", "report known.json -o a --format html", "writing a"),
    ],
)
def test_what_takes_long_is_shown(function: str, words: str, said: str, tmp_path: Path) -> None:
    named = coverage.in_context(known(), "unit")
    (tmp_path / "known.json").write_bytes(written(coverage_json, named))
    assert said in while_slow(function, words.split(), tmp_path)
