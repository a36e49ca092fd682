"""A focus without a path: the name of a function, looked up in the target."""

from __future__ import annotations

import json
import random
import re
import shlex
import string
import subprocess
import sys
import time
from pathlib import Path

import pytest

import weft
from tests.e2e.harness import need
from tests.toolchain import compile_program
from weft.base.names import closest
from weft.errors import InvalidArgument

WEFT = (sys.executable, "-m", "weft")
CALLS = 7


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("looked_up") / "looked_up"
    return compile_program("looked_up.cc", output, "-O1")


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WEFT, "run", *words], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("name", "path", "count"),
    [
        ("lone", "/Code/looked_up/lone", CALLS),
        ("looked_up/lone", "/Code/looked_up/lone", CALLS),
        ("shop::Till::close", "/Code/looked_up/_ZN4shop4Till5closeEv", 1),
        ("shop::Till::close()", "/Code/looked_up/_ZN4shop4Till5closeEv", 1),
        ("shop::Till::add(char)", "/Code/looked_up/_ZN4shop4Till3addEc", CALLS),
        ("shop::Till::operator[]", "/Code/looked_up/_ZN4shop4TillixEi", 1),
        ("libc.so.6/puts", "/Code/libc.so.6/puts", None),
    ],
)
@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_the_only_function_of_a_name_is_measured_and_noted(
    program: Path, tmp_path: Path, name: str, path: str, count: int | None, weaver: str
) -> None:
    out = tmp_path / "out.json"
    options = ["--weaver", weaver, "-o", str(out), "--format", "json"]
    done = run("-m", f"calls@{name}", *options, "--", program)
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"note: {name} is {path}\n"
    [total] = json.loads(out.read_text())["totals"]
    assert total["focus"] == path
    assert count is None or total["value"] == count


def test_other_parts_of_a_focus_stay(program: Path) -> None:
    done = run("-m", "calls@lone,/Thread/looked_up", "--", program)
    assert "note: lone is /Code/looked_up/lone\n" in done.stderr
    assert "/Code/looked_up/lone,/Thread/looked_up" in done.stderr


def test_what_several_modules_have_is_refused_and_listed(program: Path) -> None:
    """The program's own does not come first: libraries may call theirs."""
    done = run("-m", "calls@labs", "--", program)
    assert (done.returncode, done.stdout) == (2, "")
    assert "labs is the name of 2 functions" in done.stderr
    assert "/Code/looked_up/labs  at 0x" in done.stderr
    assert "/Code/libc.so.6/labs  at 0x" in done.stderr
    assert "try: name one of them by its path" in done.stderr


def test_overloads_are_listed_with_their_parameters(program: Path) -> None:
    done = run("-m", "calls@shop::Till::add", "--", program)
    assert done.returncode == 2
    assert "shop::Till::add is the name of 2 functions" in done.stderr
    assert "/Code/looked_up/_ZN4shop4Till3addEi  shop::Till::add(int)  at 0x" in done.stderr


def test_a_part_of_a_name_stands_for_nothing(program: Path) -> None:
    done = run("-m", "calls@close", "--", program)
    # The C library has one of exactly this name.
    assert "note: close is /Code/libc.so.6/close\n" in done.stderr
    done = run("-m", "calls@Till::close", "--", program)
    assert done.returncode == 2
    assert "no function is just Till::close, which is a part of 1 names" in done.stderr
    assert "/Code/looked_up/_ZN4shop4Till5closeEv  shop::Till::close()" in done.stderr


def test_a_name_of_nothing_is_refused_with_what_may_be_meant(program: Path) -> None:
    done = run("-m", "calls@lonee", "--", program)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the program has no function lonee" in done.stderr
    assert "did you mean lone" in done.stderr


def test_a_pattern_needs_a_module(program: Path) -> None:
    done = run("-m", "calls@lon*", "--", program)
    assert done.returncode == 2
    assert "/Code/looked_up/lon*, or /Code/*/lon* for all modules" in done.stderr
    done = run("-m", "calls@looked_up/lon*", "--", program)
    assert (done.returncode, done.stdout) == (0, run("-m", "calls", "--", program).stdout)


def test_in_python(program: Path) -> None:
    with weft.run([program], stdout=subprocess.DEVNULL) as session:
        with pytest.raises(InvalidArgument, match="has not loaded its libraries"):
            session.metric("calls", "lone")
        session.run_to_entry()
        metric = session.metric("calls", "lone")
        assert metric.focus == "/Code/looked_up/lone"
        assert session.wait() == 0
        assert metric.value == CALLS


def test_in_a_debugger(program: Path) -> None:
    """The libraries are not there when it starts; then it is looked up."""
    need("gdb")
    gdb = shlex.join(["-batch", "-nx", "-ex", "break lone", "-ex", "continue"])
    gdb += " " + shlex.join(["-ex", "monitor weft metric calls@main", "-ex", "delete"])
    gdb += " " + shlex.join(["-ex", "continue"])
    command = [*WEFT, "debug", "-m", "calls@lone", "--gdb-args", gdb, "--", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "note: main is /Code/looked_up/main\n" in done.stdout + done.stderr
    assert re.search(rf"^calls +/Code/looked_up/lone +{CALLS} ", done.stderr, re.MULTILINE)


def test_explain_looks_names_up(program: Path) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        command = [*WEFT, "explain", "calls@malloc", str(process.pid), "--emit", "points"]
        while "libc" not in Path(f"/proc/{process.pid}/maps").read_text():
            pass
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert "note: malloc is /Code/libc.so.6/malloc\n" in done.stderr
        assert "/Code/libc.so.6/malloc entry" in done.stdout
        process.kill()


def test_a_hundred_thousand_names_are_looked_through_quickly() -> None:
    chooser = random.Random(1)
    names = {
        "".join(chooser.choices(string.ascii_lowercase + "_", k=chooser.randint(4, 30)))
        for _ in range(100_000)
    }
    names.add("process_command")
    began = time.process_time()
    assert closest("proces_comand", names)[0] == "process_command"
    assert time.process_time() - began < 3
