"""The code in files: what objdump finds there, and nothing where there is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.toolchain import compile_program, run
from weft._native import disassemble
from weft.errors import BadFile
from weft.model.program import Module


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("profiled.c", tmp_path_factory.mktemp("code") / "profiled", "-O1")


def test_code_is_what_objdump_finds(program: Path) -> None:
    module = Module(str(program))
    listed = re.findall(r"^ +(\w+):\t((?:\w\w )+)", run("objdump", "-d", program), re.MULTILINE)
    assert len(listed) > 100
    for offset, digits in listed:
        content = bytes.fromhex(digits)
        assert module.code(int(offset, 16), len(content)) == content


def test_instructions_are_those_of_objdump(program: Path) -> None:
    text = run("objdump", "-d", "-w", program)
    body = re.search(r"<leaf_of_700>:\n(.*?)\n\n", text, re.DOTALL)
    assert body is not None
    rows = re.findall(r"^ +(\w+):\t((?:\w\w )+)", body[1], re.MULTILINE)
    start, content = int(rows[0][0], 16), bytes.fromhex("".join(digits for _, digits in rows))
    found = disassemble(content, start)
    assert [offset for offset, _, _ in found] == [int(offset, 16) for offset, _ in rows]
    assert sum(size for _, size, _ in found) == len(content)
    assert found[-1][2] == "ret"
    assert any(re.fullmatch(r"jne 0x[0-9a-f]+", words) for _, _, words in found)


def test_there_is_no_code_elsewhere(program: Path) -> None:
    module = Module(str(program))
    assert module.code(0, 4) == b""
    assert module.code(1 << 40, 4) == b""
    assert module.code(0x1000, 1 << 30) == b""


@pytest.mark.parametrize("size", [0, 20, 64, 70])
def test_a_file_that_is_cut_off_has_no_code_and_says_why(
    program: Path, tmp_path: Path, size: int
) -> None:
    cut = tmp_path / "cut"
    cut.write_bytes(program.read_bytes()[:size])
    module = Module(str(cut))
    if size < 64:
        with pytest.raises(BadFile):
            module.code(0x1000, 1)
    else:
        assert module.code(0x1000, 1) == b""
        assert "the program headers lie outside the file" in module.problems


def test_what_is_no_program_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("a" * 1000)
    for path in (text, tmp_path / "nothing"):
        with pytest.raises(BadFile):
            Module(str(path)).code(0, 1)
