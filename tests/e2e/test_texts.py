"""Texts of the program as keys and fields: `str(p)` and `str(p, n)`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import weft
from tests.e2e.harness import eventually, need
from weft.control.texts import LONGEST
from weft.errors import BadSnippet

Build: TypeAlias = Callable[[str], Path]

WEAVERS = pytest.mark.parametrize("weaver", ["patch", "clone"])
LOOK = "/Code/texts/look"


def measured(
    command: list[str | Path], weaver: str, snippet: str, *, function: str = LOOK, text: str = ""
) -> weft.Probe:
    """Run a program that reads a text to its end, with a snippet at a function."""
    reading, writing = os.pipe()
    run: Any = weft.run
    with run(command, weaver=weaver, stdin=reading, stdout=subprocess.DEVNULL) as running:
        os.close(reading)
        if isinstance(running, weft.Session):
            running.run_to_entry()
        session = running if isinstance(running, weft.Session) else running.session
        maps, library = Path(f"/proc/{running.pid}/maps"), function.split("/")[2].rstrip("*")
        eventually(lambda: library in maps.read_text())
        probe = session.insert(function, snippet)
        os.write(writing, text.encode())
        os.close(writing)
        assert running.wait() == 0
    return probe


def texts(program: Path, kind: str, weaver: str, key: str = "str($arg[0])") -> dict[Any, int]:
    value = measured([program, kind], weaver, f"n[{key}]++").value()
    assert isinstance(value, dict)
    return value


@WEAVERS
def test_every_length_at_the_end_of_memory(build: Build, weaver: str) -> None:
    expected: Counter[str] = Counter()
    for length in range(130):
        text = chr(ord("a") + length % 26) * min(length, LONGEST)
        expected[text + ("…" if length >= LONGEST else "")] += 3
    assert texts(build("texts"), "lengths", weaver) == expected


@WEAVERS
def test_what_cannot_be_read_says_so(build: Build, weaver: str) -> None:
    found = texts(build("texts"), "unreadable", weaver)
    assert found == {"(unreadable)": 4, "end": 1}


@WEAVERS
def test_bytes_of_all_kinds(build: Build, weaver: str) -> None:
    found = texts(build("texts"), "bytes", weaver)
    assert found == {
        **{"grüß": 1, "tab\tand\nline": 1, "": 1},
        # What is no text, and what looks like something else, are told apart.
        **{r"b'\xff\xfe'": 1, json.dumps(r"b'\xff\xfe'"): 1},
        **{'"(unreadable)"': 1, json.dumps('""'): 1},
    }


@WEAVERS
def test_a_length_may_be_given(build: Build, weaver: str) -> None:
    found = texts(build("texts"), "lengths-given", weaver, "str($arg[0], $arg[1])")
    assert found == Counter("0123456789"[: max(0, length)] for length in range(-2, 14))


@WEAVERS
def test_a_text_beside_a_number_and_compared(build: Build, weaver: str) -> None:
    snippet = """
    map m[str, int] 64
    map same[1] 4
    m[str($arg[0], 1), $arg[1]]++
    if str($arg[0], 2) == str($arg[0], $arg[1]) { same[1]++ }
    """
    probe = measured([build("texts"), "lengths-given"], weaver, snippet)
    assert probe.value("m") == {("0", length % (1 << 64)): 1 for length in range(-2, 14)}
    assert probe.value("same") == {1: 1}
    assert probe.names == ("m", "same")


@WEAVERS
def test_fields_of_records(build: Build, weaver: str) -> None:
    snippet = "ring r(str text, length) 64\nemit r(str($arg[0], $arg[1]), $arg[1])"
    probe = measured([build("texts"), "lengths-given"], weaver, snippet)
    assert [(text, length) for text, length in probe.records() if length < 14] == [
        ("0123456789"[:length], length) for length in range(14)
    ]


@WEAVERS
def test_more_texts_than_there_is_room_for(build: Build, weaver: str) -> None:
    """The counts are right, and a key without its text says so."""
    probe = measured([build("texts"), "many"], weaver, "map n[str] 16384\nn[str($arg[0])]++")
    found = probe.value()
    assert isinstance(found, dict)
    named = {key for key in found if str(key).startswith("text ")}
    lost = {key for key in found if "no room" in str(key)}
    assert len(found) == 5000 and named | lost == set(found) and 900 < len(named) < 1100
    assert set(found.values()) == {2} and probe.lost() == 0


@WEAVERS
def test_texts_of_threads_that_are_gone(build: Build, weaver: str) -> None:
    found = texts(build("texts"), "threads", weaver)
    assert found == {f"thread {number}": 50 for number in range(8)}


@WEAVERS
def test_texts_of_children(build: Build, weaver: str) -> None:
    probe = measured([build("texts"), "forks"], weaver, "n[str($arg[0])]++")
    children = {f"child {number}": number for number in range(1, 5)}
    assert probe.value(process="all") == {"parent": 1, **children}


@WEAVERS
@pytest.mark.parametrize(
    "options",
    [
        ["-e", "entry look { n[str($arg[0])]++ }"],
        ["-m", f"calls@{LOOK}", "--by", "str($arg[0])"],
        ["-f", "FILE", "-m", "n"],
    ],
    ids=["one-liner", "by", "file"],
)
def test_on_the_command_line(build: Build, tmp_path: Path, weaver: str, options: list[str]) -> None:
    file = tmp_path / "n.mdl"
    file.write_text(
        'list looks is procedure { items { "look" }; }\n'
        "metric n { base is map[text] { foreach f in looks append preInsn f.entry\n"
        "  (* n[str($arg[0])]++; *) } }\n"
    )
    options = [str(file) if one == "FILE" else one for one in options]
    command = [sys.executable, "-m", "weft", "run", "--weaver", weaver, *options]
    command += ["--format", "json", "-o", str(tmp_path / "out"), "--", str(build("texts"))]
    subprocess.run([*command, "threads"], check=True, stdin=subprocess.DEVNULL)
    (total,) = json.loads((tmp_path / "out").read_text())["totals"]
    assert total["value"] == {f"thread {number}": 50 for number in range(8)}


@pytest.mark.parametrize(
    ("snippet", "told"),
    [
        ("counter n\nn += str($arg[0])", "a text where an integer is needed"),
        ("map n[1] 4\nn[str($arg[0])]++", "is a text, and was declared a number"),
        ("map n[str] 4\nn[$arg[0]]++", "is not a text"),
        ("n[str($arg[0]) + 1]++", "texts cannot be combined so"),
        ("n[-str($arg[0])]++", "a text has no sign"),
    ],
)
def test_what_makes_no_sense_is_refused(build: Build, snippet: str, told: str) -> None:
    with (
        weft.run([build("texts"), "bytes"]) as session,
        pytest.raises(BadSnippet, match=told),
    ):
        session.run_to_entry()
        session.insert(LOOK, snippet)


@WEAVERS
def test_statements_that_a_shell_prepares(weaver: str) -> None:
    """Real texts of a real program: what sqlite3 is asked is what it prepares."""
    need("sqlite3")
    rows = [f"select {number} -- {'x' * number}" for number in range(100)]
    probe = measured(
        ["sqlite3", ":memory:"],
        weaver,
        "n[str($arg[1])]++",
        function="/Code/libsqlite3.so.0*/sqlite3_prepare_v2",
        text="\n".join(f"{row}\n;" for row in rows),
    )
    found = probe.value()
    assert isinstance(found, dict)
    wanted = [f"{row}\n;" for row in rows]
    kept = {one if len(one) < LONGEST else one[:LONGEST] + "…" for one in wanted}
    assert kept <= {str(key) for key in found}
