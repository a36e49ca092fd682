"""What the parser makes of texts that are right, and that it survives all others."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.mdl import GOLDEN, SHIPPED, dump
from weft.errors import BadMetric
from weft.mdl import ast, load, parse, parse_code, parse_one_liner, parse_where, render
from weft.mdl.diagnostics import Diagnostic
from weft.mdl.format import format_document
from weft.mdl.lexer import Lexer
from weft.mdl.passes.places import KINDS
from weft.mdl.tables import grammar

CASES = int(os.environ.get("WEFT_CASES", "200"))
ROOT = Path(__file__).parents[2]
PAPER = ROOT.parent / "shared" / "papers" / "003_36f1bd88985f7ee4.txt"

in_many_cases = settings(
    max_examples=CASES,
    deadline=None,
    derandomize="WEFT_CASES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
patient = pytest.mark.watchdog(120 + CASES / 4)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_tree_of(path: Path) -> None:
    document, diagnostics = parse(path.read_text())
    assert diagnostics == []
    assert dump(document) == path.with_suffix(".tree").read_text()


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_it_can_be_loaded(path: Path) -> None:
    assert load(path).diagnostics == ()


def test_what_ships_can_be_loaded_together() -> None:
    library = load(*SHIPPED)
    assert library.diagnostics == ()
    assert all(metric.doc for metric in library.metrics.values())


def listings() -> list[str]:
    """The listings of the paper's section on the language, which are not ours to copy."""
    if not PAPER.exists():
        return []
    section = PAPER.read_text().partition("\n2 Metric Description Language")[2]
    section = section.partition("\n3 ")[0]
    return re.findall(r"^```\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(not PAPER.exists(), reason="the paper is not here")
def test_the_listings_of_the_paper() -> None:
    found = listings()
    assert len(found) >= 5
    for text in found:
        diagnostics: list[Diagnostic]
        if text.lstrip().startswith("foreach"):
            wheres, diagnostics = parse_where(text)
            assert isinstance(wheres[0], ast.Foreach)
        elif text.lstrip().startswith("(*"):
            code, diagnostics = parse_code(text)
            assert code.body
        else:
            document, diagnostics = parse(text)
            assert document.definitions
            assert format_document(format_document(text)) == format_document(text)
        # Figure 2 prints a brace too many.
        assert {one.code for one in diagnostics} <= {"MDL008"}


@pytest.mark.skipif(not PAPER.exists(), reason="the paper is not here")
def test_figure_2_of_the_paper() -> None:
    (figure,) = (text for text in listings() if "metric " in text)
    document, diagnostics = parse(figure)
    assert [one.code for one in diagnostics] == ["MDL008"]
    names = [getattr(one, "name", "") for one in document.definitions]
    assert names == ["pvm_msg_func", "procedure", "msgs"]


def test_fragments() -> None:
    (where,), diagnostics = parse_where(
        "foreach i in $procedures append preInsn i.entry (* n++; *)"
    )
    code, _ = parse_code("(* n++; *)")
    assert diagnostics == []
    assert code == ast.CodeBlock((ast.Assign("n", "+=", ast.Number(1)),))
    point = ast.PointExpression(ast.Place("i"), "entry")
    insert = ast.Insert("append", "preInsn", point, False, code)
    assert where == ast.Foreach("i", ast.Place("$procedures"), (insert,))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a + b * c", "a + (b * c)"),
        ("a - b - c", "(a - b) - c"),
        ("a || b && c", "a || (b && c)"),
        ("a | b ^ c & d", "a | (b ^ (c & d))"),
        ("a & b == c", "a & (b == c)"),
        ("a == b < c", "a == (b < c)"),
        ("a < b << c", "a < (b << c)"),
        ("a << b + c", "a << (b + c)"),
        ("-a * !b", "(-a) * (!b)"),
        ("-a->b", "-(a->b)"),
        ("a - -1", "a - (-(1))"),
        ("0x1F", "31"),
    ],
)
def test_operators_bind_as_in_c(text: str, same: str) -> None:
    left, problems = parse_code(f"(* x = {text}; *)")
    right, more = parse_code(f"(* x = {same}; *)")
    assert left == right
    assert problems == more == []


def test_an_else_belongs_to_the_nearest_if() -> None:
    nested, _ = parse_code("(* if (a) if (b) x++; else y++; *)")
    braces, _ = parse_code("(* if (a) { if (b) { x++; } else { y++; } } *)")
    assert nested == braces


