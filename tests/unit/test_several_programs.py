"""Different programs in one report: what is the same is one, and what is not is marked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.test_coverage import known, written
from weft.export.coverage import cobertura
from weft.export.coverage import html as coverage_html
from weft.export.coverage import json as coverage_json
from weft.export.coverage import text as coverage_text
from weft.model.flow import Block, CodeModule, Flow
from weft.tools.coverage import (
    Coverage,
    FileCoverage,
    FunctionCoverage,
    ModuleCoverage,
    Share,
    figure,
    in_context,
    merge,
)


def run_of(
    program: str,
    *modules: tuple[str, str | None, dict[int, int]],
    source: str = "/src/{name}.c",
) -> Coverage:
    """A run that has executed modules: the path, the build and the lines of each."""
    places, details = [], []
    for path, build_id, lines in modules:
        name = Path(path).name
        places.append(CodeModule(path, build_id, 0, 0, 0x100, (Block(0, 4, 1, 1),)))
        file = FileCoverage(source.format(name=name), lines, ())
        function = FunctionCoverage(f"of_{name}", 0, 4, 1, file.path, 1)
        details.append(ModuleCoverage(path, True, 1, (function,), (file,)))
    return Coverage(Flow(tuple(places), (), False, (program,)), tuple(details))


def test_a_library_of_two_programs_counts_once() -> None:
    one = run_of("a", ("/bin/a", "aa", {1: 1}), ("/lib/x.so", "cc", {1: 1, 2: 0, 3: 0}))
    other = run_of("b", ("/bin/b", "bb", {1: 1}), ("/lib/x.so", "cc", {1: 0, 2: 1, 3: 0}))
    merged = merge([one, other])
    assert [module.path for module in merged.modules] == ["/bin/a", "/lib/x.so", "/bin/b"]
    assert figure(merged) == (Share(4, 5), "lines")
    assert merged.totals()[:2] == (Share(3, 3), Share(4, 5))
    assert merged.remarks() == []
    [total] = [
        line.split()[3:]
        for line in written(coverage_text, merged).decode().splitlines()
        if line.startswith("TOTAL in detail")
    ]
    assert total == ["██████████", "100.0%", "3/3", "████████··", "80.0%", "4/5"]
    assert "4 of 5" in written(coverage_html, merged).decode()


def test_a_build_is_the_same_wherever_its_file_is() -> None:
    merged = merge([run_of("a", ("/lib/x", "cc", {1: 1})), run_of("a", ("/usr/x", "cc", {1: 1}))])
    assert [module.path for module in merged.modules] == ["/lib/x"]


def test_other_builds_of_a_path_are_listed_and_marked() -> None:
    merged = merge([run_of("a", ("/x", "aabbccdd11", {1: 1})), run_of("a", ("/x", "ee", {1: 0}))])
    names = [name for name, _ in merged.named_modules()]
    assert names == ["/x (build aabbccdd)", "/x (build ee)"]
    [remark] = merged.remarks()
    assert "/x was executed in 2 builds" in remark
    for format_ in (coverage_text, coverage_html, cobertura):
        assert remark in written(format_, merged).decode()
    for format_ in (coverage_text, coverage_html):
        assert "/x (build ee)" in written(format_, merged).decode()


def test_programs_of_one_name_are_told_apart_by_their_paths() -> None:
    merged = merge([run_of("a", ("/a/test", "a", {1: 1})), run_of("b", ("/b/test", "b", {1: 1}))])
    assert [name for name, _ in merged.named_modules()] == ["/a/test", "/b/test"]
    assert merged.remarks() == []


def test_without_build_ids_other_functions_are_another_build() -> None:
    one = run_of("a", ("/x", None, {1: 1}))
    assert len(merge([one, one]).modules) == 1
    function = replace(one.modules[0].functions[0], name="other")
    other = replace(one, modules=(replace(one.modules[0], functions=(function,)),))
    merged = merge([one, other])
    assert [name for name, _ in merged.named_modules()] == ["/x (build unknown)"] * 2
    assert len(merged.remarks()) == 1


def test_a_run_that_has_no_build_id_is_of_the_build_that_it_fits() -> None:
    """As older files that the patch weaver has recorded."""
    one, other = run_of("a", ("/x", "aa", {1: 0})), run_of("a", ("/x", None, {1: 1}))
    for runs in ([one, other], [other, one]):
        [module] = merge(runs).modules
        assert dict(module.files[0].lines) == {1: 1}


def test_files_without_folders_are_marked() -> None:
    one = run_of("a", ("/a", "aa", {1: 1}), ("/b", "bb", {1: 1}), source="src/main.c")
    [remark] = merge([one]).remarks()
    assert "src/main.c" in remark and "taken for the same" in remark


def test_commands_stay_apart_when_merged_again(tmp_path: Path) -> None:
    runs = [run_of(name, ("/x", "aa", {1: 1})) for name in "abcd"]
    merged = merge([merge(runs[:2]), merge(runs[2:])])
    assert merged.runs == (("a",), ("b",), ("c",), ("d",))
    assert merged.flow.command == ("a, b, c and 1 more",)
    file = tmp_path / "merged.json"
    file.write_bytes(written(coverage_json, merged))
    assert coverage_json.read(file) == merged
    assert merge([runs[0], runs[0]]).commands == ()


@pytest.mark.parametrize("has_blocks", [True, False])
def test_lines_that_were_not_looked_at_are_said_to_be_missing(has_blocks: bool) -> None:
    """Here the file is not there, so that nothing can be found out."""
    looked = run_of("a", ("/x.so", "cc", {1: 1, 2: 0}))
    functions = (FunctionCoverage("of_x", 0, 4, 1),)
    [place] = looked.flow.modules
    not_looked = Coverage(
        replace(
            looked.flow,
            command=("b",),
            modules=(place if has_blocks else replace(place, blocks=()),),
        ),
        (ModuleCoverage("/x.so", not has_blocks, 1, functions, ()),),
    )
    merged = merge([looked, in_context(not_looked, "second")])
    why = "the file is gone" if has_blocks else "only its functions"
    [text] = merged.flow.lost
    assert text.startswith("lines of x.so that b has executed are missing") and why in text
    assert {one.name: one.lost for one in merged.contexts} == {"": (), "second": (text,)}
    assert dict(merged.modules[0].files[0].lines) == {1: 1, 2: 0}


def test_one_run_alone_stays_as_it_is() -> None:
    assert merge([known()]) == known()
