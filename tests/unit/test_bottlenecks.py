"""The programs whose bottleneck is known: enough of each kind, and answers are judged right."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from tests.bottlenecks.asking import Answer, Verdict, answers_in
from tests.bottlenecks.catalogue import CASES
from tests.bottlenecks.model import HYPOTHESES, KINDS, LANGUAGES, NONE, Case
from tests.bottlenecks.one import JAVA
from tests.bottlenecks.running import PROGRAMS
from tests.bottlenecks.servers import STARTERS
from tests.bottlenecks.table import FORMATS, summary

BY_NAME = {case.name: case for case in CASES}


def test_there_are_enough_of_each_kind() -> None:
    assert Counter(case.kind for case in CASES) == {
        "one": 40,
        "two": 10,
        "healthy": 10,
        "server": 6,
    }
    assert {case.kind for case in CASES} == set(KINDS)
    assert len(BY_NAME) == len(CASES)


def test_there_are_three_of_each_hypothesis() -> None:
    planted = Counter(case.expected[0] for case in CASES if case.kind == "one")
    assert set(planted) == set(HYPOTHESES)
    assert min(planted.values()) >= 3


def test_there_are_all_languages() -> None:
    for kind in ("one", "two", "healthy"):
        assert {case.language for case in CASES if case.kind == kind} == set(LANGUAGES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_says_what_is_needed(case: Case) -> None:
    assert case.source in STARTERS or (PROGRAMS / case.source).is_file()
    assert case.truth
    allowed = {"healthy": {NONE}}.get(case.kind, set(HYPOTHESES))
    assert set(case.expected) <= allowed
    assert bool(case.focus) == (case.kind != "healthy")
    assert len(case.expected) == (2 if case.kind == "two" or case.accepts else 1)
    assert set(JAVA) <= set(case.options) or case.language != "Java"


def test_every_source_is_used() -> None:
    used = {case.source for case in CASES} | {"peers.py"}
    shared = {"program.h", "operations.rs", "operations.py", "operations.js"}
    shared |= {"counter.go", "Operations.java"}
    there = {path.name for path in PROGRAMS.iterdir() if path.is_file()}
    assert there == shared | {source for source in used if source not in STARTERS}


def answered(name: str, *answers: tuple[str, str]) -> Verdict:
    said = tuple(Answer(hypothesis, focus, 0.8, "") for hypothesis, focus in answers)
    return Verdict(BY_NAME[name], said, words={"port": "1234"})


def test_one_must_be_first_and_located() -> None:
    assert answered("report", ("cpu", "/Code/libc.so.6/strlen")).right
    assert not answered("report", ("cpu", "/Code/libc.so.6/memcpy")).right
    assert answered("report", ("cpu", "elsewhere")).word == "no: not where"
    assert not answered("report", ("syscalls", ""), ("cpu", "strlen")).right
    assert not answered("report").right
    assert replace(answered("report", ("cpu", "strlen")), steady=False).word == "yes, not always"
    assert answered("orders", ("peer_wait", "127.0.0.1:1234")).right


def test_of_two_either_is_first_and_both_are_there() -> None:
    lock, disk = ("lock_wait", "ledger_lock"), ("io_wait", "fsync of journal.data")
    assert answered("ledger-journal", lock, disk).right
    assert answered("ledger-journal", disk, lock).right
    assert not answered("ledger-journal", lock).right
    assert not answered("ledger-journal", ("cpu", ""), lock, disk).right


def test_nothing_is_right_about_healthy_programs() -> None:
    assert answered("timers", (NONE, "")).right
    assert not answered("timers", ("peer_wait", "timerfd")).right
    assert not answered("report", (NONE, "")).right


def test_answers_are_read() -> None:
    said = {"hypothesis": "cpu", "focus": "f", "share": 0.5, "text": "t", "evidence": []}
    assert answers_in(json.dumps({"schema": 1, "answers": [said]})) == (
        Answer("cpu", "f", 0.5, "t"),
    )


def test_tables() -> None:
    good = replace(answered("report", ("cpu", "strlen")), throughput=0.98, seconds=10.0)
    bad = Verdict(BY_NAME["timers"], problem="status 2: there is no | such command")
    for form in FORMATS.values():
        assert "report" in form([good, bad])
    assert "right: 1 of 2 (one: 1 of 1, healthy: 0 of 1)" in summary([good, bad])
    assert "0.980 (median)" in summary([good, bad])
    assert json.loads(FORMATS["json"]([good]))[0]["right"] is True
