"""Parts of functions that were placed elsewhere belong to them, whatever names there are."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import weft

COUNTED = """
counter hits
at entry { hits += 1 }
at exit { hits += 1 }
"""

SAME, POINTED, RARE, SEEMING, CHECKED = 100, 130, 53, 13, 50
"""How often functions of ``parts.c`` are called: ``same`` so often in each of two files. The part
of ``pointed`` makes a frame of its own and returns: without names it cannot be told from a function
that is called last."""

EXPECTED = {
    "parts": [RARE, SAME, SAME, POINTED, SAME + SAME, CHECKED, CHECKED, CHECKED],
    "parts_stripped": [SEEMING, RARE, SAME, SAME, POINTED, SAME, SAME],
}
"""What is called more than once; where there are names, what has the same name is counted together.
The others that are called as often as ``same`` are those that call it."""


def counted(program: Path, weaver: str, where: str) -> dict[weft.Point, int]:
    """Count how often points of functions are passed; no other points may be missing."""
    session, wait = started(program, weaver)
    probe = session.insert(where, COUNTED)
    assert wait() == 0
    assert not probe.refused
    return probe.values()


def started(program: Path, weaver: str) -> tuple[weft.Session, Callable[[], int | None]]:
    """Start a program, and hold it at its entry."""
    if weaver == "clone":
        cloned = weft.run([program], weaver="clone", is_held=True, stdout=subprocess.DEVNULL)
        return cloned.session, cloned.wait
    session = weft.run([program], stdout=subprocess.DEVNULL)
    session.run_to_entry()
    return session, session.wait


@pytest.mark.parametrize("weaver", ["patch", "clone"])
@pytest.mark.parametrize("name", EXPECTED)
def test_a_function_is_left_as_often_as_it_is_entered(
    build: Callable[[str], Path], name: str, weaver: str
) -> None:
    hits = counted(build(name), weaver, f"/Code/{name}/*")
    entered: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for point, number in hits.items():
        (entered if point.kind == "entry" else left)[point.function] += number
    calls = {function: number for function, number in entered.items() if number > 1}
    # It is left by running into the next one.
    assert calls.pop("checked", CHECKED) == CHECKED
    assert sorted(calls.values()) == sorted(EXPECTED[name])
    assert {function: left[function] for function in calls} == calls


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_a_function_without_a_size_ends_before_the_stubs_of_libraries(
    build: Callable[[str], Path], weaver: str
) -> None:
    hits = counted(build("parts"), weaver, "/Code/parts/_init")
    assert [(point.kind, number) for point, number in hits.items()] == [("entry", 1), ("exit", 1)]


def test_a_function_that_runs_into_the_next_has_exits_that_are_not_known(
    build: Callable[[str], Path],
) -> None:
    with weft.run([build("parts")], stdout=subprocess.DEVNULL) as session:
        session.run_to_entry()
        probe = session.insert(["/Code/parts/runs_on", "/Code/parts/runs_into"], COUNTED)
        assert [point.function for point in probe.uncertain] == ["runs_on"]
        assert probe.completeness.status == "incomplete"
        assert session.wait() == 0


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_padding_that_is_run_through_is_left_alone(
    build: Callable[[str], Path], weaver: str
) -> None:
    hits = counted(build("parts"), weaver, "/Code/parts/copied")
    assert [number for point, number in hits.items() if point.kind == "exit"] == [4, CHECKED - 4]


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_registers_that_callers_go_on_with_are_kept(
    build: Callable[[str], Path], weaver: str
) -> None:
    hits = counted(build("parts"), weaver, "/Code/parts/private")
    assert list(hits.values()) == [CHECKED, CHECKED]
