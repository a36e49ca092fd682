"""The programs whose bottleneck is known are built, start, work, and leave nothing behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.bottlenecks.asking import ask
from tests.bottlenecks.catalogue import CASES
from tests.bottlenecks.running import RECIPES, build, rate, started
from tests.e2e.harness import children, need

SOURCES = sorted({case.source for case in CASES if Path(case.source).suffix in RECIPES})
STARTED = ("report", "spool-claim", "checker", "sessions", "orders", "mapper-render", "web-python")


@pytest.mark.parametrize("source", SOURCES)
def test_it_is_built(source: str) -> None:
    need(RECIPES[Path(source).suffix][0])
    assert build(source).exists()


@pytest.mark.parametrize("name", STARTED)
def test_it_works_and_ends(name: str) -> None:
    (case,) = [case for case in CASES if case.name == name]
    if Path(case.source).suffix in RECIPES:
        need(RECIPES[Path(case.source).suffix][0])
    with started(case) as target:
        assert rate(target, 0.5) > 0
        family = [target.pid, *children(target.pid)]
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in family)


def test_it_is_asked_about(tmp_path: Path) -> None:
    """By what looks like weft: the same questions, and an answer of the promised form."""
    (case,) = [case for case in CASES if case.name == "mapper-render"]
    script = tmp_path / "weft.py"
    script.write_text(
        "import json, sys, time\n"
        "assert sys.argv[1] == 'why' and int(sys.argv[2]) and sys.argv[3] == '--for'\n"
        "time.sleep(float(sys.argv[4]))\n"
        "names = {'peer_wait': 'load_object', 'cpu': 'render_page'}\n"
        "one = {'share': 0.5, 'text': '', 'evidence': []}\n"
        "answers = [{'hypothesis': name, 'focus': names[name], **one} for name in names]\n"
        "print(json.dumps({'schema': 1, 'answers': answers}))\n"
    )
    verdict = ask(case, 1.0, 2, True, [sys.executable, str(script)])
    assert verdict.right and verdict.word == "yes", verdict
    assert verdict.seconds >= 1
    assert verdict.throughput is not None and verdict.throughput > 0.1


def test_a_command_that_fails_is_no_answer() -> None:
    (case,) = [case for case in CASES if case.name == "timers"]
    verdict = ask(case, 1.0, 1, False, [sys.executable, "-c", "raise SystemExit('it is broken')"])
    assert not verdict.right and verdict.problem == "status 1: it is broken"


def test_a_program_that_does_not_survive_is_no_answer() -> None:
    (case,) = [case for case in CASES if case.name == "timers"]
    kills = "import os, sys; os.kill(int(sys.argv[2]), 9); print('{\"answers\": []}')"
    verdict = ask(case, 1.0, 1, False, [sys.executable, "-c", kills])
    assert verdict.problem == "RuntimeError: the program has ended meanwhile"
