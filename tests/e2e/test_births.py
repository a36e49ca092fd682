"""Threads that are given the memory of others which have ended are told apart, or values say so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft

Build = Callable[[str], Path]

COUNT = 5
CALLS = "calls@/Code/births/work"
FIRST_TIMES = "entry work { if (!seen) { seen = 1; first++ } }"


def run(program: Path, *words: str, mode: str = "") -> tuple[dict[str, int], dict[str, Any]]:
    """Measure a run, and return how often each thread has called, and the measured value."""
    command = [sys.executable, "-m", "weft", "run", "--format", "json", *words]
    command += ["--", str(program), str(COUNT), *([mode] if mode else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    (total,) = json.loads(done.stderr)["totals"]
    return {tid: int(times) for tid, times in lines}, total


def is_marked(total: dict[str, Any]) -> bool:
    if total["status"] == "exact":
        return False
    (missing,) = total["missing"]
    assert (missing["what"], missing["count"]) == ("threads", COUNT - 1)
    assert "the memory of a thread that had ended" in missing["why"]
    assert "--weaver clone" in missing["advice"]
    return True


@pytest.fixture
def program(build: Build) -> Path:
    return build("births")


def test_a_clone_tells_threads_apart_that_come_one_after_another(program: Path) -> None:
    calls, total = run(program, "--weaver", "clone", "-m", CALLS, "--by", "thread")
    assert (total["value"], total["status"]) == (calls, "exact")


def test_a_variable_is_0_in_a_new_thread_of_a_clone(program: Path) -> None:
    calls, total = run(program, "--weaver", "clone", "-e", FIRST_TIMES)
    assert (total["value"], total["status"]) == (len(calls), "exact")


@pytest.mark.parametrize(
    "words",
    [
        ("-m", CALLS, "--by", "thread"),
        ("-m", CALLS, "--by", "$thread"),
        ("-m", CALLS + ",/Thread/*"),
        ("-e", FIRST_TIMES),
        ("-e", "entry work { n = n + 1; sum += n }"),
        ("-e", "entry work { by_thread[$thread]++ }"),
    ],
)
def test_values_say_that_threads_may_not_be_told_apart(
    program: Path, words: tuple[str, ...]
) -> None:
    assert is_marked(run(program, *words)[1])


def test_what_does_not_depend_on_threads_is_exact(program: Path) -> None:
    calls, total = run(program, "-m", CALLS)
    assert (total["value"], total["status"]) == (sum(calls.values()), "exact")


def test_threads_that_run_together_are_told_apart(program: Path) -> None:
    calls, total = run(program, "-m", CALLS, "--by", "thread", mode="together")
    assert (total["value"], total["status"]) == (calls, "exact")


def test_a_name_that_was_never_seen_is_missing(program: Path) -> None:
    """The threads have ended before weft could ask for their names."""
    _, total = run(program, "--weaver", "clone", "-m", CALLS + ",/Thread/births")
    if total["value"] != sum(100 * (i + 1) for i in range(COUNT)):
        assert any("names" in missing["why"] for missing in total["missing"])


def test_who_was_started_while_all_others_run_is_told_apart(program: Path) -> None:
    """One has measured nothing, but had no other's memory."""
    words, pipe = [str(program), str(COUNT), "idle"], subprocess.PIPE
    with (
        subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, bufsize=1) as process,
        weft.attach(process.pid) as session,
    ):
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "ready\n"
        calls = session.metric("calls", "/Code/births/work", by="thread")
        process.stdin.write("\n")
        lines = [process.stdout.readline().split() for _ in range(COUNT)]
        assert calls.completeness.status == "exact"
        process.stdin.write("\n")
        assert process.wait(60) == 0
        assert calls.completeness.status == "exact"
        assert sorted(calls.by_key().values()) == sorted(int(times) for _, times in lines)
