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
    # It reads what returns have left below the stack.
    "printf %d-%s 12 x",
    "expr 17 + 23",
    "md5sum {text}",
    "basename /usr/share/doc",
    "factor 123456789 97",
    "cut -c 2-4 {text}",
    "od -c -N 600 {text}",
]
FEW = 3
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
ALL = str(50_000_000)

Row = tuple[int, str, int, "int | None", "int | None"]


def chosen() -> list[str]:
    is_long = int(os.environ.get("WEFT_CASES", "0")) >= 1_000_000
    return PROGRAMS if is_long else PROGRAMS[:FEW]


@pytest.fixture(scope="module")
def stepper() -> Path:
    """The program that steps through another one."""
    need("cargo", "setarch")
    return rust_example("weft-trace", "stepped_trace")


def accesses(file: Path) -> list[list[Row]]:
    """The accesses of each thread, of that with most of them first."""
    found: dict[int, list[Row]] = defaultdict(list)
    for batch in weft.trace.open(file).accesses():
        rows = batch.to_pydict()
        columns = (rows[name] for name in ("thread", "ip", "kind", "size", "address", "value"))
        for thread, *row in zip(*columns, strict=True):
            found[thread].append(tuple(row))
    # A file has its threads by their numbers, and those begin anew some day.
    return sorted(found.values(), key=len, reverse=True)


class Renaming:
    """What differs from run to run does so always in the same way.

    Memory that was mapped elsewhere is the same, page by page. Of values, those that the kernel
    makes up are other ones, and so is what a program makes of them.
    """

    def __init__(self) -> None:
        self.there: dict[int, int] = {}
        self.back: dict[int, int] = {}
        self.values: tuple[dict[int, int], dict[int, int]] = {}, {}
        self.known = 0

    def is_same_value(self, one: int | None, other: int | None) -> bool:
        if one is None or other is None or one == other or self.is_same(one, other):
            return True
        there, back = self.values
        return there.setdefault(one, other) == other and back.setdefault(other, one) == one

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
            if not is_same or one[1:3] != other[1:3] or not self.is_same_value(one[4], other[4]):
                return number
            self.known += other[4] is not None
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
        "start = dict(environment=[('PATH', '/usr/bin:/bin')], follows=False)\n"
        "program = clone.launch(sys.argv[2:], records='trace with values', **start)\n"
        "writing = program.trace_to(Path(sys.argv[1]))\n"
        "assert program.wait() == 0\n"
        "assert not writing.finish()\n"
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
    renaming = Renaming()
    assert renaming.differs_at(native, traced) is None
    assert renaming.known > 0.95 * len(native)
    assert len(renaming.values[0]) < 0.01 * len(native)


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


def compiled(text: str, folder: Path, *options: str) -> Path:
    """A program of this text."""
    need("cc")
    source, built = folder / "program.c", folder / "program"
    source.write_text(text)
    subprocess.run(["cc", *options, "-o", built, source], check=True)
    return built


INTERRUPTED = r"""
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
enum { ROUNDS = 3000000 };
static volatile int signals;
int table[1024], target[256];
static void handle(int number) { signals += number == SIGALRM; }
__attribute__((noinline)) unsigned work(void) {
    unsigned sum = 0;
    for (unsigned i = 0; i < ROUNDS; i++) sum += table[i * 7 & 1023];
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
    for (int i = 0; i < 1024; i++) table[i] = i;
    signal(SIGALRM, handle);
    setitimer(ITIMER_REAL, &each, 0);
    unsigned sum = work();
    copy();
    memset(&each, 0, sizeof each);
    setitimer(ITIMER_REAL, &each, 0);
    printf("%u %d\n", sum, signals);
    return 0;
}
"""


@pytest.mark.watchdog(120)
def test_signals_take_nothing_away_and_add_nothing(tmp_path: Path) -> None:
    built = compiled(INTERRUPTED, tmp_path, "-O1", "-static")
    file = tmp_path / "run.weft-trace"
    command = [sys.executable, "-m", "weft", "trace", "--values", "-o", str(file), "--", str(built)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    total, signals = map(int, done.stdout.split())
    assert total == sum(i * 7 & 1023 for i in range(3_000_000)) & 0xFFFFFFFF
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
    # What is loaded says where from; it may not be known where the loop was interrupted.
    _, [loads] = ask(
        trace,
        """WITH loads AS (SELECT address - min(address) OVER () AS place, value FROM accesses
            JOIN code USING (block) WHERE function = 'work' AND kind = 'load' AND size = 4)
        SELECT count(value), sum(CAST(place <> 4 * value AS INTEGER)) FROM loads""",
    )
    assert loads[0] >= 3_000_000 - signals
    assert loads[1] == 0
    handled = [row for batch in trace.events() for row in batch.to_pylist()]
    assert sum(row["kind"] == "signal" for row in handled) == signals
    assert sums["handle", "store"][0] in (signals, 2 * signals)


VANISHING = r"""
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
enum { FAULTS = 2000 };
static int *memory;
static volatile int is_over, faults;
static void handle(int number) { faults += number == SIGSEGV; }
static void *take_away(void *unused) {
    while (!is_over) {
        mprotect(memory, 4096, PROT_NONE);
        mprotect(memory, 4096, PROT_READ | PROT_WRITE);
    }
    return unused;
}
int main(void) {
    pthread_t thread;
    memory = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *memory = 7;
    signal(SIGSEGV, handle);
    pthread_create(&thread, 0, take_away, 0);
    /* What is locked is done before anything behind it begins: time for the other thread. */
    while (faults < FAULTS) __asm__ volatile("lock addl $0, (%0)" : : "r"(memory) : "memory", "cc");
    is_over = 1;
    pthread_join(thread, 0);
    puts("well");
    return 0;
}
"""


@pytest.mark.watchdog(120)
def test_memory_may_be_gone_when_a_value_is_looked_up(tmp_path: Path) -> None:
    built = compiled(VANISHING, tmp_path, "-O1", "-pthread")
    file = tmp_path / "run.weft-trace"
    command = [sys.executable, "-m", "weft", "trace", "--values", "-o", str(file), "--", str(built)]
    # Whether it ever goes between an access and the look at its value depends on who runs when.
    for _ in range(8):
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "well\n", "")
        _, [(known, right, missed)] = ask(
            weft.trace.open(file),
            """SELECT count(value), count_if(value = 7), count(*) - count(value) FROM accesses
            JOIN code USING (block) WHERE function = 'main' AND kind = 'update'""",
        )
        assert known == right > 0
        if missed > 0:
            return
    raise AssertionError("no value was ever missed")


STEPPING = r"""
#include <signal.h>
#include <stdio.h>
static volatile int traps, seven = 7;
static void handle(int number) { traps += number == SIGTRAP; }
int main(void) {
    int same = 0;
    signal(SIGTRAP, handle);
    __asm__ volatile("pushfq; orq $0x100, (%rsp); popfq");
    for (int i = 0; i < 300; i++) same += seven == 7;
    __asm__ volatile("pushfq; andq $~0x100, (%rsp); popfq");
    printf("%d %d\n", same, traps);
    return 0;
}
"""


@pytest.mark.watchdog(120)
def test_a_program_that_steps_through_itself_comes_to_its_end(tmp_path: Path) -> None:
    built = compiled(STEPPING, tmp_path, "-O1", "-mno-red-zone")
    alone = subprocess.run([built], check=True, capture_output=True, text=True)
    command = [sys.executable, "-m", "weft", "trace", "-o", str(tmp_path / "run"), "--", str(built)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == alone.stdout
