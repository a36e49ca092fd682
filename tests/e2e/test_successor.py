"""What is measured of a program that becomes another one says that the other is not measured."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.e2e.harness import eventually

Build = Callable[[str], Path]

WORK = "/Code/becomes/work"


def measured(program: Path, *words: str) -> dict[str, Any]:
    """Run a program, and return what the JSON on standard error says."""
    command = [sys.executable, "-m", "weft", "run", "-m", f"calls@{WORK}", "--format", "json"]
    split = words.index("--")
    command += [*words[: split + 1], str(program), *words[split + 1 :]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (total,) = json.loads(done.stderr)["totals"]
    return dict(total)


@pytest.mark.parametrize("weaver", ["patch", "clone"])
@pytest.mark.parametrize("seconds", ["0", "0.5"])
def test_json_says_that_a_program_has_become_another(
    build: Build, weaver: str, seconds: str
) -> None:
    total = measured(build("becomes"), "--weaver", weaver, "--", seconds)
    assert (total["value"], total["status"]) == (10, "incomplete")
    (missing,) = total["missing"]
    assert missing["what"] == "programs"
    assert "sleep" in missing["why"]
    assert "measure that one" in missing["advice"]


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_a_program_that_stays_is_exact(build: Build, weaver: str) -> None:
    total = measured(build("becomes"), "--weaver", weaver, "--")
    assert (total["value"], total["status"]) == (10, "exact")


def test_python_says_it_while_the_other_runs_and_afterwards(build: Build) -> None:
    with weft.run([build("becomes"), "0.5"]) as session:
        session.run_to_entry()
        calls = session.metric("calls", WORK)
        session.resume()
        eventually(lambda: calls.completeness.status == "incomplete")
        (missing,) = calls.completeness.missing
        assert (missing.what, calls.value) == ("programs", 10)
        assert "has become" in missing.why
        session.metrics.sample()
        assert calls.history()[-1].completeness == calls.completeness
        session.wait()
    assert calls.completeness.missing == (missing,)
