"""Probes in the clone count exactly what probes in the code do, and where those do not fit."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import weft
from tests.e2e.harness import code, eventually
from tests.e2e.test_probes import (
    NEVER_RETURN,
    Build,
    check_code,
    check_on_and_off,
    come_and_go,
    count,
    every_number,
    every_program_and_number,
    expected,
    own,
    rounds_of,
    seen,
)
from tests.lockstep import Lockstep, lockstep, total
from tests.probing import COUNTER, Kind, Weaver, points_of, weaver
from tests.toolchain import run
from weft import errors

SMALL = 256 << 10
HEAVY = "counter c; histogram h log2; map m[1] 8\nc += 1; h << reg(rax); m[reg(rcx) & 3] += 1"

MAY_BE_REFUSED: Mapping[Kind, frozenset[str]] = {
    "entry": frozenset(),
    "exit": frozenset(),
}
"""Nothing is too tight for the clone."""


def is_woven(pid: int) -> bool:
    return "/memfd:weft-values" in Path(f"/proc/{pid}/maps").read_text()


@contextmanager
def woven(
    build: Build, name: str, threads: int, cache_size: int | None = None
) -> Iterator[tuple[Lockstep, Weaver]]:
    """Run a program and take it over while it rests; nothing may be left in the end."""
    with lockstep(build(name), threads) as program:
        program.batch(1)
        before = code(program.pid)
        with weft.attach(program.pid, weaver="clone", cache_size=cache_size) as cloned:
            yield program, weaver(cloned.session)
        check_code(program, before)
        assert not is_woven(program.pid)
        program.batch(1)


@every_program_and_number
def test_entries_are_counted_exactly(name: str, threads: int, build: Build) -> None:
    with woven(build, name, threads) as (program, session):
        first = program.batch(1)
        probe = count(session, name, first, may_be_refused=MAY_BE_REFUSED)
        check_on_and_off(program, probe, name)


@every_program_and_number
def test_functions_are_left_as_often_as_entered(name: str, threads: int, build: Build) -> None:
    with woven(build, name, threads) as (program, session):
        counts = {
            function: number
            for function, number in own(program.batch(1)).items()
            if function not in NEVER_RETURN[name]
        }
        exits = count(session, name, counts, "exit", MAY_BE_REFUSED)
        own_counts = program.batch(rounds_of(name))
        returning = {function: own_counts[function] for function in counts}
        left = seen(exits)
        left.pop("jumped_into", None)
        assert left == {f: n for f, n in expected(exits, returning).items() if f != "jumped_into"}


@every_program_and_number
@pytest.mark.watchdog(300)
def test_a_probe_counts_on_while_others_come_and_go(name: str, threads: int, build: Build) -> None:
    with woven(build, name, threads) as (program, session):
        come_and_go(program, session, name, 10, random.Random(threads), MAY_BE_REFUSED)


@pytest.mark.parametrize("name", ["signals", "counts", "counts_go", "churn"])
@every_number
def test_counts_are_exact_when_the_clone_is_thrown_away(
    name: str, threads: int, build: Build
) -> None:
    with woven(build, name, threads, SMALL) as (program, session):
        first = program.batch(1)
        # So much code at each instruction that the cache is never large enough.
        points = points_of(session, name, own(first), "insn")
        others = session.insert(points, HEAVY)
        probe = count(session, name, first, may_be_refused=MAY_BE_REFUSED)
        counts = program.batch(rounds_of(name))
        assert seen(probe) == expected(probe, counts)
        others.remove()
        more = program.batch(rounds_of(name))
        assert seen(probe) == expected(probe, total([counts, more]))


SNIPPETS = [
    "histogram h log2\nh << arg(0)",
    "histogram h linear 0 10 8\nh << arg(0)",
    "map m[1] 64\nm[arg(0) & 31] += arg(0)",
    "map m[2] 64\nm[arg(0) & 3, address] += 1",
    "counter c shared\nif arg(0) > 3 { c += load8(frame) & 0 | 1 } else { c += 2 }",
    "counter c\nlocal depth\nat entry { depth += 1; c += depth }\nat exit { depth -= 1 }",
    "ring r(a, b) 4096\nemit r(arg(0), caller)",
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_what_is_measured_is_the_same(snippet: str, build: Build) -> None:
    def measured(session: weft.Session, program: Lockstep) -> object:
        kinds: list[Kind] = ["entry", "exit"] if "exit" in snippet else ["entry"]
        names = ["recursive", "normal", "switching", "even", "odd"]
        points = [
            point
            for name in names
            for kind in kinds
            for point in session.points(f"/Code/counts/{name}", kind)
        ]
        probe = session.insert(points, snippet)
        assert not probe.refused
        program.batch(7)
        return sorted(probe.records()) if "ring" in snippet else probe.value()

    with lockstep(build("counts"), 1) as program:
        program.batch(1)
        with weft.attach(program.pid) as session:
            by_patch = measured(session, program)
        with weft.attach(program.pid, weaver="clone") as cloned:
            by_clone = measured(cloned.session, program)
    assert by_patch and by_clone == by_patch


def test_a_snippet_that_calls_the_program_is_refused(build: Build) -> None:
    with woven(build, "counts", 1) as (_, session), pytest.raises(errors.BadSnippet, match="calls"):
        session.insert("/Code/counts/normal", "counter c\nc += call 4096(1)")


def test_metrics_from_the_command_line(build: Build) -> None:
    with lockstep(build("counts"), 1) as program:
        program.batch(1)
        command = [sys.executable, "-m", "weft", "attach", str(program.pid), "--weaver", "clone"]
        command += ["-m", "calls@/Code/counts/normal", "--for", "3", "--format", "json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as weft_:
            eventually(lambda: is_woven(program.pid))
            # Only now does it begin to measure.
            time.sleep(0.7)
            counts = program.batch(10)
            document = json.loads(weft_.communicate()[0])
        assert weft_.returncode == 0
        assert document["totals"][0]["value"] == counts["normal"]
        assert not is_woven(program.pid)


@pytest.mark.parametrize("program", [["sqlite3", ":memory:", "select 1;"], ["ls", "/"]])
def test_a_program_is_measured_from_its_entry_to_its_end(program: list[str]) -> None:
    def measured(*weaver: str) -> object:
        command = [sys.executable, "-m", "weft", "run", *weaver, "--format", "json"]
        command += ["-m", "calls@/Code/libc.so.6/malloc", "--", *program]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        assert run.stdout == natively.stdout
        document = json.loads(run.stderr)
        assert document["target"]["exit_code"] == 0
        return document["totals"][0]["value"]

    natively = subprocess.run(program, capture_output=True, text=True, check=True)
    by_patch = measured()
    assert by_patch and measured("--weaver", "clone") == by_patch


@pytest.mark.parametrize("kind", ["block", "edge", "insn", "load", "store"])
def test_counters_everywhere_change_nothing(kind: weft.PointKind, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(random.Random(1).randbytes(5000) * 4)
    natively = subprocess.run(["bzip2", "-c", text], capture_output=True, check=True).stdout
    packed = tmp_path / "packed"
    with (
        packed.open("wb") as out,
        weft.run(["bzip2", "-c", text], weaver="clone", is_held=True, stdout=out) as program,
    ):
        session = program.session
        points = session.points("/Code/libbz2.so*/*", kind)
        # Two of them: they are compiled together.
        probes = [session.insert(points, "counter hits\nhits += 1") for _ in range(2)]
        session.resume()
        assert program.wait(10) == 0
    assert packed.read_bytes() == natively
    first, second = (probe.values() for probe in probes)
    assert first == second and sum(first.values()) > 100_000


def test_what_is_asked_for_wrongly_is_not_run() -> None:
    command = [sys.executable, "-m", "weft", "run", "--weaver", "clone", "-m", "nonsense"]
    run = subprocess.run([*command, "--", "echo", "hello"], capture_output=True, text=True)
    assert run.returncode != 0
    assert run.stdout == ""
    assert "nonsense" in run.stderr


TIGHT = """
#include <stdio.h>
void tiny(void);
void next(void);
__asm__(".text; .globl tiny, next; .type tiny, @function; .type next, @function\\n"
        "tiny: ret\\n.size tiny, 1\\n"
        "next: xor %eax, %eax; add $1, %eax; ret\\n.size next, .-next\\n");
