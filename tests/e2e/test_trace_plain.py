"""What a trace says that a program touches is what it touches when it is executed step by step."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import weft.trace
from tests.e2e.harness import need
from tests.toolchain import ROOT, rust_example
from weft.tools.query import ask

PROGRAMS = [
    "true",
    "seq 40",
    "expr 17 + 23",
    "md5sum {text}",
    "basename /usr/share/doc",
    "printf %d-%s 12 x",
    "factor 123456789 97",
    "cut -c 2-4 {text}",
    "od -c {text}",
]
FEW = 3
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
ALL = str(50_000_000)

Row = tuple[int, str, int, "int | None"]


def chosen() -> list[str]:
    is_long = int(os.environ.get("WEFT_CASES", "0")) >= 1_000_000
    return PROGRAMS if is_long else PROGRAMS[:FEW]


@pytest.fixture(scope="module")
def stepper() -> Path:
    """The program that steps through another one."""
    need("cargo", "setarch")
    return rust_example("weft-trace", "stepped_trace")


def accesses(file: Path) -> list[list[Row]]:
    """The accesses of each thread."""
    found: dict[int, list[Row]] = defaultdict(list)
    for batch in weft.trace.open(file).accesses():
        rows = batch.to_pydict()
        columns = (rows[name] for name in ("thread", "ip", "kind", "size", "address"))
        for thread, *row in zip(*columns, strict=True):
            found[thread].append(tuple(row))
    return list(found.values())


class Renaming:
    """Memory that was mapped elsewhere is the same, page by page."""

    def __init__(self) -> None:
        self.there: dict[int, int] = {}
        self.back: dict[int, int] = {}

    def is_same(self, one: int | None, other: int | None) -> bool:
        if one == other:
            return True
        if one is None or other is None or (one ^ other) & 0xFFF:
            return False
        pages = one >> 12, other >> 12
        return (
            self.there.setdefault(pages[0], pages[1]) == pages[1]
            and self.back.setdefault(pages[1], pages[0]) == pages[0]
        )

    def differs_at(self, native: list[Row], traced: list[Row]) -> int | None:
        for number, (one, other) in enumerate(zip(native, traced, strict=False)):
            is_same = self.is_same(one[0], other[0]) and self.is_same(one[3], other[3])
            if not is_same or one[1:3] != other[1:3]:
                return number
        return None if len(native) == len(traced) else min(len(native), len(traced))


def both(
    stepper: Path, command: list[str], folder: Path
) -> tuple[list[list[Row]], list[list[Row]]]:
    """What a command touches step by step, and what its trace says, at the same addresses."""
    native, traced = folder / "native.weft-trace", folder / "traced.weft-trace"
    fixed = ["setarch", "-R"]
    subprocess.run(
        [*fixed, stepper, native, ALL, *command], env=ENVIRONMENT, check=True, capture_output=True
    )
    own = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    script = (
        "import sys; from pathlib import Path; from weft import clone\n"
        "start = dict(environment=[('PATH', '/usr/bin:/bin')], follows=False, records='trace')\n"
        "program = clone.launch(sys.argv[2:], **start)\n"
        "writing = program.trace_to(Path(sys.argv[1]))\n"
        "assert program.wait() == 0\n"
        "assert writing.finish() == 0\n"
    )
    subprocess.run(
        [*fixed, sys.executable, "-c", script, traced, *command],
        env={**ENVIRONMENT, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return accesses(native), accesses(traced)


@pytest.mark.parametrize("program", chosen())
@pytest.mark.watchdog(180)
def test_a_trace_has_what_steps_find(stepper: Path, program: str, tmp_path: Path) -> None:
    name, *words = program.format(text=ROOT / "LICENSE").split()
    (native,), (traced,) = both(stepper, [f"/usr/bin/{name}", *words], tmp_path)
    assert len(native) > 10_000
    assert Renaming().differs_at(native, traced) is None


@pytest.mark.watchdog(180)
def test_a_trace_has_what_threads_and_odd_instructions_do(stepper: Path, tmp_path: Path) -> None:
    need("cc")
    built = tmp_path / "odd"
    source = ROOT / "crates" / "trace" / "tests" / "odd_accesses.c"
    options = ["-O1", "-mno-red-zone", "-static", "-pthread"]
    subprocess.run(["cc", *options, "-o", built, source], check=True)
    native, traced = both(stepper, [str(built)], tmp_path)
    renaming = Renaming()
    # Whether the first thread finds the second one gone already is a matter of time.
    until = renaming.differs_at(native[0], traced[0])
    assert until is None or until > len(native[0]) * 9 // 10
    assert renaming.differs_at(native[1], traced[1]) is None
    assert any(row[2] == 77 for row in traced[1]), "a string of 77 bytes"


INTERRUPTED = r"""
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
enum { ROUNDS = 3000000 };
static volatile int signals;
int table[1024], target[256];
static void handle(int number) { signals += number == SIGALRM; }
__attribute__((noinline)) int work(void) {
    int sum = 0;
    for (int i = 0; i < ROUNDS; i++) sum += table[i * 7 & 1023];
    return sum;
}
__attribute__((noinline)) void copy(void) {
    for (int i = 0; i < 20000; i++) {
        const void *from = table;
        void *to = target;
        unsigned long count = sizeof target;
        __asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(count) : : "memory");
    }
}
int main(void) {
    struct itimerval each = {{0, 400}, {0, 400}};
    signal(SIGALRM, handle);
    setitimer(ITIMER_REAL, &each, 0);
    int sum = work();
    copy();
    memset(&each, 0, sizeof each);
    setitimer(ITIMER_REAL, &each, 0);
    printf("%d %d\n", sum, signals);
    return 0;
}
"""


@pytest.mark.watchdog(120)
def test_signals_take_nothing_away_and_add_nothing(tmp_path: Path) -> None:
    need("cc")
    source, built = tmp_path / "interrupted.c", tmp_path / "interrupted"
    source.write_text(INTERRUPTED)
    subprocess.run(["cc", "-O1", "-static", "-o", built, source], check=True)
    file = tmp_path / "run.weft-trace"
    command = [sys.executable, "-m", "weft", "trace", "-o", str(file), "--", str(built)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    total, signals = map(int, done.stdout.split())
    assert total == 0
    assert signals > 50
    trace = weft.trace.open(file)
    _, rows = ask(
        trace,
        """SELECT function, kind, count(*), sum(size) FROM accesses JOIN code USING (block)
        WHERE function IN ('work', 'copy', 'handle') GROUP BY ALL""",
    )
    sums = {row[:2]: row[2:] for row in rows}
    assert sums["work", "load"] == (3_000_000 + 1, 4 * 3_000_000 + 8)
    assert sums["copy", "store"][1] == 20_000 * 1024
    assert sums["copy", "load"][1] == 20_000 * 1024 + 8
    handled = [row for batch in trace.events() for row in batch.to_pylist()]
    assert sum(row["kind"] == "signal" for row in handled) == signals
    assert sums["handle", "store"][0] in (signals, 2 * signals)
