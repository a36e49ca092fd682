"""A name stands for what the program calls, also where the loader has chosen the code behind it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import weft
from tests.e2e.test_metrics_cli import total
from tests.e2e.test_metrics_cli import weft as run_weft
from weft import errors

Build = Callable[[str], Path]

TRUTH = {"memcpy": 1000, "memcpy@GLIBC_2.2.5": 300, "strlen": 700, "strstr": 200, "own": 500}
"""How often ``ifuncs.c`` calls each function when it is asked to."""


class Calling:
    """The program, which answers every letter."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process

    def say(self, letter: bytes) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(letter)
        self._process.stdin.flush()
        assert self._process.stdout.read(1) == letter


@contextmanager
def calling(program: Path) -> Iterator[Calling]:
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        assert process.stdout.read(1) == b"r"
        yield Calling(process)
        process.stdin.write(b"q")
        process.stdin.close()
        assert process.wait(timeout=60) == 7


def paths(link: str) -> dict[str, str]:
    """Return the paths of the functions in a program that was linked in some way."""
    own = f"ifuncs_{link}"
    library = own if link == "static" else "libc.so.6"
    names = [name for name in TRUTH if "@" not in name or link != "static"]
    return {name: f"/Code/{own if name == 'own' else library}/{name}" for name in names}


@pytest.mark.parametrize("link", ["lazy", "now", "static"])
@pytest.mark.parametrize("weaver", ["patch", "clone"])
@pytest.mark.parametrize("is_bound", [False, True])
def test_calls_are_those_of_the_program(
    link: str, weaver: str, is_bound: bool, build: Build
) -> None:
    with calling(build(f"ifuncs_{link}")) as program:
        if is_bound:
            program.say(b"c")
        with (
            weft.attach(program.pid, weaver="clone")
            if weaver == "clone"
            else weft.attach(program.pid)
        ) as attached:
            session = attached if isinstance(attached, weft.Session) else attached.session
            names = paths(link)
            calls = {name: session.metric("calls", path) for name, path in names.items()}
            probes = {
                name: session.insert(path, "counter n shared\nn += 1")
                for name, path in names.items()
            }
            program.say(b"c")
            expected = {name: TRUTH[name] for name in names}
            assert {name: metric.value for name, metric in calls.items()} == expected
            assert {name: probe.value() for name, probe in probes.items()} == expected
            shown = session.metrics.implementations()
            assert shown[names["own"]] == ("own_second",)
            if is_bound or link != "lazy":
                assert all(len(shown[path]) == 1 for path in shown), shown
            assert names.get("memcpy@GLIBC_2.2.5") not in shown


def test_one_liners_and_lists_mean_the_same(build: Build, tmp_path: Path) -> None:
    definition = """
        list copying is procedure { items { "memcpy", "own" }; }
        metric copies { base is counter {
          foreach func in copying append preInsn func.entry (* copies++; *)
        } }
    """
    program = build("ifuncs_now")
    with calling(program) as running, weft.attach(running.pid) as session:
        session.load_metrics(definition)
        copies = session.metric("copies")
        running.say(b"c")
        assert copies.value == TRUTH["memcpy"] + TRUTH["own"]
    one_liner = "entry /Code/libc.so.6/strlen { n++ }"
    file = tmp_path / "found.json"
    words = ("-e", one_liner, "--format", "json", "-o", file, "--", program)
    assert run_weft("run", *words, input="cq").returncode == 7
    # The C library calls it, too, when the program begins.
    assert TRUTH["strlen"] <= total(json.loads(file.read_text()), "n") < TRUTH["strlen"] + 100


def test_the_implementation_is_shown(build: Build) -> None:
    with calling(build("ifuncs_now")) as program:
        listed = run_weft("points", str(program.pid), "--function", "own")
        assert re.search(r"  own -> own_second$", listed.stdout, re.MULTILINE), listed.stdout
        found = run_weft("points", str(program.pid), "--function", "own", "--format", "json")
        modules = json.loads(found.stdout)["modules"]
        chosen = [module["implementations"] for module in modules if "implementations" in module]
        assert chosen == [{"own": ["own_second"]}]
        focus = "calls@/Code/ifuncs_now/own"
        measured = run_weft("attach", str(program.pid), "-m", focus, "--for", "0.1")
        assert "note: /Code/ifuncs_now/own is own_second\n" in measured.stderr


def test_what_cannot_be_told_is_refused(build: Build) -> None:
    with calling(build("ifuncs_lazy")) as program, weft.attach(program.pid) as session:
        # It asks the vDSO, and nobody has called it.
        for ask in (session.points, lambda path: session.metric("calls", path)):
            with pytest.raises(errors.InvalidArgument, match=r"not known what code .*/time is"):
                ask("/Code/libc.so.6/time")
