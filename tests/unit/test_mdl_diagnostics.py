"""Every mistake has a code, every code a section with an example, and every example its mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples import fences
from weft.errors import BadMetric
from weft.mdl import load, parse, parse_code, parse_one_liner, parse_where
from weft.mdl.ast import NOWHERE, Span
from weft.mdl.diagnostics import CODES, Diagnostic, did_you_mean, problem, render

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "diagnostics.md"
SECTIONS = {
    section[:6]: [fence.text for fence in fences(section)]
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
}
EXAMPLES = [
    (code, number, text) for code, texts in SECTIONS.items() for number, text in enumerate(texts)
]


def diagnose(text: str, is_one_liner: bool = False) -> list[Diagnostic]:
    if is_one_liner:
        return parse_one_liner(text)[2]
    try:
        return list(load(text).diagnostics)
    except BadMetric as error:
        return list(error.diagnostics)


def codes(text: str) -> list[str]:
    return [one.code for one in diagnose(text)]


def test_every_code_has_a_section_with_its_meaning() -> None:
    assert list(SECTIONS) == list(CODES)
    page = " ".join(PAGE.read_text().split())
    for code, kind in CODES.items():
        assert f"## {code} {kind.meaning[0].upper()}{kind.meaning[1:]}." in page


@pytest.mark.parametrize(
    ("code", "number", "text"), EXAMPLES, ids=[f"{code}-{number}" for code, number, _ in EXAMPLES]
)
def test_the_first_example_has_the_mistake_and_the_second_has_none(
    code: str, number: int, text: str
) -> None:
    found = diagnose(text, is_one_liner=code.startswith("MDL06"))
    assert {one.code for one in found} == ({code} if number == 0 else set())
    for one in found:
        assert one.severity == CODES[code].severity
        assert one.span != NOWHERE
        assert one.hint


def test_every_code_has_an_example_or_a_test_here() -> None:
    tests = Path(__file__).parent.glob("test_mdl_*.py")
    text = "".join(path.read_text() for path in tests)
    for code, examples in SECTIONS.items():
        assert examples or f'"{code}"' in text, code


def test_an_import_of_what_is_not_there_suggests_what_is(tmp_path: Path) -> None:
    (tmp_path / "pthread.mdl").write_text("")
    (tmp_path / "main.mdl").write_text('import "pthreads.mdl";')
    with pytest.raises(BadMetric) as caught:
        load(tmp_path / "main.mdl")
    (found,) = caught.value.diagnostics
    assert found.code == "MDL050"
    assert found.hint.startswith("did you mean `pthread.mdl`")
    assert found.span == Span(1, 1, 1, 23)


@pytest.mark.parametrize("name", ["a\0b", "a" * 5000, "\ud800", "/", "", ".", "~", "*"])
def test_an_import_of_what_cannot_be_a_file(name: str, tmp_path: Path) -> None:
    assert codes(f'import "{name}";') == ["MDL050"]


def test_files_that_import_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.mdl").write_text('import "b.mdl";')
    (tmp_path / "b.mdl").write_text('\nimport "a.mdl";')
    with pytest.raises(BadMetric) as caught:
        load(tmp_path / "a.mdl")
    (found,) = caught.value.diagnostics
    assert (found.code, found.file, found.span.line) == ("MDL051", str(tmp_path / "b.mdl"), 2)
    assert "`a.mdl` imports `b.mdl` imports `a.mdl`" in found.hint


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    latin = tmp_path / "latin.mdl"
    latin.write_bytes("// \xe9".encode("latin-1"))
    for path, reason in ((latin, "not UTF-8"), (tmp_path / "none.mdl", "No such file")):
        with pytest.raises(BadMetric) as caught:
            load(path)
        (found,) = caught.value.diagnostics
        assert found.code == "MDL012"
        assert reason in found.hint
        assert str(path) in str(caught.value)


def test_too_many_files_in_a_row(tmp_path: Path) -> None:
    for number in range(150):
        (tmp_path / f"{number}.mdl").write_text(f'import "{number + 1}.mdl";')
    with pytest.raises(BadMetric) as caught:
        load(tmp_path / "0.mdl")
    assert [one.code for one in caught.value.diagnostics] == ["MDL006"]


@pytest.mark.parametrize(
    "value",
    [
        "(" * 3000 + "1" + ")" * 2999,
        "-" + "~-" * 3000 + "1",
        "1" + "+1" * 3000,
        "f(" * 3000 + "1" + ")" * 3000,
        "$arg[0]" + "->next" * 3000,
    ],
)
def test_an_expression_of_any_depth(value: str) -> None:
    code, found = parse_code(f"(* x = {value}; *)")
    assert {one.code for one in found} <= {"MDL001", "MDL006"}
    assert found
    assert code == parse_code(f"(* x = {value}; *)")[0]
    assert repr(code)


def test_statements_of_any_depth() -> None:
    assert {one.code for one in parse_code("(* " + "if (1) " * 3000 + "x++; *)")[1]} == {"MDL006"}
    text = "foreach f in $procedures " * 3000 + "append preInsn f.entry (* x++; *)"
    assert {one.code for one in parse_where(text)[1]} == {"MDL006"}
    assert {one.code for one in parse("metric m { base is counter {" * 3000)[1]} == {"MDL005"}
    assert {one.code for one in parse("{" * 3000)[1]} == {"MDL001"}
    assert {one.code for one in parse("(*" * 3000)[1]} == {"MDL001"}


def test_what_is_deep_but_not_too_deep_can_be_used() -> None:
    text = "1" + "+1" * 90
    metric = f"metric m {{ base is counter {{ append preInsn $focus.entry (* m += {text}; *) }} }}"
    assert load(metric).metrics["m"] == load(metric).metrics["m"]


@pytest.mark.parametrize(
    "number", ["18446744073709551616", "9" * 10_000, "0x", "08x", "0xg", "1_0"]
)
def test_what_is_no_number(number: str) -> None:
    assert [one.code for one in parse_code(f"(* x = {number}; *)")[1]] == ["MDL007"]


def test_several_mistakes_in_one_run() -> None:
    text = """
        metric a { units 5; base is counter { foreach f on x { append preInsn f.entry (* ; *) } } }
        list b is procedure { items { "a" "b" }; flavor c; }
        metrc c { base is counter { } }
        metric d { base is rate { append preInsn $focus.entry (* if (x { d++; } d += ; *) } }
        metric e { units bytes; base is counter {
        metric f { base is counter { append preInsn $focus.entyr (* g++; *) } }
    """
    found = [(one.span.line, one.code) for one in diagnose(text)]
    assert found == [
        (2, "MDL001"),
        (2, "MDL001"),
        (3, "MDL001"),
        (4, "MDL001"),
        (5, "MDL001"),
        (5, "MDL001"),
        (7, "MDL005"),
        (7, "MDL044"),
        (7, "MDL023"),
    ]


def test_a_broken_list_is_not_also_unknown() -> None:
    text = """
        list readers is procedure { items { "read" };
        metric m { base is counter { foreach f in readrs append preInsn f.entry (* m++; *) } }
    """
    assert codes(text) == ["MDL005"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("metrc m { }", "did you mean `metric`?"),
        ("metric m { base is conter { } }", "did you mean `counter`?"),
        (
            "metric m { aggregateOperator avg; base is counter { } }",
            "expected `max`, `min` or `sum`",
        ),
        ("list l is procedures { }", "did you mean `procedure`?"),
        ("metric m { base is counter { append preInsn f (* *) } }", "say which points: `f.entry`"),
    ],
)
def test_a_hint_says_what_was_meant(text: str, hint: str) -> None:
    assert hint in [one.hint for one in parse(text)[1]]


@pytest.mark.parametrize(
    ("code", "statement", "base"),
    [
        ("MDL030", "m = 1;", "counter"),
        ("MDL030", "m = 1;", "rate"),
        ("MDL030", "m += 1;", "histogram"),
        ("MDL030", "m++;", "wallTimer"),
        ("MDL030", "m++;", "record { a }"),
        ("MDL030", "m[1] = 1;", "map[a]"),
        ("MDL030", "min(1, 2);", "counter"),
        ("MDL031", "m << 1;", "map[a]"),
        ("MDL031", "l << 1;", "counter"),
        ("MDL032", "startWallTimer(m);", "counter"),
        ("MDL032", "stopProcessTimer(m);", "wallTimer"),
        ("MDL032", "startWallTimer(l);", "wallTimer"),
        ("MDL032", "start m;", "counter"),
        ("MDL032", "start m cpu;", "wallTimer"),
        # It measured wall time.
        ("MDL032", "startProcessTimer(m);", "histogram"),
        ("MDL038", "m += load8();", "counter"),
        ("MDL033", "m++;", "map[a]"),
        ("MDL033", "m[1]++;", "map[a, b]"),
        ("MDL033", "m[1]++;", "counter"),
        ("MDL033", "l[1]++;", "map[a]"),
        ("MDL033", "m[1, 2, 3]++;", "map[a, b, c]"),
        ("MDL034", "emit m(1);", "counter"),
        ("MDL034", "emit m();", "record { a }"),
        ("MDL034", "emit m(1, 2);", "record { a }"),
        ("MDL037", "l = m;", "wallTimer"),
        ("MDL037", "l = -m + 1;", "map[a]"),
        ("MDL038", "l = min(1);", "counter"),
        ("MDL039", "l = $arg;", "counter"),
        ("MDL046", "m += str($arg[0]);", "counter"),
        ("MDL046", "if (str($arg[0])) m++;", "counter"),
        ("MDL046", "l = str($arg[0]) + 1;", "counter"),
        ("MDL046", "l = str($arg[0]) == 1;", "counter"),
        ("MDL039", "l = $time[0];", "counter"),
        ("MDL041", "l = $constraint[0];", "counter"),
    ],
)
def test_what_does_not_fit_a_type(code: str, statement: str, base: str) -> None:
    text = f"""
        metric m {{ local l; base is {base} {{ append preInsn $focus.entry (* {statement} *) }} }}
    """
    assert set(codes(text)) == {code}


@pytest.mark.parametrize(
    ("statement", "base"),
    [
        ("m += 1; m -= 2; l = m;", "counter"),
        ("m++; l--; l = 3;", "rate"),
        ("m << l; startWallTimer(m); stop m;", "histogram"),
        ("startWallTimer(m); stopWallTimer(m);", "wallTimer"),
        ("startProcessTimer(m); stop m cpu; start m;", "processTimer"),
        ("m[1] += 2; m[l]--;", "map[a]"),
        ("emit m(1, l);", "record { a, b }"),
    ],
)
def test_what_fits_a_type(statement: str, base: str) -> None:
    text = f"""
        metric m {{ local l; base is {base} {{ append preInsn $focus.entry (* {statement} *) }} }}
    """
    assert codes(text) == []


@pytest.mark.parametrize(
    ("code", "body"),
    [
        ("MDL021", "append preInsn nothing.entry (* c = 1; *)"),
        ("MDL024", "append preInsn $foci.entry (* c = 1; *)"),
        ("MDL035", "append postInsn $constraint[0].return (* c = 0; *)"),
        ("MDL036", "append preInsn $constraint[0].calls (* c = 1; *)"),
        ("MDL036", "append preInsn $constraint[0].entry (* c = 0; *)"),
        ("MDL036", "append preInsn $constraint[0].return (* c = 1; *)"),
        ("MDL036", "append preInsn $constraint[0].entry (* if (1) c = 1; *)"),
        ("MDL042", "append preInsn $constraint.entry (* c = 1; *)"),
        ("MDL042", "append preInsn $constraint[2].entry (* c = 1; *)"),
        ("MDL042", "append preInsn $procedures[0].entry (* c = 1; *)"),
        ("MDL042", "foreach f in $procedures append preInsn f[0].entry (* c = 1; *)"),
        ("MDL042", "append preInsn three[3].entry (* c = 1; *)"),
        ("MDL043", "append preInsn $focus.entry (* c = 1; *)"),
        ("MDL044", "append preInsn $constraint[1].funcs (* c = 1; *)"),
        ("MDL045", "append preInsn $constraint[0].funcs.entry (* c = 1; *)"),
        ("MDL045", "append preInsn three.funcs.entry (* c = 1; *)"),
        ("MDL045", "foreach f in $constraint[1].entry append preInsn f.entry (* c = 1; *)"),
        ("MDL045", "foreach f in $modules foreach g in f append preInsn g.entry (* c = 1; *)"),
    ],
)
def test_what_is_no_place(code: str, body: str) -> None:
    text = f"""
        list three is procedure {{ items {{ "a", "b", "c" }}; }}
        constraint c /Code is counter {{ {body} }}
    """
    assert code in codes(text)


def test_the_parts_of_other_hierarchies() -> None:
    assert codes("constraint c /Thread is key (* $constraint[0] == $thread *)") == []
    assert codes("constraint c /Thread is key (* $constraint[1] *)") == ["MDL042"]
    assert codes("constraint c /Thread is key (* tag *)") == ["MDL023"]


def test_the_same_definition_by_two_ways_is_one(tmp_path: Path) -> None:
    (tmp_path / "base.mdl").write_text('list l is procedure { items { "f" }; }')
    (tmp_path / "a.mdl").write_text('import "base.mdl";')
    (tmp_path / "b.mdl").write_text('import "base.mdl"; import "a.mdl"; import "./base.mdl";')
    library = load(tmp_path / "b.mdl", str(tmp_path / "a.mdl"))
    assert list(library.lists) == ["l"]
    assert library.diagnostics == ()


def test_a_duplicate_says_where_the_other_is(tmp_path: Path) -> None:
    (tmp_path / "a.mdl").write_text('\nlist l is procedure { items { "f" }; }')
    (tmp_path / "b.mdl").write_text('import "a.mdl"; list l is module { items { "f" }; }')
    with pytest.raises(BadMetric) as caught:
        load(tmp_path / "b.mdl")
    (found,) = caught.value.diagnostics
    assert (found.code, found.file) == ("MDL020", str(tmp_path / "b.mdl"))
    assert f"{tmp_path / 'a.mdl'}:2" in found.hint


def test_how_a_diagnostic_looks() -> None:
    text = "metric m {\n\tunits bytes\n}\n"
    (found,) = parse(text, "m.mdl")[1]
    assert render(found, text.split("\n")).split("\n") == [
        "m.mdl:3:1: error MDL001: `}` is not expected here",
        "    3 | }",
        "      | ^",
        " hint: expected `;`",
    ]
    assert str(found) == "m.mdl:3:1: MDL001: `}` is not expected here (expected `;`)"


def test_a_caret_is_under_what_it_is_about() -> None:
    for text in ("metric m { units \t 5; }", "/**/" * 500 + "metric m { units 5; }" + " " * 999):
        found = parse(text)[1][0]
        _, line, carets, _ = render(found, text.split("\n")).split("\n")
        assert line[carets.index("^")] == "5"
        assert carets.count("^") == 1
        assert len(line) < 140


def test_no_diagnostic_moves_the_cursor() -> None:
    text = "metric \x1b[2J\r\x00\u202e { }"
    for found in parse(text)[1]:
        assert not set(render(found, text.split("\n"))) & set("\x1b\r\x00\u202e")


def test_a_diagnostic_of_another_text_can_be_rendered() -> None:
    found = problem("MDL001", "wrong", "", "f.mdl", Span(9, 9, 9, 10))
    assert render(found, ["short"]) == "f.mdl:9:9: error MDL001: wrong"
    assert (
        render(problem("MDL012", "lost", "", "f.mdl", NOWHERE), []) == "f.mdl: error MDL012: lost"
    )


def test_did_you_mean() -> None:
    assert did_you_mean("reed", ["read", "write"]) == "did you mean `read`?"
    assert did_you_mean("zzz", ["read", "write"], "nothing") == "nothing"


def test_the_error_shows_all_mistakes() -> None:
    with pytest.raises(BadMetric) as caught:
        load("metric m { }\nmetric m { base is counter { } }")
    assert caught.value.exit_code == 2
    assert caught.value.what == "there are 2 mistakes in <text>"
    assert "<text>:1:8: error MDL011" in caught.value.why
    assert "<text>:2:8: error MDL020" in caught.value.why
    assert "MDL011, MDL020" in caught.value.advice
