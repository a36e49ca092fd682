"""Some of a function's points: loads, stores, loops and more; and points that nobody sees."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.e2e.harness import eventually
from tests.toolchain import compile_program, run

COUNTER = "counter hits\nhits += 1"


class Program:
    """A program whose instructions are known, at rest until it is asked."""

    def __init__(self, process: subprocess.Popen[str], path: Path) -> None:
        self.pid = process.pid
        self.path = path
        self._process = process
        self._line()

    def ask(self, elements: int) -> str:
        assert self._process.stdin
        print(elements, file=self._process.stdin, flush=True)
        return self._line()

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("chosen.c", tmp_path_factory.mktemp("chosen") / "chosen", "-O1")


@pytest.fixture
def program(path: Path) -> Iterator[Program]:
    with subprocess.Popen(
        [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Program(process, path)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("function", "kind", "base", "hits"),
    [
        ("adds", "loads", "insn", [100]),
        ("adds", "stores", "insn", []),
        ("adds", "syscalls", "insn", []),
        ("adds", "loops", "block", [100]),
        ("fills", "loads", "insn", []),
        ("fills", "stores", "insn", [100]),
        ("fills", "loops", "block", [100]),
        ("doubles", "loads", "insn", [200]),
        ("doubles", "stores", "insn", [200]),
        ("doubles", "loops", "block", [100, 200]),
        ("asks", "loads", "insn", []),
        ("asks", "syscalls", "insn", [2]),
        ("asks", "loops", "block", []),
        ("adds", "taken", "edge", [99]),
        ("doubles", "taken", "edge", [100, 99]),
        ("asks", "taken", "edge", []),
        ("asks", "returns", "exit", [2]),
        ("passes", "returns", "exit", []),
    ],
)
def test_chosen_points(
    program: Program,
    function: str,
    kind: weft.PointSelection,
    base: weft.PointKind,
    hits: list[int],
) -> None:
    with weft.attach(program.pid) as session:
        points = session.points(f"/Code/chosen/{function}", kind)
        assert [point.kind for point in points] == [base] * len(hits)
        assert set(points) <= set(session.points(f"/Code/chosen/{function}", base))
        if not points:
            return
        expected = program.ask(100)
        probe = session.insert(points, COUNTER)
        assert probe.refused == ()
        assert program.ask(100) == expected
        assert [probe.values()[point] for point in points] == hits


def test_what_is_neither_load_nor_store(program: Program) -> None:
    listing = run("objdump", "-d", "--no-show-raw-insn", program.path)
    words = {}
    for line in listing.splitlines():
        address, tab, text = line.strip().partition(":\t")
        if tab and text.split():
            words[int(address, 16)] = text.split()[0]
    with weft.attach(program.pid) as session:
        (module,) = (module for module in session.modules() if module.name == "chosen")
        for kind in ("loads", "stores"):
            for point in session.points("/Code/chosen/*", kind):
                word = words[point.address - module.bias]
                assert not word.startswith(("push", "pop", "call", "ret", "lea", "nop", "leave"))


def test_points_that_nobody_sees(program: Program) -> None:
    with weft.attach(program.pid) as session:
        (jump,) = session.uncertain("/Code/chosen/strays")
        assert (jump.kind, jump.function) == ("insn", "strays")
        assert session.read(jump.address, 2) == b"\xff\xe0"
        assert session.uncertain("/Code/chosen/strays", "entry") == []
        assert session.uncertain("/Code/chosen/adds", "block") == []
        both = "counter hits\nat entry { hits += 1 }\nat exit { hits += 1 }"
        probe = session.insert("/Code/chosen/strays", both)
        assert probe.uncertain == (jump,)
        assert session.insert("/Code/chosen/strays", COUNTER).uncertain == ()
        assert session.refresh() == []
        assert probe.uncertain == (jump,)


def test_no_such_points(program: Program) -> None:
    names = "loads, stores, syscalls, loops, taken, returns"
    with (
        weft.attach(program.pid) as session,
        pytest.raises(weft.errors.InvalidArgument, match=names),
    ):
        session.points("/Code/chosen/adds", "loop")  # type: ignore[arg-type]


def test_a_system_call_in_which_a_thread_sleeps() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        assert cat.stdin is not None
        assert cat.stdout is not None
        try:
            eventually(lambda: sleeps_in_read(cat.pid))
            with weft.attach(cat.pid) as session:
                points = session.points("/Code/libc.so.6/read", "syscalls")
                for count in range(1, 4):
                    # It sleeps in the instruction when this is woven, and when it is taken out.
                    probe = session.insert(points, "counter calls shared; calls += 1")
                    assert not probe.refused
                    assert probe.value() == 0
                    cat.stdin.write(b"%d\n" % count)
                    cat.stdin.flush()
                    assert cat.stdout.readline() == b"%d\n" % count
                    eventually(lambda: sleeps_in_read(cat.pid))
                    assert probe.value() == 1
                    other = session.insert(points, "counter calls shared; calls += 1")
                    probe.remove()
                    other.remove()
                session.insert(points, "counter calls shared; calls += 1")
            cat.stdin.write(b"bye\n")
            cat.stdin.close()
            assert cat.stdout.readline() == b"bye\n"
            assert cat.wait(10) == 0
        finally:
            cat.kill()


def sleeps_in_read(pid: int) -> bool:
    return Path(f"/proc/{pid}/syscall").read_text().startswith("0 ")
