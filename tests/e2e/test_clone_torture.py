"""Programs that check themselves, alone and as clones: nobody can tell one from the other.

With ``WEFT_TORTURE=long`` in the environment there is more of everything that can be more.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clone import (
    IS_LONG,
    RECORDERS,
    SMALL_CACHE,
    cases,
    known,
    outcome,
    outcome_apart,
    outcome_of_clone,
)

Build = Callable[[str], Path]

LINKS = ["static", "static_pie", "non_pie", "pie", "musl_static", "musl"]

PROGRAMS = {
    **{f"clone_plain_{link}": "plain.c" for link in LINKS},
    "clone_flow": "flow.c",
    "clone_state": "state.c",
    "clone_vectors": "vectors.c",
    "clone_faults": "faults.c",
    "clone_throwing": "throwing.cpp",
    "clone_actions": "actions.c",
    "clone_contexts": "contexts.c",
    "clone_threads": "threads.c",
    "clone_processes": "processes.c",
}
"""The programs and their sources, in the order in which they ask more of a translator."""

LONG = {
    ("clone_contexts", "context_read"): 5_000,
    ("clone_contexts", "context_changed"): 5_000,
    ("clone_contexts", "preempted"): 5_000,
    ("clone_contexts", "left_by_siglongjmp"): 5_000,
    ("clone_contexts", "every_instruction_read"): 50_000,
    ("clone_contexts", "every_instruction_changed"): 50_000,
    ("clone_contexts", "storm"): 20_000,
    ("clone_contexts", "timer_storm"): 200_000,
    ("clone_contexts", "nested"): 20_000,
    ("clone_contexts", "busy"): 5_000,
    ("clone_contexts", "sent_together"): 100_000,
    ("clone_threads", "joined"): 10_000,
    ("clone_threads", "joined_together"): 10_000,
    ("clone_processes", "forks"): 2_000,
}
"""How much there is to do of a case in the long form."""

CASES = [(program, case) for program, source in PROGRAMS.items() for case in cases(source)]


OUTGROWN = {"clone_plain_pie", "clone_flow", "clone_faults", "clone_throwing"}
OUTGROWN |= {"clone_contexts", "clone_threads", "clone_processes"}
"""Programs to which it matters that a cache is too small: something goes on meanwhile, or returns
to code that is gone. For others it is the same code once more, however they are linked."""


def caches(program: str) -> list[tuple[str, tuple[str, ...]]]:
    """The caches that a program is tried with, by their names."""
    usual: list[tuple[str, tuple[str, ...]]] = [("usual", ())]
    return [*usual, ("small", SMALL_CACHE)] if IS_LONG or program in OUTGROWN else usual


IF_RECORDED = {("clone_threads", "memory_returned"): 20 * (16 << 10)}
"""Amounts for cases while something is recorded: each of 20 threads has 16 MB of addresses to write
to, and those stay for others when it ends. How many of them run at once is up to the machine."""


def name(program: str, case: str) -> str:
    return f"{program}-{case}".removeprefix("clone_")


def recorded(program: str, case: str, records: str) -> object:
    """A case while something is recorded."""
    case_name = name(program, case)
    marks = known(case_name)
    return pytest.param(program, case, records, id=f"{case_name}-{records}", marks=marks)


def test_without_a_library(build: Build) -> None:
    alone = outcome([build("clone_bare")])
    assert (alone.status, alone.stdout) == (0, "11385274\n")
    assert outcome_of_clone([build("clone_bare")]) == alone


@pytest.mark.parametrize(
    ("program", "case", "options"),
    [
        pytest.param(*one, options, id=f"{name(*one)}-{cache}", marks=known(name(*one)))
        for one in CASES
        for cache, options in caches(one[0])
    ],
)
@pytest.mark.watchdog(1200 if IS_LONG else 120)
def test_a_clone_does_as_the_program(
    build: Build, program: str, case: str, options: tuple[str, ...]
) -> None:
    amount = LONG.get((program, case))
    command: list[str | Path] = [build(program), case]
    if IS_LONG and amount:
        command.append(str(amount))
    patience = 500.0 if IS_LONG else 50.0
    alone = outcome(command, patience)
    assert alone.stdout and not alone.stderr, alone
    assert outcome_of_clone(command, options, patience) == alone


@pytest.mark.parametrize(
    ("program", "case", "records"),
    [
        recorded(program, case, records)
        for program, case in CASES
        if not program.startswith("clone_plain") or program == "clone_plain_pie"
        for records in RECORDERS
    ],
)
@pytest.mark.watchdog(120)
def test_nobody_can_tell_that_it_is_recorded(
    build: Build, program: str, case: str, records: str
) -> None:
    command: list[str | Path] = [build(program), case]
    if amount := IF_RECORDED.get((program, case)):
        command.append(str(amount))
    alone = outcome(command)
    assert outcome_apart(RECORDERS[records], command, 100.0) == alone
