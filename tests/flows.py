"""What a program executes, told by Valgrind's callgrind: it counts each instruction."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.harness import need
from weft._native import ModuleSymbols, disassemble
from weft.errors import BadFile
from weft.model.flow import Block, CodeModule, Edge, EdgeKind, Flow
from weft.model.program import Module

_LONGEST = 15
_NOWHERE = "???"
_BRANCH = re.compile(r"(?:bnd |notrack )*(j\w+|call|ret\w*|loop\w*|syscall|hlt|ud2) *(0x\w+)?.*")
_COUNTS = re.compile(r"0x(\w+) \d+ (\d+)")
_JUMP = re.compile(r"(jump|jcnd)=(\d+)(?:/\d+)? 0x(\w+)")
_CALLS = re.compile(r"calls=(\d+) 0x(\w+)")


@dataclass
class _Found:
    """What callgrind has said: places are files and offsets."""

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    goes: Counter[tuple[str, int, str, int]] = field(default_factory=Counter)
    """How often control went from an instruction to another that does not follow it."""


def flow(command: Sequence[str | Path]) -> Flow:
    """Run a program to its end under callgrind: how often everything was executed."""
    need("valgrind")
    options = ["--dump-instr=yes", "--collect-jumps=yes", "--skip-plt=no"]
    plain = ["--compress-strings=no", "--compress-pos=no"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        subprocess.run(
            [
                *("valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}"),
                *(*options, *plain, *command),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            # Else each stub of the linker would go two ways.
            env={**os.environ, "LD_BIND_NOW": "1"},
        )
        found = _parse(out.read_text().splitlines())
    return _Maker(found, tuple(map(str, command))).make()


def _parse(lines: Iterable[str]) -> _Found:
    found = _Found()
    at = called = _NOWHERE
    jump: tuple[int, int] | None = None
    call: tuple[int, int] | None = None
    for line in lines:
        key, _, value = line.partition("=")
        if key == "ob":
            at = called = value
        elif key == "cob":
            called = value
        elif match := _CALLS.match(line):
            call = int(match[1]), int(match[2], 16)
        elif match := _JUMP.match(line):
            jump = int(match[2]), int(match[3], 16)
        elif line.startswith("0x"):
            offset = int(line.split()[0], 16)
            if call:
                found.goes[at, offset, called, call[1]] += call[0]
                call, called = None, at
            elif jump:
                found.goes[at, offset, at, jump[1]] += jump[0]
                jump = None
            elif match := _COUNTS.match(line):
                found.counts[at, offset] += int(match[2])
    return found


class _Maker:
    """Makes blocks of instructions, and edges between them."""

    def __init__(self, found: _Found, command: tuple[str, ...]) -> None:
        self.found = found
        self.command = command
        self.code: dict[str, Module] = {}
        self.biases: dict[str, int] = {}

    def make(self) -> Flow:
        self._place_stubs()
        paths = sorted({path for path, _ in self.found.counts if path != _NOWHERE})
        places = {path: place for place, path in enumerate(paths)}
        blocks = {path: self._blocks(path) for path in paths}
        starts = {path: {block.offset for block in blocks[path]} for path in paths}
        edges: list[Edge] = []
        for (path, source, to_path, target), count in sorted(self.found.goes.items()):
            kind = self._kind(path, source)
            if kind and to_path in starts and target in starts[to_path]:
                edges.append(Edge(places[path], source, places[to_path], target, kind, count))
        for path in paths:
            edges += self._falls(path, places[path], blocks[path])
        return Flow(
            modules=tuple(
                CodeModule(
                    path=path,
                    build_id=_build_id(path),
                    bias=self.biases.get(path, 0),
                    start=0,
                    size=max(block.offset + block.size for block in blocks[path]),
                    blocks=tuple(blocks[path]),
                )
                for path in paths
            ),
            edges=tuple(edges),
            is_counted=True,
            command=self.command,
        )

    def _place_stubs(self) -> None:
        """Find out which modules have the code that callgrind puts nowhere: it does so to stubs."""
        for path, source, to_path, target in self.found.goes:
            if to_path == _NOWHERE != path:
                _, text = self._instruction(path, source)
                match = _BRANCH.fullmatch(text)
                if match and match[2]:
                    self.biases[path] = target - int(match[2], 16)
        placed = _Found()
        for (path, offset), count in self.found.counts.items():
            placed.counts[self._placed(path, offset)] += count
        for (path, source, to_path, target), count in self.found.goes.items():
            way = (*self._placed(path, source), *self._placed(to_path, target))
            placed.goes[way] += count
        self.found = placed

    def _placed(self, path: str, offset: int) -> tuple[str, int]:
        if path == _NOWHERE:
            for module, bias in self.biases.items():
                if self._instruction(module, offset - bias)[0]:
                    return module, offset - bias
        return path, offset

    def _instruction(self, path: str, offset: int) -> tuple[int, str]:
        """Return the length and the text of an instruction; nothing where there is none."""
        code = self.code.setdefault(path, Module(path))
        try:
            for size in range(_LONGEST, 0, -1):
                if found := code.code(offset, size):
                    _, length, text = disassemble(found, offset)[0]
                    return length, text
        except BadFile:
            pass
        return 0, ""

    def _kind(self, path: str, offset: int) -> EdgeKind | None:
        match = _BRANCH.fullmatch(self._instruction(path, offset)[1])
        if not match or not match[2]:
            return None
        if match[1] in ("call", "jmp"):
            return "call" if match[1] == "call" else "jump"
        return "taken"

    def _blocks(self, path: str) -> list[Block]:
        counts = {offset: count for (at, offset), count in self.found.counts.items() if at == path}
        leaders = {target for _, _, at, target in self.found.goes if at == path}
        blocks: list[Block] = []
        previous = -1
        for offset in sorted(counts):
            length, _ = self._instruction(path, offset)
            last = blocks[-1] if blocks else None
            is_new = (
                last is None
                or last.offset + last.size != offset
                or offset in leaders
                or last.count != counts[offset]
                or _BRANCH.fullmatch(self._instruction(path, previous)[1])
            )
            if is_new or last is None:
                blocks.append(Block(offset, length, 1, counts[offset]))
            else:
                size, instructions = last.size + length, last.instructions + 1
                blocks[-1] = Block(last.offset, size, instructions, last.count)
            previous = offset
        return blocks

    def _falls(self, path: str, place: int, blocks: Sequence[Block]) -> Iterable[Edge]:
        gone: Counter[int] = Counter()
        for (at, source, _, _), count in self.found.goes.items():
            if at == path:
                gone[source] += count
        following = {block.offset for block in blocks}
        for block in blocks:
            end = block.offset + block.size
            listing = disassemble(self.code[path].code(block.offset, block.size), block.offset)
            last, _, text = listing[-1]
            match = _BRANCH.fullmatch(text)
            count = block.count
            if match:
                count = block.count - gone[last] if self._kind(path, last) == "taken" else 0
            if count > 0 and end in following:
                yield Edge(place, last, place, end, "fall", count)


def _build_id(path: str) -> str | None:
    return ModuleSymbols.open(path).build_id
