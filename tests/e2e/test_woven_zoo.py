"""The woven zoo: every function of a program and of its C library counted, and nobody notices."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import weft
from tests import callgrind, cpython
from tests.e2e.harness import PROGRAMS, Background, code
from tests.e2e.test_probes import needs_weaver
from tests.e2e.test_zoo import Animal, alone, every_animal, started_by_weft
from tests.lockstep import ENDED_WELL, parse_counts
from tests.probing import COUNTER, Point, Probe, Weaver, weaver

Build = Callable[[str], Path]

FEW = 0.02
"""How much of all calls may go to functions that weft declines to weave."""


@dataclass
class Coat:
    """A probe in every function of some modules."""

    modules: set[str]
    probe: Probe

    def __str__(self) -> str:
        tactics = ", ".join(f"{name} {number}" for name, number in self.probe.tactics.items())
        reasons: dict[str, int] = {}
        for refusal in self.probe.refused:
            reasons[refusal.reason] = reasons.get(refusal.reason, 0) + 1
        refused = ", ".join(f"{reason}: {number}" for reason, number in reasons.items())
        return f"{len(self.probe.points)} points ({tactics}), refused: {refused or 'none'}"

    @property
    def refused(self) -> set[tuple[str, str]]:
        return {(refusal.point.module, refusal.point.function) for refusal in self.probe.refused}


def modules_to_weave(session: Weaver) -> list[str]:
    """Return the program, its C library, and Python's own library where there is one."""
    program = Path(session.program()).name
    names = [module.name for module in session.modules()]
    return [
        name
        for name in dict.fromkeys(names)
        if name == program or name.startswith(("libc.so", "libc.musl", "ld-musl", "libpython"))
    ]


def dress(session: Weaver) -> Coat:
    """Count the calls of every function of the modules that are there."""
    modules = modules_to_weave(session)
    points: list[Point] = [
        point for name in modules for point in session.points(f"/Code/{name}/*", "entry")
    ]
    assert points
    coat = Coat(set(modules), session.insert(points, COUNTER))
    assert all(refusal.reason for refusal in coat.probe.refused)
    assert len(coat.probe.refused) < FEW * len(points), str(coat)
    return coat


def weave_all(pid: int) -> Coat:
    """Weave a process and leave it: what is to be measured has to outlive no session."""
    session = weft.attach(pid)
    coat = dress(weaver(session))
    SESSIONS.append(session)
    return coat


SESSIONS: list[weft.Session] = []
"""Sessions that last for as long as this process, as their targets end first."""


@needs_weaver
@every_animal
@pytest.mark.watchdog(300)
def test_attach(animal: Animal, build: Build) -> None:
    """Woven while it works, and unwoven."""
    command = animal.command(build)
    expected = alone(command)
    with Background(command) as background:
        before = code(background.pid)
        with weft.attach(background.pid) as session:
            coat = dress(weaver(session))
            coat.probe.disable()
            coat.probe.enable()
            coat.probe.remove()
        if not animal.makes_code:
            assert code(background.pid) == before
        with weft.attach(background.pid) as session:
            coat = dress(weaver(session))
            outcome = background.finish()
            assert outcome == expected, str(coat)


@needs_weaver
@every_animal
@pytest.mark.watchdog(300)
def test_run(animal: Animal, build: Build) -> None:
    """Woven before its first instruction, its library as soon as that has come."""
    command = animal.command(build)
    expected = alone(command)
    with started_by_weft(command) as (session, stdin, stdout):
        dress(weaver(session))
        session.resume()
        output = stdout.readline()
        # The same functions once more, and now those of the library.
        coat = dress(weaver(session))
        assert coat.probe.value("calls") >= 0
        stdin.close()
        output += stdout.read()
        assert (session.wait(), output.decode()) == expected


def test_callgrind_is_read_right(build: Build) -> None:
    command: list[str | Path] = [build("counts"), "1", "200"]
    hits = callgrind.hits(command)
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    assert said.returncode == ENDED_WELL
    counts = parse_counts(said.stdout)
    # Two jumps that callgrind takes for calls.
    for name in counts.keys() - {"loop_at_entry", "jumped_into"}:
        assert hits["counts", name] == counts[name]
    assert hits["libc.so.6", "__longjmp"] == counts["leaper"]
    assert callgrind.share(hits, [("counts", "tiny")], {"counts", "libc.so.6"}) < 0.1


LOOP = "for i in {1..2000}; do x=${x:0:20}$((i * i))_${i/1/one}; done; echo ${#x}"
SCRIPT = "import json, re; print(len(json.dumps([re.sub('a', 'b', 'banana')] * 2000)))"


@needs_weaver
@pytest.mark.watchdog(600)
@pytest.mark.parametrize("what", ["bash", "cpython"])
def test_what_is_refused_is_seldom_called(what: str) -> None:
    """Weft cannot count what it declined to weave, but callgrind can."""
    natively: Sequence[str | Path]
    command: Sequence[str | Path]
    if what == "bash":
        natively, command = ["bash", "-c", LOOP], ["bash", "-c", "echo ready; read"]
    else:
        natively = [sys.executable, "-c", SCRIPT]
        command = [sys.executable, PROGRAMS / "workload.py"]
    with Background(command) as background, weft.attach(background.pid) as session:
        coat = dress(weaver(session))
    refused = callgrind.share(callgrind.hits(natively), coat.refused, coat.modules)
    assert refused < FEW, f"{refused:.1%} of all calls: {coat}"


def need_suite() -> str:
    python = cpython.python_with_tests()
    if not python:
        pytest.skip("no interpreter here has its test suite")
    return python


@pytest.mark.watchdog(300)
def test_the_suite_of_cpython_is_read_right(tmp_path: Path) -> None:
    outcome = cpython.run(need_suite(), ["test_json"], tmp_path)
    assert len(outcome) > 100
    assert set(outcome.values()) <= {"ok", "skipped"}
    changed = {**outcome, next(iter(outcome)): "FAIL"}
    assert len(cpython.differences(outcome, changed)) == 1
    lost = dict(list(outcome.items())[1:])
    assert len(cpython.differences(outcome, lost)) == 1


@needs_weaver
@pytest.mark.watchdog(900)
@pytest.mark.parametrize("name", cpython.SHORT)
def test_the_suite_of_cpython(name: str, tmp_path: Path) -> None:
    """``python -m tests.cpython --long`` runs more of it."""
    python = need_suite()
    expected = cpython.run(python, [name], tmp_path)
    coats: list[Coat] = []
    woven = cpython.run(python, [name], tmp_path, lambda pid: coats.append(weave_all(pid)))
    assert not cpython.differences(expected, woven), str(coats[0])