int main(void) {
    for (int i = 0; i < 1000; i++) { tiny(); next(); }
    puts("done");
    getchar();
    return 3;
}
"""
NOTE = "note: 1 point does not fit the patch weaver, so the program runs from a clone\n"


def _weft(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weft", *words]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.fixture
def tight(tmp_path: Path) -> Path:
    """A program with a function that the patch weaver cannot weave, and one that it can."""
    source = tmp_path / "tight.c"
    source.write_text(TIGHT)
    run("gcc", "-O1", source, "-o", tmp_path / "tight")
    return tmp_path / "tight"


@pytest.mark.parametrize(
    ("weaver", "function", "calls", "note"),
    [
        ("auto", "tiny", 1000, NOTE),
        ("auto", "next", 1000, ""),
        ("clone", "tiny", 1000, ""),
        ("patch", "next", 1000, ""),
    ],
)
def test_a_clone_is_taken_where_it_is_needed(
    weaver: str, function: str, calls: int, note: str, tight: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    wanted = ["-m", f"calls@/Code/tight/{function}", "--format", "json", "-o", str(out)]
    done = _weft("run", "--weaver", weaver, *wanted, "--", str(tight))
    assert (done.returncode, done.stdout) == (3, "done\n")
    assert done.stderr == note
    assert json.loads(out.read_text())["totals"][0]["value"] == calls


def test_a_running_program_goes_to_a_clone_where_it_is_needed(build: Build) -> None:
    with lockstep(build("counts"), 1) as program:
        program.batch(1)
        wanted = ["-m", "calls@/Code/counts/one_byte", "--for", "0.5", "--format", "json"]
        done = _weft("attach", str(program.pid), "--weaver", "auto", *wanted)
        assert done.returncode == 0, done.stderr
        is_refused = "so the program runs from a clone" in done.stderr
        with weft.attach(program.pid) as session:
            probe = session.insert("/Code/counts/one_byte", "counter c; c += 1")
            assert is_refused == bool(probe.refused)
        assert not is_woven(program.pid)
        program.batch(1)


def test_a_program_that_has_become_another_is_not_woven_into() -> None:
    """It has not the memory that probes measure into."""
    script = "read line; exec cat"
    with (
        subprocess.Popen(
            ["bash", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process,
        weft.attach(process.pid, weaver="clone") as program,
    ):
        assert process.stdin is not None and process.stdout is not None
        session = program.session
        counted = session.insert("/Code/libc.so.6/read", "counter n; n += 1")
        process.stdin.write(b"go\n")
        process.stdin.flush()
        eventually(lambda: session.program().endswith("cat"))
        process.stdin.write(b"meow\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"meow\n"
        assert counted.value() in (2, 3)
        with pytest.raises(weft.errors.TargetGone, match="not the program that was measured"):
            session.insert("/Code/libc.so.6/read", "counter n; n += 1")
        process.stdin.write(b"purr\n")
        process.stdin.close()
        assert process.stdout.read() == b"purr\n"
        assert process.wait() == 0


@pytest.mark.alone
@pytest.mark.watchdog(300)
def test_a_program_that_vforks_all_the_time_is_not_held_for_seconds(build: Build) -> None:
    # A thread that waits for its vforked child was waited for, while that child waited for a thread
    # that was stopped: in one of fifty stops the program stood still for two seconds.
    longest = []
    for _ in range(3):
        with woven(build, "forks", 16) as (program, session):
            points = points_of(session, "forks", own(program.batch(1)), "entry")
            program.go()
            for _ in range(60):
                session.insert(points, COUNTER).remove()
            program.rest()
            longest.append(max(pause.seconds for pause in session.pauses()))
        if longest[-1] < 1.0:
            return
    raise AssertionError(f"it stood still for {longest} s")
