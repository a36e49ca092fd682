"""Loads and stores: each with the address and the size that the program itself knows."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clone import session_of
from tests.toolchain import compile_program, run
from weft import errors

RECORDED = """
ring seen(is_store, where, bytes) 256
at load { emit seen(0, access.address, access.size) }
at store { emit seen(1, access.address, access.size) }
"""


class Program:
    """A program that says what it has read and written, each time that it is asked."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process
        self._line()

    def touch(self) -> list[tuple[int, int, int]]:
        assert self._process.stdin
        print(file=self._process.stdin, flush=True)
        seen = []
        while (line := self._line()) != "end":
            kind, address, size = line.split()
            seen.append((int(kind == "store"), int(address), int(size)))
        return seen

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    path = compile_program("accesses.c", tmp_path / "accesses", "-O1")
    with subprocess.Popen(
        [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Program(process)
        finally:
            process.kill()


@pytest.mark.parametrize("weaver", ["clone", "patch"])
def test_addresses_are_those_that_the_program_knows(weaver: str, program: Program) -> None:
    with session_of(program.pid, weaver) as session:
        probe = session.insert("/Code/accesses/touch", RECORDED)
        refused = {(refusal.point.address, refusal.point.kind) for refusal in probe.refused}
        # What is too tight for the patch weaver is not for the clone.
        assert not refused or weaver == "patch"
        expected = program.touch()
        seen = probe.records()
        if refused:
            assert len(seen) == len(expected) - len(refused)
            assert set(seen) <= set(expected)
        else:
            assert seen == expected
        probe.remove()
        program.touch()
        assert probe.records() == []


def test_a_point_for_each_access(program: Program) -> None:
    with session_of(program.pid, "clone") as session:
        loads = session.points("/Code/accesses/touch", "load")
        compared = [point for point in loads if point.target == 1]
        # The second string that `cmpsb` reads.
        assert len(compared) == 1
        probe = session.insert(loads, "counter hits\nhits += 1")
        program.touch()
        assert set(probe.values().values()) == {1}


GATHERS = """
#include <stdio.h>
void gather(void);
__asm__(".text; .globl gather; .type gather, @function\\n"
        "gather: vpgatherdd %ymm2, (%rdi, %ymm1, 4), %ymm0; ret\\n.size gather, .-gather\\n");
int main(int count, char **words) {
    puts("ready");
    fflush(stdout);
    getchar();
    if (count > 1) gather();
    return 0;
}
"""


def test_several_addresses_are_refused(tmp_path: Path) -> None:
    (tmp_path / "gathers.c").write_text(GATHERS)
    path = tmp_path / "gathers"
    run("gcc", "-O1", tmp_path / "gathers.c", "-o", path)
    with subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        with session_of(process.pid, "clone") as session:
            probe = session.insert("/Code/gathers/gather", RECORDED)
            [refusal] = probe.refused
            assert refusal.point.kind == "load" and "several addresses" in refusal.reason
        process.communicate(b"\n")
    assert process.returncode == 0


def test_words_of_accesses_are_refused_elsewhere(program: Program) -> None:
    with session_of(program.pid, "clone") as session:
        with pytest.raises(errors.BadSnippet, match="no access to memory at entry"):
            session.insert("/Code/accesses/touch", "counter c; at entry { c += access.size }")
        with pytest.raises(errors.BadSnippet, match="is not a name"):
            session.insert("/Code/accesses/touch", "counter a.b; a.b += 1")
