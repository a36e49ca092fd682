"""The same session of GDB with a program alone and with its clone: the same answers at each stop.

``WEFT_CASES`` says how many stops there are with each program; ten thousand is the long form.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import need
from tests.gdb.compare import Record, first_difference
from tests.gdb.sides import MOVED, NATIVE, WEFT
from tests.gdb.together import difference, once
from tests.gdb.walks import WALKS

STOPS = int(os.environ.get("WEFT_CASES", "200"))
SEED = 1
PATIENCE = 120.0 + STOPS / 5
FEW = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where programs are compiled, and what they write is kept."""
    need("gdb", "gdbserver")
    return tmp_path_factory.mktemp("sessions")


@pytest.mark.watchdog(PATIENCE)
@pytest.mark.parametrize("walk", WALKS)
def test_the_same_session_has_the_same_answers(walk: str, folder: Path) -> None:
    found = difference(WALKS[walk], folder, STOPS, SEED, WEFT)
    assert not found.text, found.text
    assert found.stops >= STOPS


@pytest.mark.watchdog(PATIENCE)
@pytest.mark.parametrize(
    ("side", "walk"),
    [
        *(("covered", "cpp_O2"), ("covered", "threads")),
        *(("traced", "c_O0"), ("traced", "jit")),
        *(("measured", "c_O2"), ("measured", "signals"), ("measured", "sqlite3")),
    ],
)
def test_tools_change_no_answer(side: str, walk: str, folder: Path) -> None:
    found = difference(WALKS[walk], folder, STOPS, SEED, side)
    assert not found.text, found.text
    assert found.stops >= STOPS


@pytest.mark.watchdog(PATIENCE)
@pytest.mark.parametrize("walk", ["c_O2", "threads"])
def test_the_comparison_does_not_mind_where_libraries_are(walk: str, folder: Path) -> None:
    found = difference(WALKS[walk], folder, FEW, SEED, MOVED)
    assert not found.text, found.text


@pytest.fixture(scope="module")
def walked(folder: Path, build: Callable[[str], Path]) -> list[Record]:
    """A short walk through a program alone."""
    walk = WALKS["c_O0"]
    return list(once(walk, build(walk.program), folder, NATIVE, walk.plan(FEW, SEED), PATIENCE))


def test_a_walk_is_as_it_is(walked: list[Record]) -> None:
    assert first_difference(walked, copy.deepcopy(walked)) is None


def test_any_change_is_found(walked: list[Record]) -> None:
    """Whatever GDB could have told otherwise, at any stop, is a difference."""
    missed = []
    for number, record in enumerate(walked):
        if "maps" in record:
            continue
        for path, changed in changes(record):
            other = [*walked[:number], changed, *walked[number + 1 :]]
            if not first_difference(walked, other):
                missed.append((number, path))
    assert not missed


def changes(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Return what a record would be if one thing in it were another, for each."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key not in ("children", "number"):
                for where, changed in changes(part, f"{path}.{key}"):
                    yield where, {**value, key: changed}
    elif isinstance(value, list):
        for index, part in enumerate(value):
            for where, changed in changes(part, f"{path}[{index}]"):
                yield where, [*value[:index], changed, *value[index + 1 :]]
    elif isinstance(value, str) and value.startswith("0x") and " " not in value:
        yield path, hex(int(value, 16) ^ 1)
    elif isinstance(value, int):
        yield path, value + 1
    else:
        yield path, f"{value} otherwise"


def test_a_program_that_does_something_else_is_found(
    folder: Path, build: Callable[[str], Path]
) -> None:
    walk = WALKS["c_O0"]
    one, other = (
        once(walk, build(f"debug_c_{level}"), folder, NATIVE, walk.plan(FEW, SEED), PATIENCE)
        for level in ("O0", "O2")
    )
    assert first_difference(one, other)
