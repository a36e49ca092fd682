"""Programs that change their code, alone and as clones, in all ways that there are to do so.

Each says in its source what it would print if nobody noticed: that is not what it prints. With
``WEFT_TORTURE=long`` in the environment that is tried of those as well that take long to give up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from tests.clone import (
    IS_LONG,
    RECORDERS,
    SMALL_CACHE,
    SOURCES,
    known,
    outcome,
    outcome_apart,
    outcome_of_clone,
    run_blind,
)

Build = Callable[[str], Path]

PROGRAMS = ["smc", "smc_memory", "smc_stack", "smc_threads"]

SMC = re.compile(r'^SMC\((\w+),\s*"([^"]*)",\s*"([^"]*)"\)', flags=re.MULTILINE)

CASES = {
    f"{program}-{name}": (f"clone_{program}", name, seen, unseen.split(" | "))
    for program in PROGRAMS
    for name, seen, unseen in SMC.findall((SOURCES / f"{program}.c").read_text())
}

LEAVES = "smc_memory-file_truncated"
"""What makes a program leave its clone: it does as it should, with a report on standard error."""


PATIENT = {
    f"smc_threads-{name}"
    for name in (
        *("by_breakpoints", "inline_cache", "let_out_by_a_handler", "let_out_by_a_thread"),
        "operand_while_it_runs",
    )
}
"""Those that wait for seconds before they say that they have seen nothing."""


def cases(
    marks: Callable[[str], list[pytest.MarkDecorator]], without: Collection[str] = ()
) -> pytest.MarkDecorator:
    """Have a test for each case, with marks by the name of the case."""
    values = [
        pytest.param(*case, id=name, marks=marks(name))
        for name, case in CASES.items()
        if name not in without
    ]
    return pytest.mark.parametrize(("program", "name", "seen", "unseen"), values)


@pytest.mark.parametrize("options", [(), SMALL_CACHE], ids=["usual", "small"])
@cases(known)
def test_a_change_is_seen(
    build: Build, program: str, name: str, seen: str, unseen: list[str], options: tuple[str, ...]
) -> None:
    assert seen not in unseen
    command: list[str | Path] = [build(program), name]
    alone = outcome(command)
    assert (alone.status, alone.stdout) == (0, f"{seen}\n{name}: well\n"), alone
    assert outcome_of_clone(command, options) == alone


@pytest.mark.parametrize("records", RECORDERS)
@cases(lambda case: [] if case == LEAVES else known(case))
def test_a_change_is_seen_while_all_is_recorded(
    build: Build, program: str, name: str, seen: str, unseen: list[str], records: str
) -> None:
    assert seen not in unseen
    recorded = outcome_apart(RECORDERS[records], [build(program), name], patience=60.0)
    assert (recorded.status, recorded.stdout) == (0, f"{seen}\n{name}: well\n"), recorded


@cases(lambda case: [], without=() if IS_LONG else PATIENT)
def test_a_change_goes_unseen_where_nobody_looks(
    build: Build, program: str, name: str, seen: str, unseen: list[str]
) -> None:
    blind = outcome_apart(run_blind, [build(program), name], patience=60.0)
    assert blind.status == 1, blind
    assert blind.stdout.removesuffix("\n") in unseen, blind
