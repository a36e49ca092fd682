"""Formatting changes the space between tokens, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.mdl import GOLDEN, SHIPPED
from tests.unit.test_mdl_parser import in_many_cases, patient
from weft.cli import main
from weft.errors import BadMetric
from weft.mdl import parse
from weft.mdl.format import format_document
from weft.mdl.lexer import COMMENTS, Lexer

FILES = [*GOLDEN, *SHIPPED]

UNTIDY = """

/* head */ import "a.mdl";import "b.mdl"; // both
list a is procedure{items{"x"};}list b is procedure
{ flavor {c,cpp} ; items { "a",
"b" , ~ "c" }; }
constraint c /Code / x is counter { }
constraint k /File is key (* $arg [ 1 ]->fd *)
metric m{units x;


base is map [ a,b ]{foreach f in a{append preInsn f . entry constrained(*m[ 1,2 ]+=- -3*(4+~5);*)
// why
} foreach f in b foreach g in f[0].funcs prepend postInsn g.calls (*
if(a==1){m[1,2]++;}else if (!b) m [3,4] --; else { }

emit r ( ) ; *) }}
}
"""

TIDY = """\
/* head */
import "a.mdl";
import "b.mdl"; // both
list a is procedure { items { "x" }; }

list b is procedure {
  flavor { c, cpp };
  items {
    "a",
    "b", ~"c"
  };
}

constraint c /Code/x is counter {
}

constraint k /File is key (* $arg[1]->fd *)

metric m {
  units x;

  base is map[a, b] {
    foreach f in a {
      append preInsn f.entry constrained (* m[1, 2] += - -3 * (4 + ~5); *)
      // why
    }
    foreach f in b
      foreach g in f[0].funcs
        prepend postInsn g.calls (*
          if (a == 1) {
            m[1, 2]++;
          } else if (!b) m[3, 4]--;
          else {
          }

          emit r();
        *)
  }
}
}
"""


def test_an_untidy_text() -> None:
    assert format_document(UNTIDY) == TIDY
    assert parse(UNTIDY)[0] == parse(TIDY)[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_is_formatted(path: Path) -> None:
    assert format_document(path.read_text()) == path.read_text()


def test_a_brace_too_many_keeps_its_comments_from_what_follows() -> None:
    list_ = 'list l is procedure { items { "f" }; }\n'
    text = f"{list_}/// Of nothing.\n}}\n\n{list_}"
    assert format_document(text) == text
    assert all(one.doc == "" for one in parse(text)[0].definitions)  # type: ignore[union-attr]


def test_what_does_not_fit_is_broken() -> None:
    names = ", ".join(f'"function_{number}"' for number in range(20))
    statement = "m += " + " + ".join(f"readSymbol(s{number})" for number in range(5)) + ";"
    text = f"""
        list l is procedure {{ items {{ {names} }}; }}
        metric m {{ base is counter {{
          append preInsn l.entry (* {statement.replace("(s", '("s').replace(")", '")')} m++; *)
        }} }}
    """
    lines = format_document(dedent(text)).splitlines()
    assert max(map(len, lines[:-10])) <= 100
    assert "    append preInsn l.entry (*" in lines
    assert "      m++;" in lines


def test_a_broken_text_is_left_alone() -> None:
    with pytest.raises(BadMetric):
        format_document("metric m { }")


@st.composite
def spaced(draw: st.DrawFn) -> str:
    """The tokens of a text with other space between them, and with more comments."""
    text = draw(st.sampled_from([path.read_text() for path in FILES]))
    tokens = [token for token in Lexer(text, "").tokens() if token.type not in COMMENTS]
    start = draw(st.integers(0, len(tokens)))
    spaces = [" ", "\n", "\n\n\n", "\t", " // c\n", " /* c */ ", "\n/* c\n  d */\n", "\n// e\n"]
    changed = draw(st.lists(st.sampled_from(spaces), min_size=1, max_size=20))
    between = [" "] * len(tokens)
    between[start : start + len(changed)] = changed
    return "".join(token + space for token, space in zip(tokens, between, strict=False))


@patient
@in_many_cases
@given(spaced())
def test_space_changes_nothing_but_space(text: str) -> None:
    formatted = format_document(text)
    assert parse(formatted)[0] == parse(text)[0]
    assert format_document(formatted) == formatted
    before, after = ([str(token) for token in Lexer(one, "").tokens()] for one in (text, formatted))
    assert after == before


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["fmt", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_rewrites_what_is_untidy(tmp_path: Path) -> None:
    untidy, tidy = tmp_path / "untidy.mdl", tmp_path / "tidy.mdl"
    untidy.write_text(UNTIDY)
    tidy.write_text(TIDY)
    assert run("--check", untidy, tidy) == (1, f"{untidy} would change\n", "")
    assert untidy.read_text() == UNTIDY
    assert run(untidy, tidy) == (0, f"{untidy}\n", "")
    assert untidy.read_text() == TIDY
    assert run("--check", untidy, tidy) == (0, "", "")


def test_the_command_as_json(tmp_path: Path) -> None:
    path = tmp_path / "untidy.mdl"
    path.write_text(UNTIDY)
    code, output, _ = run("--check", "--format", "json", path)
    files = [{"path": str(path), "changed": True}]
    assert (code, json.loads(output)) == (1, {"schema": 1, "files": files})


def test_a_mistake_in_one_file_changes_none(tmp_path: Path) -> None:
    untidy, broken = tmp_path / "untidy.mdl", tmp_path / "broken.mdl"
    untidy.write_text(UNTIDY)
    broken.write_text("metric m {\n  units 5;\n}\n")
    code, output, error = run(untidy, broken)
    assert (code, output) == (2, "")
    assert f"{broken}:2:9: error MDL001" in error
    assert "2 |   units 5;" in error
    assert untidy.read_text() == UNTIDY


def test_a_file_that_cannot_be_formatted(tmp_path: Path) -> None:
    latin = tmp_path / "latin.mdl"
    latin.write_bytes(b"\xff")
    assert run(latin)[0] == run(tmp_path / "none.mdl")[0] == run(tmp_path)[0] == 4
