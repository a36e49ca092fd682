"""A refusal names what the kernel, or the program, has forbidden, and what to do then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

import weft
from tests.e2e.harness import Background
from weft.errors import WeftError

Build = Callable[[str], Path]


def restricted(build: Build, what: str) -> Background:
    """Start the program that gives something up, if that can be given up here.

    A kernel may be too old for it (PR_SET_MDWE came with 6.3), or a processor unable to have cpuid
    fault.
    """
    command: list[str | Path] = [build("restricted"), what]
    tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if tried.stdout == "cannot\n":
        pytest.skip(f"{what} cannot be given up here")
    return Background(command)


@pytest.mark.parametrize(
    ("what", "weaver", "why", "advice"),
    [
        ("mdwe", "clone", "PR_SET_MDWE", "--weaver patch"),
        ("cpuid", "patch", "cpuid", "--weaver clone"),
        ("descriptors", "patch", "Too many open files", "--nofile"),
        ("descriptors", "clone", "Too many open files", "--nofile"),
    ],
)
def test_what_a_program_has_given_up_is_named(
    build: Build, what: str, weaver: Literal["patch", "clone"], why: str, advice: str
) -> None:
    with restricted(build, what) as program:
        with pytest.raises(WeftError) as error:
            weft.attach(program.pid, weaver=weaver)
        assert why in str(error.value.why) and advice in str(error.value.advice)
        assert "trip" not in str(error.value)
        assert program.finish() == (0, "ready\n")


@pytest.mark.parametrize(("what", "weaver"), [("mdwe", "patch"), ("cpuid", "clone")])
def test_the_advice_is_right(build: Build, what: str, weaver: Literal["patch", "clone"]) -> None:
    with restricted(build, what) as program:
        attached = weft.attach(program.pid, weaver=weaver)
        with attached:
            session = attached.session if isinstance(attached, weft.Cloned) else attached
            calls = session.metric("calls", "/Code/libc.so.6/exit")
            assert program.finish() == (0, "ready\n")
            session.metrics.sample()
            assert calls.value == 1


def test_too_few_descriptors_of_weft_are_named(tmp_path: Path) -> None:
    command = f"ulimit -n 8; exec {sys.executable} -m weft run -m calls -- true"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode != 0
    assert "Too many open files" in done.stderr and "ulimit -n 256" in done.stderr
