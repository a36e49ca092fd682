"""How long it takes to put a probe into very many functions, and to take it out again.

    python benchmarks/scale.py [NUMBER ...]

In a generated program of 1,000, 10,000 and 50,000 functions that works all the while, and in every
function of node: the time to find the points, to insert and to remove, how long the program stood
still (what the tool says, and the longest time for which a busy thread of the program did not run),
how its memory grew, and whether all of its code is as it was in the end. Frida beside it when it is
installed, with a C probe, as far as it survives.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import weft

PROGRAMS = Path(__file__).parent.parent / "tests" / "programs"
NUMBERS = [1000, 10_000, 50_000]
FRIDA_LIMIT = 10_000
BATCHES = 3
PAGE = 4096

# Shapes as compilers make them: each adds one to its argument.
SHAPES = [
    "lea 1(%rdi), %rax\n ret",
    "push %rbx\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbx, 0\n mov %rdi, %rbx\n"
    " lea 1(%rbx), %rax\n pop %rbx\n .cfi_adjust_cfa_offset -8\n ret",
    "sub $24, %rsp\n .cfi_adjust_cfa_offset 24\n mov %rdi, 8(%rsp)\n mov 8(%rsp), %rax\n"
    " add $1, %rax\n add $24, %rsp\n .cfi_adjust_cfa_offset -24\n ret",
    "mov %rdi, %rax\n test %rax, %rax\n js 1f\n inc %rax\n ret\n1: add $1, %rax\n ret",
]

T = TypeVar("T")


class Probe(Protocol):
    """What is asked of a probe here."""

    refused: Sequence[object]
    tactics: dict[str, int]

    def value(self, name: str) -> int: ...
    def remove(self) -> None: ...


class Weaver(Protocol):
    """What is asked of a session here."""

    def points(self, pattern: str, kind: str = "entry") -> list[Any]: ...
    def insert(self, points: list[Any], snippet: str) -> Probe: ...


def generate(folder: Path, number: int) -> Path:
    """Write a program of so many functions, and compile it."""
    functions = []
    for i in range(number):
        name, body = f"f_{i}", SHAPES[i % len(SHAPES)]
        functions.append(
            f".p2align 4\n.globl {name}\n.type {name}, @function\n{name}: .cfi_startproc\n {body}\n"
            f".cfi_endproc\n.size {name}, .-{name}\n"
        )
    table = "".join(f".quad f_{i}\n" for i in range(number))
    source, out = folder / f"many_{number}.s", folder / f"many_{number}"
    source.write_text(
        f'.text\n{"".join(functions)}.section .data.rel.ro, "aw"\n.globl many_functions\n'
        f"many_functions:\n{table}.globl many_number\nmany_number: .quad {number}\n"
        '.section .note.GNU-stack, ""\n'
    )
    subprocess.run(
        ["gcc", "-O2", "-g", "-pthread", "-o", out, PROGRAMS / "many.c", source], check=True
    )
    return out


class Program:
    """A running program that answers lines with lines."""

    def __init__(self, command: list[str | Path]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self.line()

    def line(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the program ended with {self._process.wait()}")
        return line

    def ask(self, command: str) -> str:
        assert self._process.stdin
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self.line()

    def finish(self) -> int:
        self._process.communicate()
        return self._process.returncode

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def running(command: list[str | Path]) -> Iterator[Program]:
    program = Program(command)
    try:
        yield program
    finally:
        program.kill()


def memory(pid: int) -> float:
    """Return the megabytes of a process that are its own share."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the kernel does not say")