def test_a_keyword_is_a_name_where_none_is_expected() -> None:
    text = """
        list list is module { flavor flavor; items { "x" }; }
        constraint metric /constraint is counter { append preInsn is.entry (* metric = 1; *) }
        metric base { units units; constraint metric; local foreach, in, is;
          base is counter { foreach append in list append preInsn append.return (* base++; *) } }
    """
    document, diagnostics = parse(text)
    assert diagnostics == []
    assert [getattr(one, "name", "") for one in document.definitions] == ["list", "metric", "base"]


def test_doc_comments_belong_to_what_follows() -> None:
    text = """
        /// One.
        ///   Two.
        // Not this.
        list a is procedure { items { "x" }; }
        list b is procedure { /// Lost.
          items { "x" }; }
    """
    first, second = parse(text)[0].definitions
    assert isinstance(first, ast.ListDefinition) and isinstance(second, ast.ListDefinition)
    assert first.doc == "One.\n  Two."
    assert second.doc == ""


def test_every_node_knows_its_place() -> None:
    text = "metric m {\n  base is counter {\n    append preInsn $focus.entry (* m += 1; *)\n  }\n}"
    (metric,) = parse(text)[0].definitions
    assert isinstance(metric, ast.Metric)
    assert metric.span == ast.Span(1, 1, 5, 2)
    (insert,) = metric.base.body
    assert isinstance(insert, ast.Insert)
    assert insert.span == ast.Span(3, 5, 3, 46)
    assert insert.code.body[0].span == ast.Span(3, 36, 3, 43)


def test_editors_know_every_keyword() -> None:
    colours = json.loads((ROOT / "docs" / "mdl.tmLanguage.json").read_text())
    patterns = json.dumps(colours["repository"])
    values = [terminal.pattern.value for terminal in grammar().terminals]
    keywords = [value for value in values if value.isidentifier()]
    assert len(keywords) > 30
    for word in (*keywords, *KINDS):
        assert re.search(rf"\b{word}\b", patterns), word
    for pattern in re.findall(r'"(?:match|begin|end)": ("(?:\\.|[^"\\])*")', patterns):
        re.compile(json.loads(pattern))


def one_liner(text: str) -> dict[str, ast.Metric]:
    metrics, _, diagnostics = parse_one_liner(text)
    assert diagnostics == []
    return {metric.name: metric for metric in metrics}


def test_a_one_liner() -> None:
    metrics, lists, diagnostics = parse_one_liner("entry malloc { bytes += $arg[0]; count++ }")
    assert diagnostics == []
    assert [metric.name for metric in metrics] == ["bytes", "count"]
    assert lists == [ast.ListDefinition('"malloc"', "procedure", (), (ast.Item("malloc"),))]
    code = parse_code("(* bytes += $arg[0]; *)")[0]
    point = ast.PointExpression(ast.Place("func"), "entry")
    insert = ast.Insert("append", "preInsn", point, False, code)
    where = ast.Foreach("func", ast.Place('"malloc"'), (insert,))
    assert metrics[0] == ast.Metric("bytes", ast.Base("counter", (where,)))


@pytest.mark.parametrize(
    ("written", "pattern"),
    [
        ("malloc", "malloc"),
        ("pthread_mutex_*", "pthread_mutex_*"),
        ('"operator new(unsigned long)"', "operator new(unsigned long)"),
        ('"a \\"b\\" c"', 'a "b" c'),
        ("/Code/libc.so.6/malloc", "/Code/libc.so.6/malloc"),
        ("/Code/*/malloc", "/Code/*/malloc"),
        ("//x", "//x"),
        ("std::vector<int>::push_back", "std::vector<int>::push_back"),
    ],
)
def test_the_function_of_a_one_liner_is_kept_as_it_is(written: str, pattern: str) -> None:
    for space in ("", " "):
        _, (functions,), diagnostics = parse_one_liner(f"entry {written}{space}{{ n++ }}")
        assert diagnostics == []
        assert functions.items == (ast.Item(pattern),)


