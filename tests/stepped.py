"""Random snippets at random instructions of a program, held against one that is stepped through.

    setarch -R python -m tests.stepped ORACLE SEED COMMAND...

The program runs with the snippets in it, from a clone and with the patch weaver. Then
``crates/host/examples/stepped.rs`` executes it one instruction at a time, and interprets the
snippets. Nothing may be at random addresses, since the points are addresses; ``setarch -R`` sees to
that. What the kernel gives a program to be random with at its start is given to both. What depends
on what it asks for later is left out: it changes with that.
"""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TypeAlias

import weft
from weft.model.points import Point

SNIPPETS = 5
POINTS = 24
"""How many snippets each program gets, and how many points each of them."""
AT_RANDOM = 25
FILLS = [0x00, 0xFF, 0x35]
"""With these, every bit is another one at least once, and so are most pairs of bits."""
REGISTERS = ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi"]
REGISTERS += ["r8", "r9", "r10", "r12", "r13", "r14", "r15"]
"""Not ``r11``: system calls leave the flags there, with the one by which a program is stepped."""


class Maker:
    """Makes snippets with one counter."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def snippet(self) -> str:
        """A snippet on one line."""
        first, second = self.number(3), self.number(2)
        shape = self.chance.randrange(3)
        if shape == 0:
            return f"counter c; c += {first}"
        if shape == 1:
            return f"counter c; if {self.number(2)} > {self.number(1)} {{ c += {first} }}"
        condition = f"({self.number(2)}) & 1 == 0 && {self.number(1)} != 7"
        return f"counter c; let v = {second}; if {condition} {{ c += v }} else {{ c -= {first} }}"

    def number(self, depth: int) -> str:
        """An expression.

        Of what may be an address only the part within a page is the same. Memory is not read: what
        was never written, as much of a stack, has what the last one has left there.
        """
        if depth == 0:
            register = self.chance.choice(REGISTERS)
            leaves = [
                str(self.chance.randrange(-100, 5000)),
                f"(reg({register}) & 0xfff)",
                "(address & 0xfff)",
            ]
            return self.chance.choice(leaves)
        left, right = self.number(depth - 1), self.number(depth - 1)
        operator = self.chance.choice(["+", "-", "*", "&", "|", "^", "min", "max", "shr", "udiv"])
        if operator == "shr":
            return f"shr({left}, ({right}) & 7)"
        if operator.isalpha():
            return f"{operator}({left}, {right})"
        return f"({left} {operator} {right})"


def executed(command: list[str]) -> set[tuple[str, str]]:
    """The functions that a program enters, with their modules."""
    with weft.run(command, weaver="clone", is_held=True, stdout=subprocess.DEVNULL) as program:
        session = program.session
        modules = [f"/Code/{module}/*" for module in modules_of(session)]
        probe = session.insert(session.points(modules), "counter c; c += 1")
        program.wait()
        return {(p.module, p.function) for p, count in probe.values().items() if count}


def modules_of(session: weft.Session) -> list[str]:
    """The program and its C library."""
    program = Path(session.program()).name
    names = [module.name for module in session.modules()]
    return [name for name in names if name == program or name.startswith("libc.so")]


Snippets: TypeAlias = list[tuple[str, list[Point]]]
Values: TypeAlias = list[dict[Point, int]]


def chosen(
    session: weft.Session, functions: set[tuple[str, str]], chance: random.Random
) -> Snippets:
    """Random snippets, and random instructions of functions for each."""
    maker = Maker(chance)
    snippets = []
    for _ in range(SNIPPETS):
        some = chance.sample(sorted(functions), min(POINTS, len(functions)))
        paths = [f"/Code/{module}/{function}" for module, function in some]
        points = session.points(paths, "insn")
        snippets.append((maker.snippet(), chance.sample(points, min(POINTS, len(points)))))
    return snippets


def random_of(pid: int) -> int:
    """What the kernel has given a program to be random with."""
    vector = iter(struct.iter_unpack("QQ", Path(f"/proc/{pid}/auxv").read_bytes()))
    [place] = [value for kind, value in vector if kind == AT_RANDOM]
    with Path(f"/proc/{pid}/mem").open("rb") as memory:
        memory.seek(place)
        return int.from_bytes(memory.read(16), "little")


def by_clone(
    command: list[str], functions: set[tuple[str, str]], chance: random.Random
) -> tuple[int, Snippets, Values]:
    """What was random, snippets, and what they measure in a program that runs from a clone."""
    with weft.run(command, weaver="clone", is_held=True, stdout=subprocess.DEVNULL) as program:
        session = program.session
        snippets = chosen(session, functions, chance)
        probes = [session.insert(points, snippet) for snippet, points in snippets]
        given = random_of(program.pid)
        program.wait()
        assert not any(probe.refused for probe in probes)
        return given, snippets, [probe.values() for probe in probes]


def by_patch(command: list[str], snippets: Snippets) -> tuple[int, Values]:
    """What was random, and what snippets measure with the patch weaver, where they fit."""
    with weft.run(command, stdout=subprocess.DEVNULL) as session:
        session.run_to_entry()
        probes = [session.insert(points, snippet) for snippet, points in snippets]
        given = random_of(session.pid)
        session.wait()
        return given, [probe.values() for probe in probes]


def stepped(
    oracle: str, command: list[str], given: int, snippets: Snippets, fill: int
) -> list[int]:
    """What the same snippets measure in a program that is stepped through.

    ``fill`` is the byte that it gets from the kernel in place of random ones.
    """
    lines = [f"random {given}"]
    for snippet, points in snippets:
        lines.append(f"snippet {snippet}")
        lines += [f"point {point.address}" for point in points]
    with tempfile.NamedTemporaryFile("w", suffix=".points") as file:
        file.write("\n".join(lines))
        file.flush()
        done = subprocess.run(
            [oracle, file.name, str(fill), *command], stdout=subprocess.PIPE, check=True, text=True
        )
    return [int(line) for line in done.stdout.split()]


def main() -> None:
    """Compare, and print what came of it as JSON."""
    oracle, seed, *command = sys.argv[1:]
    chance = random.Random(f"{seed} {command}")
    given, snippets, cloned = by_clone(command, executed(command), chance)
    also_given, patched = by_patch(command, snippets)
    found: dict[str, object] = {}
    for weaver, number, values in [("clone", given, cloned), ("patch", also_given, patched)]:
        answers = [stepped(oracle, command, number, snippets, fill) for fill in FILLS]
        truths = [set(answer) for answer in zip(*answers, strict=True)]
        places = [
            (i, snippet, point) for i, (snippet, points) in enumerate(snippets) for point in points
        ]
        sure = [
            (snippet, point, values[i][point], truth)
            for (i, snippet, point), truth in zip(places, truths, strict=True)
            if len(truth) == 1 and point in values[i]
        ]
        wrong = [
            f"{point}: {value} instead of {truth} by `{snippet}`"
            for snippet, point, value, truth in sure
            if {value} != truth
        ]
        reached = sum(truth != {0} for *_, truth in sure)
        found[weaver] = {"compared": len(sure), "reached": reached, "wrong": wrong}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