class Code:
    """The code of a process that comes from files, page by page, as it is now.

    Code that a compiler makes as it goes has no file, and is never the same.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._pages: dict[int, bytes] = {}
        for start, end in self._ranges():
            self._pages.update(self._read(start, end))

    def differences(self) -> str:
        """Return in words what has become of it."""
        differ = sum(
            self._read(page, page + PAGE)[page] != digest for page, digest in self._pages.items()
        )
        new = sum(
            page not in self._pages
            for start, end in self._ranges()
            for page in range(start, end, PAGE)
        )
        return f"{differ} pages differ, {new} are new" if differ or new else "as it was"

    def _ranges(self) -> Iterator[tuple[int, int]]:
        for line in Path(f"/proc/{self._pid}/maps").read_text().splitlines():
            words = line.split()
            if "x" in words[1] and len(words) > 5 and words[5] != "[vsyscall]":
                start, end = (int(word, 16) for word in words[0].split("-"))
                yield start, end

    def _read(self, start: int, end: int) -> dict[int, bytes]:
        with Path(f"/proc/{self._pid}/mem").open("rb", buffering=0) as file:
            found = {}
            file.seek(start)
            for page in range(start, end, PAGE):
                found[page] = hashlib.sha256(file.read(PAGE)).digest()
            return found


def timed(action: Callable[[], T]) -> tuple[T, float]:
    begin = time.perf_counter()
    result = action()
    return result, time.perf_counter() - begin


def row(*cells: object) -> None:
    widths = (22, 9, 9, 9, 9, 10, 9, 9, 9)
    print(
        *(f"{cell!s:>{w}}" for cell, w in zip(cells, widths, strict=False)), *cells[9:], flush=True
    )


def heading() -> None:
    row("tool and program", "points", "find s", "insert s", "still ms", "longest ms", "remove s")
    row("", "", "", "", "", "gap", "", "MB more", "MB left", " code in the end")


def still(session: weft.Session, before: int) -> float:
    """Return for how many milliseconds the program stood still since there were so many pauses."""
    return 1000 * sum(pause.seconds for pause in session.pauses()[before:])


def weave(name: str, program: Program, modules: list[str], functions: str, calls: bool) -> None:
    """Probe functions of some modules, and print what came of it."""
    code_before, memory_before = Code(program.pid), memory(program.pid)
    session = weft.attach(program.pid)
    weaver = cast(Weaver, session)
    points, find = timed(
        lambda: [p for module in modules for p in weaver.points(f"/Code/{module}/{functions}")]
    )
    if calls:
        program.ask("go")
        program.ask("gap")
    pauses = len(session.pauses())
    probe, insert = timed(lambda: weaver.insert(points, "counter calls\ncalls += 1"))
    stood = still(session, pauses)
    gap = "-"
    if calls:
        gap = f"{int(program.ask('gap')) / 1e6:.1f}"
        program.ask("rest")
        early = probe.value("calls")
        program.ask(f"batch {BATCHES}")
        hits = probe.value("calls") - early
        expected = BATCHES * (len(points) - len(probe.refused))
        if hits != expected:
            print(f"! {hits} hits, and not {expected}")
    memory_with = memory(program.pid)
    _, remove = timed(probe.remove)
    session.detach()
    if calls:
        program.ask("batch 1")
    row(
        name,
        len(points),
        f"{find:.2f}",
        f"{insert:.2f}",
        f"{stood:.1f}",
        gap,
        f"{remove:.2f}",
        f"{memory_with - memory_before:.1f}",
        f"{memory(program.pid) - memory_before:.1f}",
        code_before.differences(),
    )
    print(f"{'':22} {len(probe.refused)} refused; {probe.tactics}")


FRIDA = """
const counter = Memory.alloc(8);
const module = new CModule('extern long counter; void enter(void *context) { counter++; }',
    { counter });
let points = [];
rpc.exports = {
    find() {
        points = Process.mainModule.enumerateSymbols()
            .filter(symbol => symbol.name.startsWith('f_')).map(symbol => symbol.address);
        return points.length;
    },
    insert() { for (const point of points) Interceptor.attach(point, module.enter);
               Interceptor.flush(); },
    remove() { Interceptor.detachAll(); Interceptor.flush(); },
    count: () => counter.readU64().toNumber(),
};
"""


def by_frida(name: str, program: Program) -> None:
    frida = importlib.import_module("frida")
    code_before, memory_before = Code(program.pid), memory(program.pid)
    session = frida.attach(program.pid)
    script = session.create_script(FRIDA)
    script.load()
    remote = script.exports_sync
    points, find = timed(remote.find)
    program.ask("go")
    program.ask("gap")
    _, insert = timed(remote.insert)
    gap = int(program.ask("gap")) / 1e6
    program.ask("rest")
    early = remote.count()
    program.ask(f"batch {BATCHES}")
    hits = remote.count() - early
    if hits != BATCHES * points:
        print(f"! {hits} hits, and not {BATCHES * points}")
    memory_with = memory(program.pid)
    _, remove = timed(remote.remove)
    session.detach()
    # It takes itself away after it has said that it has.
    time.sleep(1)
    program.ask("batch 1")
    row(
        name,
        points,
        f"{find:.2f}",
        f"{insert:.2f}",
        "-",
        f"{gap:.1f}",
        f"{remove:.2f}",
        f"{memory_with - memory_before:.1f}",
        f"{memory(program.pid) - memory_before:.1f}",
        code_before.differences(),
    )


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:]] or NUMBERS
    can_weave = hasattr(weft.Session, "insert")
    if not can_weave:
        print("this build of weft cannot weave: its peers alone")
    heading()
    with tempfile.TemporaryDirectory() as directory:
        for number in numbers:
            path = generate(Path(directory), number)
            if can_weave:
                with running([path, "1"]) as program:
                    weave(f"weft, {number}", program, [path.name], "f_*", calls=True)
            if number <= FRIDA_LIMIT and importlib.util.find_spec("frida"):
                with running([path, "1"]) as program:
                    try:
                        by_frida(f"Frida, {number}", program)
                    except Exception as error:  # Whatever its connection may break with.
                        row(f"Frida, {number}", f"   {type(error).__name__}: {error}")
    if can_weave and shutil.which("node"):
        with running(["node", PROGRAMS / "workload.js"]) as program:
            libraries = [Path(line.split()[-1]).name for line in maps(program.pid)]
            modules = sorted({name for name in libraries if name.startswith(("node", "libnode"))})
            weave("weft, node", program, modules, "*", calls=False)
            if (ended := program.finish()) != 7:
                print(f"! node ended with {ended}")


def maps(pid: int) -> list[str]:
    """Return the lines of a memory map that name a file with code."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [line for line in lines if "r-xp" in line and "/" in line]


if __name__ == "__main__":
    main()