def test_what_the_variables_of_one_liners_are() -> None:
    metrics = one_liner("""
        entry f { began = $time; n++; by[$caller, $arg[1]] += 2; sizes << $arg[0]; if (n) m -= 1 }
        return f { if ($return > 0) { took << $time - began } else n-- };
        entry "g" { startWallTimer(busy) } return g { stopWallTimer(busy) }
    """)
    assert {name: metric.base.type for name, metric in metrics.items()} == {
        "n": "counter",
        "m": "counter",
        "by": "map",
        "sizes": "histogram",
        "took": "histogram",
        "busy": "wallTimer",
    }
    assert metrics["by"].base.fields == ("caller", "arg1")
    assert metrics["took"].locals == ("began",)
    assert metrics["n"].locals == ()
    assert metrics["m"].locals == ("n",)
    entry, back = metrics["took"].base.body
    assert isinstance(entry, ast.Foreach) and isinstance(back, ast.Foreach)
    assert [entry.body[0].point.kind, back.body[0].point.kind] == ["entry", "return"]  # type: ignore[union-attr]
    assert entry.body[0].code == parse_code("(* began = $time; *)")[0]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("", {"MDL062"}),
        ("entry f { }", {"MDL062"}),
        ("entry f { g() ; n++ }", {"MDL062"}),
        ("entry f { emit r(1) }", {"MDL062"}),
        ("entry f n++", {"MDL060"}),
        ("entry f { n++ } f { n++ }", {"MDL060"}),
        ("entry f { n++", {"MDL005"}),
        ("entry f { if (1) { n++ }", {"MDL005"}),
        ("entry f { n+ }", {"MDL001"}),
        ("entyr f { n++ }", {"MDL044"}),
        ("entry f { n += $ars[0] }", {"MDL024"}),
        ("entry f { n++; n << 1 }", {"MDL061"}),
        ("entry f { n[1]++; n[1, 2]++ }", {"MDL061"}),
        ("entry f { n += x }", {"MDL023"}),
        ("entry f { n += \0 1 }", {"MDL002"}),
    ],
)
def test_one_liners_that_are_none(text: str, codes: set[str]) -> None:
    found = parse_one_liner(text)[2]
    assert {one.code for one in found} == codes
    assert all(render(one, text.split("\n")) for one in found)


# Any text gives diagnostics, and nothing else.

TEXTS = [path.read_text() for path in (*GOLDEN, *SHIPPED)]
PIECES = [
    *sorted({str(token) for text in TEXTS for token in Lexer(text, "").tokens()}),
    *("\0", '"', "/*", "*/", "//", "((", "$", "\\", "\ud800", "\x1b", "\r", "9" * 5000, "\u00e9"),
]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A text that was right, after some accidents."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 5))):
        starts = [0, *(match.start() for match in re.finditer(r"\b|(?<=\W)", text)), len(text)]
        if draw(st.booleans()):
            starts = list(range(len(text) + 1))
        start = draw(st.integers(0, len(starts) - 1))
        end = min(len(starts) - 1, start + draw(st.integers(0, 4)))
        first, last = starts[start], starts[end]
        accident = draw(st.sampled_from(["delete", "insert", "replace", "repeat", "swap", "cut"]))
        piece = draw(st.sampled_from(PIECES))
        middle = {
            "delete": "",
            "insert": piece + text[first:last],
            "replace": piece,
            "repeat": text[first:last] * draw(st.integers(2, 4)),
            "swap": text[last : last + 10] + text[first:last],
            "cut": text[first:last] + "\n",
        }[accident]
        text = text[:first] + middle + text[last:]
        if accident == "cut":
            text = text[: first + len(middle)]
    return text


def survive(text: str) -> None:
    document, diagnostics = parse(text, "mutated.mdl")
    assert isinstance(document, ast.Document)
    try:
        load(text + "\n")
    except BadMetric as error:
        assert str(error)
        diagnostics += error.diagnostics
    else:
        formatted = format_document(text)
        assert parse(formatted, "mutated.mdl")[0] == document
        assert format_document(formatted) == formatted
    for function in (parse_where, parse_code):
        diagnostics += function(text)[1]
    diagnostics += parse_one_liner(text)[2]
    for one in diagnostics:
        assert render(one, text.split("\n"))


@patient
@in_many_cases
@given(mutated())
def test_accidents_are_survived(text: str) -> None:
    survive(text)


@patient
@in_many_cases
@given(st.lists(st.sampled_from(PIECES), max_size=40).map(" ".join))
def test_tokens_in_any_order_are_survived(text: str) -> None:
    survive(text)


@patient
@in_many_cases
@given(st.text(max_size=200))
@example("\0")
@example("\r")
@example("/*/")
@example('"\\')
@example("metric")
@example("}")
@example("*)")
def test_any_text_is_survived(text: str) -> None:
    survive(text)
