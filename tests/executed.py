"""What of a program was executed, told by Valgrind's callgrind, instruction by instruction."""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.e2e.harness import need
from weft import _native
from weft.model.flow import Block, CodeModule, Edge, EdgeKind, Flow

Way: TypeAlias = tuple[int, str, int]
"""From an instruction, to a module, to an instruction of it."""

_CONDITIONAL, _JUMP, _CALL = 1, 2, 3
"""The ways of transfer that have edges: see ``ModuleSymbols.instructions``."""


@dataclass
class _Executed:
    """What callgrind says of one file."""

    counts: Counter[int] = field(default_factory=Counter)
    jumps: Counter[Way] = field(default_factory=Counter)
    branches: Counter[Way] = field(default_factory=Counter)
    calls: Counter[Way] = field(default_factory=Counter)


def flow(command: Sequence[str | Path], *, only: Iterable[str] | None = None) -> Flow:
    """Run a program to its end under callgrind, and return what it has executed.

    ``only`` names the files to look at; without it, all that are files are.
    """
    need("valgrind")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        wanted = ["--dump-instr=yes", "--collect-jumps=yes", "--skip-plt=no"]
        wanted += ["--compress-strings=no", "--compress-pos=no", f"--callgrind-out-file={out}"]
        subprocess.run(
            ["valgrind", "--quiet", "--tool=callgrind", *wanted, *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        executed = _parse(out.read_text(errors="surrogateescape").splitlines())
    chosen = None if only is None else set(only)
    paths = [path for path in sorted(executed) if chosen is None or path in chosen]
    paths = [path for path in paths if Path(path).is_file()]
    return _flow({path: executed[path] for path in paths}, tuple(map(str, command)))


def _parse(lines: Iterable[str]) -> dict[str, _Executed]:
    """Read callgrind's own format."""
    found: dict[str, _Executed] = {}
    module = called_module = ""
    rest = iter(lines)
    for line in rest:
        key, _, value = line.partition("=")
        if key == "ob":
            module = called_module = value
            found.setdefault(module, _Executed())
        elif key == "cob":
            called_module = value
        elif key in ("calls", "jump", "jcnd"):
            count, target = value.split()[:2]
            source = int(next(rest).split()[0], 16)
            number = int(count.split("/")[0])
            counter = found[module].calls if key == "calls" else found[module].jumps
            # A branch that leaves its module is said to be one to a place in its own.
            where = called_module if key == "calls" else module
            if key == "jcnd":
                counter = found[module].branches
            counter[source, where, int(target, 16)] += number
            called_module = module
        elif line.startswith("0x"):
            address, _, cost = line.split()
            found[module].counts[int(address, 16)] += int(cost)
    return found


def _flow(executed: Mapping[str, _Executed], command: tuple[str, ...]) -> Flow:
    places = {path: index for index, path in enumerate(executed)}
    modules: list[CodeModule] = []
    edges: list[Edge] = []
    for path, seen in executed.items():
        symbols = _native.ModuleSymbols.open(path)
        addresses = sorted(seen.counts)
        # One instruction is at most as long as this; each is decoded by itself.
        columns = symbols.instructions([(address, 15) for address in addresses])
        offsets, sizes, transfers = memoryview(columns[0]).cast("Q"), columns[1], columns[2]
        shapes: dict[int, tuple[int, int]] = {}
        for offset, size, transfer in zip(offsets, sizes, transfers, strict=True):
            # What the fifteen bytes before may have cut short comes again, whole.
            if offset in seen.counts:
                shapes[offset] = size, transfer
        _count_repeated_once(symbols, seen, shapes)
        own, blocks = _blocks(places[path], seen, shapes)
        for (source, to, target), count in seen.calls.items():
            if shapes[source][1] == _CALL and to in places:
                own.append(Edge(places[path], source, places[to], target, "call", count))
        edges += own
        start = addresses[0] if addresses else 0
        end = addresses[-1] + 15 if addresses else 0
        build_id = symbols.build_id
        modules.append(CodeModule(path, build_id, 0, start, end - start, tuple(blocks)))
    return Flow(tuple(modules), tuple(edges), is_counted=True, command=command)


def _count_repeated_once(
    symbols: _native.ModuleSymbols, seen: _Executed, shapes: Mapping[int, tuple[int, int]]
) -> None:
    """Callgrind counts an instruction that repeats itself as often as it does."""
    texts = symbols.disassemble([(at, size) for at, (size, _) in shapes.items()])
    for (at, text), *_ in texts:
        if text.startswith("rep"):
            # It is executed as often as the next one, unless that is come to from elsewhere.
            after = at + shapes[at][0]
            seen.counts[at] = min(seen.counts[at], seen.counts[after] or 1)


def _blocks(
    place: int, seen: _Executed, shapes: Mapping[int, tuple[int, int]]
) -> tuple[list[Edge], list[Block]]:
    """The blocks of one module, and the ways between them."""
    edges: list[Edge] = []

    def add(source: int, target: int, kind: EdgeKind, count: int) -> None:
        if count:
            edges.append(Edge(place, source, place, target, kind, count))

    targets = {way[2] for way in (*seen.jumps, *seen.branches)}
    taken: Counter[int] = Counter()
    for (source, _, target), count in seen.branches.items():
        if shapes[source][1] == _CONDITIONAL:
            add(source, target, "taken", count)
            taken[source] += count
    for (source, _, target), count in seen.jumps.items():
        if shapes[source][1] == _JUMP:
            add(source, target, "jump", count)

    blocks: list[Block] = []
    addresses = sorted(shapes)
    begin, number = -1, 0
    for at, after in zip(addresses, [*addresses[1:], -1], strict=True):
        size, transfer = shapes[at]
        if begin < 0:
            begin, number = at, 0
        number += 1
        end, count = at + size, seen.counts[at]
        is_last = transfer != 0 or after != end or after in targets or seen.counts[after] != count
        if is_last:
            blocks.append(Block(begin, end - begin, number, count))
            begin = -1
            if transfer == _CONDITIONAL:
                add(at, end, "fall", count - taken[at])
            elif transfer == 0 and after == end:
                add(at, end, "fall", min(count, seen.counts[after]))
    return edges, blocks
