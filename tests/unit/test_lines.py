"""The lines and the instructions of a module, held against binutils."""

from __future__ import annotations

import random
import re
import sys
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import need
from tests.toolchain import compile_program, run
from weft._native import FlowRows, ModuleSymbols, disassemble

TRANSFERS = {
    1: re.compile(r"j(?!mp)[a-z]+ |loop"),
    2: re.compile(r"(bnd )?jmp +[0-9a-f]"),
    3: re.compile(r"(bnd )?call +[0-9a-f]"),
    4: re.compile(r"(notrack )?(bnd )?jmp +\*"),
    5: re.compile(r"(bnd )?call +\*"),
    6: re.compile(r"(bnd |repz )?ret"),
}


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("optimised", ["-O0", "-O2"])
def test_lines_are_those_that_objdump_prints(tmp_path: Path, version: int, optimised: str) -> None:
    program = compile_program(
        "coverage/tree.c", tmp_path / "tree", f"-gdwarf-{version}", optimised, "-ffunction-sections"
    )
    need("objdump")
    files, *columns = ModuleSymbols.open(program, use_cache=False).line_table()
    offsets = memoryview(columns[0]).cast("Q")
    sizes, numbers, lines = (memoryview(column).cast("I") for column in columns[1:4])
    found = {
        offset: (Path(files[number]).name, line)
        for offset, size, number, line in zip(offsets, sizes, numbers, lines, strict=True)
        if size
    }
    told: dict[int, tuple[str, int]] = {}
    for text in run("objdump", "--dwarf=decodedline", program).splitlines():
        row = re.match(r"(\S+) +(\d+) +(0x[0-9a-f]+)", text)
        # Of several rows of one address the last one counts.
        if row:
            told[int(row[3], 16)] = row[1], int(row[2])
        end = re.match(r"\S+ +- +(0x[0-9a-f]+)", text)
        if end:
            told.pop(int(end[1], 16), None)
    assert found == told
    assert all(Path(file).is_absolute() for file in files)
    assert list(offsets) == sorted(offsets)


@pytest.mark.parametrize("name", ["coverage/tree.c", "libpython", "libc"])
def test_executed_blocks_are_written_where_the_whole_table_says(tmp_path: Path, name: str) -> None:
    """Random blocks: some overlap, begin within instructions, or have another number of them."""
    if name.endswith(".c"):
        path = str(compile_program(name, tmp_path / "tree", "-g", "-O2"))
    else:
        maps = Path("/proc/self/maps").read_text()
        found = re.search(rf"/\S*{name}\S*\.so\S*", maps)
        path = found[0] if found else sys.executable
    symbols = ModuleSymbols.open(path)
    files, *columns = symbols.line_table()
    offsets = memoryview(columns[0]).cast("Q")
    sizes, numbers, lines = (memoryview(column).cast("I") for column in columns[1:4])
    rows = [at for at, size in enumerate(sizes) if size and lines[at]]
    starts = [offsets[at] for at in rows]

    def line_of(offset: int) -> tuple[str, int] | None:
        at = bisect_right(starts, offset) - 1
        if at < 0 or offset >= starts[at] + sizes[rows[at]]:
            return None
        return files[numbers[rows[at]]], lines[rows[at]]

    chance = random.Random(name)
    functions = [row for row in symbols.rows(symbols.select()) if row[3] > 1]
    blocks = []
    for row in chance.choices(functions, k=2000):
        offset = row[2] + chance.randrange(row[3])
        size = min(chance.randrange(1, 40), row[2] + row[3] - offset)
        (code,) = symbols.code([(offset, size)])
        blocks.append((offset, size, len(disassemble(code, offset)) + (chance.random() < 0.1)))

    def written_of(blocks: Sequence[tuple[int, int, int]]) -> list[tuple[bytes, Any]]:
        flow = FlowRows.of([[(*block, 1) for block in blocks]], [])
        profile = flow.profile([(symbols, [0] * len(blocks))])
        return [row[5:] for row in profile.blocks(0, profile.block_count())]

    written = written_of(blocks)
    assert len(written) == len(blocks)
    for (offset, size, instructions), (code, found_lines) in zip(blocks, written, strict=True):
        (whole,) = symbols.code([(offset, size)])
        listing = disassemble(whole, offset)
        if not whole or len(listing) != instructions:
            assert (code, found_lines) == (b"", [])
            continue
        assert code == whole
        told: list[tuple[int, tuple[str, int] | None]] = []
        last: tuple[str, int] | None = None
        for at, _, _ in listing:
            if (line := line_of(at)) != last:
                told.append((at, line))
                last = line
        assert [(at, (file, line) if file else None) for at, file, line in found_lines] == told
    # Of one block, only the units are read that have its code.
    for place in chance.sample(range(len(blocks)), 20):
        assert written_of([blocks[place]]) == [written[place]]


def test_a_module_without_debug_information_has_no_lines(tmp_path: Path) -> None:
    program = compile_program("coverage/tree.c", tmp_path / "tree")
    assert ModuleSymbols.open(program).line_table() == ([], b"", b"", b"", b"", b"", b"")


def test_functions_that_the_linker_threw_away_have_no_lines(tmp_path: Path) -> None:
    options = ["-g", "-ffunction-sections", "-Wl,--gc-sections", "-Dunused_one"]
    source = tmp_path / "unused.c"
    source.write_text("int never(int x) {\n return x + 1;\n}\nint main(void) {\n return 0;\n}\n")
    program = tmp_path / "unused"
    run("gcc", *options, source, "-o", program)
    _, *columns = ModuleSymbols.open(program).line_table()
    assert set(memoryview(columns[3]).cast("I")) == {4, 5, 6}


def test_instructions_are_those_that_objdump_prints(tmp_path: Path) -> None:
    need("objdump")
    program = compile_program("coverage/tree.c", tmp_path / "tree", "-O2")
    symbols = ModuleSymbols.open(program)
    pieces = [(row[2], row[3]) for row in symbols.rows(symbols.select()) if row[3]]
    columns = symbols.instructions(pieces)
    offsets, targets = (memoryview(columns[place]).cast("Q") for place in (0, 3))
    told = {}
    for text in run("objdump", "-d", "--no-show-raw-insn", program).splitlines():
        row = re.match(r" +([0-9a-f]+):\t(.+)", text)
        if row:
            told[int(row[1], 16)] = row[2]
    assert len(offsets) > 100
    for offset, size, transfer, target in zip(offsets, *columns[1:3], targets, strict=True):
        text = told[offset]
        assert offset + size in told or transfer in (2, 4, 6) or offset + size in _ends(pieces)
        kinds = [kind for kind, pattern in TRANSFERS.items() if pattern.match(text)]
        assert kinds == ([transfer] if transfer else []), text
        if transfer in (1, 2, 3):
            assert int(text.split()[-2], 16) == target
        else:
            assert target == 0
    texts = symbols.disassemble(pieces)
    assert [at for piece in texts for at, _ in piece] == list(offsets)
    assert any(text.startswith("ret") for piece in texts for _, text in piece)


def _ends(pieces: list[tuple[int, int]]) -> set[int]:
    return {offset + size for offset, size in pieces}


def test_code_that_is_not_in_the_file_is_left_out(tmp_path: Path) -> None:
    program = compile_program("coverage/tree.c", tmp_path / "tree")
    symbols = ModuleSymbols.open(program)
    assert symbols.instructions([(1 << 40, 16)]) == (b"", b"", b"", b"")
    assert symbols.disassemble([(1 << 40, 16)]) == [[]]
