"""Children that outlive the first process are not measured any longer, and the values say so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import weft
from tests.e2e.harness import eventually
from weft import trace

Build = Callable[[str], Path]

WEFT = (sys.executable, "-m", "weft")
COUNT = 20
MARK = "/Code/outlives/mark"


def run(*words: str | Path) -> str:
    """Run weft while the child waits for its input, and return what weft says at the end."""
    with subprocess.Popen(
        [*WEFT, *words], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        said = process.stderr.read()
        assert process.wait(60) == 7, said
    return said


def measured(*words: str | Path) -> dict[str, Any]:
    """Run weft and return the metric that it has written as JSON."""
    (found,) = json.loads(run("run", "-m", f"calls@{MARK}", "--format", "json", *words))["totals"]
    return dict(found)


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_a_metric_says_that_a_child_has_outlived_the_program(build: Build, weaver: str) -> None:
    calls = measured("--weaver", weaver, "--", build("outlives"), str(COUNT))
    assert (calls["value"], calls["status"]) == (2 * COUNT, "incomplete")
    (missing,) = calls["missing"]
    assert (missing["what"], missing["count"]) == ("processes", 1)
    assert "still ran when the first process had ended" in missing["why"]
    assert missing["advice"]


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_the_text_says_it(build: Build, weaver: str) -> None:
    words = ("run", "--weaver", weaver, "-m", f"calls@{MARK}", "--", build("outlives"), str(COUNT))
    assert "still ran when the first process had ended" in run(*words)


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_a_child_that_is_waited_for_is_measured_to_its_end(build: Build, weaver: str) -> None:
    words = ("--weaver", weaver, "--", build("outlives"), str(COUNT), "waits")
    done = subprocess.run(
        [*WEFT, "run", "-m", f"calls@{MARK}", "--format", "json", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    (calls,) = json.loads(done.stderr)["totals"]
    assert (calls["value"], calls["status"]) == (3 * COUNT, "exact")


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_python_knows_as_long_as_it_is_so(build: Build, weaver: Literal["patch", "clone"]) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as pipe:
        assert pipe.stdin
        command: list[str | Path] = [build("outlives"), str(COUNT)]
        if weaver == "clone":
            program = weft.run(command, weaver="clone", is_held=True, stdin=pipe.stdout)
            session, wait = program.session, program.wait
        else:
            session = weft.run(command, stdin=pipe.stdout)
            session.run_to_entry()
            wait = session.wait
        calls = session.metric("calls", focus=MARK)
        first = session.metric("calls", focus=f"{MARK},/Process/{session.pid}")
        assert wait(60) == 7
        assert calls.completeness.status == "incomplete"
        assert first.completeness.is_exact
        pipe.stdin.close()
        eventually(lambda: calls.completeness.is_exact)
        assert (calls.value, first.value) == (3 * COUNT, COUNT)
        session.detach()
        assert calls.completeness.is_exact


@pytest.mark.parametrize("tool", ["profile", "cov", "cov --weaver patch", "trace"])
def test_what_is_recorded_says_it(build: Build, tool: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = () if tool == "trace" else ("--format", "json")
    said = run(*tool.split(), *options, "-o", out, "--", build("outlives"), str(COUNT))
    sentence = "1 process is missing in part: it still ran when the first one had ended"
    assert sentence in said
    if tool == "trace":
        assert trace.open(out).lost == (sentence,)
    else:
        assert sentence in out.read_text()
