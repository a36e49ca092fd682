"""Snippets that call functions of the program."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.e2e.harness import eventually
from tests.toolchain import compile_program

pytestmark = pytest.mark.skipif(
    " avx " not in Path("/proc/cpuinfo").read_text(), reason="the processor has no AVX"
)


class Program:
    """A program that answers when it is asked, and sleeps until then."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process
        self.wait()

    def wait(self) -> None:
        """Wait until it sleeps."""
        state = Path(f"/proc/{self.pid}/syscall")
        eventually(lambda: state.read_text().startswith("0 "))

    def ask(self) -> str:
        """Return its answer once it sleeps again."""
        assert self._process.stdin
        assert self._process.stdout
        print(file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        self.wait()
        return answer


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    path = compile_program("called.c", tmp_path / "called", "-O2")
    with subprocess.Popen(
        [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Program(process)
        finally:
            process.kill()


def snippet(session: weft.Session) -> str:
    (called,) = session.points("/Code/called/clears")
    return f"counter sum\nsum += call {called.address:#x}()"


def test_vector_registers_are_kept_around_a_call(program: Program) -> None:
    with weft.attach(program.pid) as session:
        probe = session.insert("/Code/called/wide", snippet(session))
        for times in range(1, 4):
            assert program.ask() == "4321\n"
            assert probe.value() == 7 * times


def test_old_words_on_a_stack_are_nobody_inside(program: Program) -> None:
    with weft.attach(program.pid) as session:
        for _ in range(3):
            probe = session.insert("/Code/called/wide", snippet(session))
            assert program.ask() == "4321\n"
            probe.remove()
        session.insert("/Code/called/wide", snippet(session))
        assert program.ask() == "4321\n"
    assert "weft" not in Path(f"/proc/{program.pid}/maps").read_text()
    assert program.ask() == "4321\n"
