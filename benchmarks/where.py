"""Where the clone's overhead comes from: what each workload executes that costs more in a clone.

    python benchmarks/where.py [--only NAME...] [--rounds N] [--json FILE]

Each workload runs natively and from a clone in turns, best of some rounds; then once more with
exact counts of everything that is executed. The counts do not depend on the machine or on what it
does otherwise; the times do, with start-up and translation in them. For each 1,000 instructions the
table has those that are something else in a clone: returns, indirect calls and indirect jumps are
looked up, calls go by way of a thunk, jumps and branches lead to where the engine has put things,
system calls leave the clone. Then how often in a million the engine was asked where code is, bytes
of clone for each byte of code that was executed, and the part of the time that was spent in the
engine.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).parents[1]))

import weft
from benchmarks.clone import MORE, NATIVE, SOURCES, TABLE, Tool, Workload, once, parser_of
from tests.clone import cloned
from weft import _native
from weft.control.clone import CloneStats
from weft.model.flow import Flow
from weft.tools.profile.reader import profile

KINDS = (
    "returns",
    "calls",
    "indirect calls",
    "indirect jumps",
    "jumps",
    "branches",
    "system calls",
)
"""What is something else in a clone."""
PREFIXES = frozenset({"rep", "repne", "bnd", "notrack"})


@dataclass(frozen=True)
class Found:
    """What a workload executes, and what it costs."""

    workload: str
    native: float
    """Seconds."""
    clone: float
    instructions: int
    executed: dict[str, int]
    """How often, by kind."""
    code: int
    """Bytes of code that were executed at all."""
    stats: CloneStats
    lost: tuple[str, ...]
    """What is missing in the counts."""

    def per_thousand(self, kind: str) -> float:
        return 1000 * self.executed.get(kind, 0) / max(self.instructions, 1)


def kind_of(text: str) -> str:
    """What an instruction is, by its text; empty if it is the same in a clone."""
    name, *operands = (word for word in text.split() if word not in PREFIXES)
    is_direct = bool(operands) and operands[0].startswith("0x")
    if name == "ret":
        return "returns"
    if name == "call":
        return "calls" if is_direct else "indirect calls"
    if name == "jmp":
        return "jumps" if is_direct else "indirect jumps"
    if name == "syscall":
        return "system calls"
    return "branches" if name.startswith(("j", "loop")) else ""


def executed(flow: Flow) -> tuple[int, dict[str, int], int]:
    """The instructions that were executed, of which kinds, and the bytes that they have."""
    found = profile(flow)
    kinds: Counter[str] = Counter()
    size = 0
    for block in found.blocks:
        size += block.size
        if block.code and block.count:
            for _, _, text in _native.disassemble(block.code, block.offset):
                if kind := kind_of(text):
                    kinds[kind] += block.count
    return found.total, dict(kinds), size


def cloned_run(
    workload: Workload, folder: Path, records: Literal["nothing", "counts"]
) -> weft.Cloned:
    """Run a workload from a clone to its end."""
    words = shlex.split(workload.command(workload.factor).replace("{bench}", str(SOURCES)))
    with ExitStack() as opened:
        source = None
        if "<" in words:
            at = words.index("<")
            source = opened.enter_context((folder / words[at + 1]).open("rb"))
            del words[at:]
        if words[0].startswith("./"):
            words[0] = str(folder / words[0])
        output = opened.enter_context(tempfile.TemporaryFile())
        running = weft.run(
            words,
            weaver="clone",
            records=records,
            cwd=folder,
            stdin=source,
            stdout=output,
            stderr=output,
        )
        if running.wait():
            raise RuntimeError(f"{workload.name} has failed in a clone")
        return running


def measure(workload: Workload, rounds: int) -> Found:
    """Run a workload in all ways."""
    clone = Tool("weft", cloned())
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        folder = Path(directory)
        workload.prepare(folder, workload.factor)
        best = dict.fromkeys((NATIVE.name, clone.name), math.inf)
        for _ in range(rounds):
            for tool in (NATIVE, clone):
                _, seconds = once(workload, workload.factor, tool, folder, math.inf)
                best[tool.name] = min(best[tool.name], seconds)
        stats = cloned_run(workload, folder, "nothing").stats()
        counts = cloned_run(workload, folder, "counts")
        instructions, kinds, size = executed(counts.flow())
    return Found(
        workload.name,
        best[NATIVE.name],
        best[clone.name],
        instructions,
        kinds,
        size,
        stats,
        counts.lost(),
    )


def cells(found: Found) -> Iterator[str]:
    yield f"{found.clone / found.native:.2f}x"
    yield f"{found.instructions / 1e6:,.0f}M"
    for kind in KINDS:
        yield f"{found.per_thousand(kind):.2f}"
    yield f"{1e6 * found.stats.lookups / max(found.instructions, 1):.1f}"
    yield f"{found.stats.bytes / max(found.code, 1):.1f}"
    yield f"{found.stats.blocks:,}"
    yield f"{found.stats.agent_seconds / max(found.stats.seconds, 1e-9):.0%}"


HEAD = ("clone", "instr.", *KINDS, "look-ups per M", "grown", "blocks", "agent")


def main() -> None:
    options = parser_of(__doc__).parse_args()
    wanted = tuple(options.only or [""])
    print(f"| workload | {' | '.join(HEAD)} |")
    print(f"|---|{'---|' * len(HEAD)}")
    rows = []
    for workload in [*TABLE, *MORE]:
        if workload.name.startswith(wanted):
            found = measure(workload, options.rounds)
            rows.append(found)
            print(f"| {found.workload} | {' | '.join(cells(found))} |", flush=True)
            for text in found.lost:
                print(f"  missing: {text}", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
