"""System calls: every one is seen, before and after, and can be changed where a snippet says so."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryFile

import pytest

import weft
from tests.toolchain import compile_program
from weft import errors

COUNTED = """
counter made
counter back
at syscall { made += 1 }
at sysreturn { back += 1 }
"""
LOADING = frozenset(
    """
    access arch_prctl brk close execve fstat getrandom mmap mprotect munmap newfstatat openat
    pread64 prlimit64 read rseq set_robust_list set_tid_address statfs
    """.split()  # noqa: SIM905
)
"""What the dynamic loader and libraries call before a program is at its entry."""
NEVER_RETURN = frozenset(["exit", "exit_group", "rt_sigreturn", "execve"])


def by_weft(command: list[str]) -> tuple[Counter[str], Counter[str], int | None]:
    """How often a program makes each system call, and how often one returns; all its processes."""
    with weft.run(command, weaver="clone", is_held=True, stdout=subprocess.DEVNULL) as program:
        probe = program.session.insert("/Syscall/*", COUNTED)
        assert not probe.refused
        program.session.resume()
        code = program.wait()
        made, back = (probe.values(name, process="all") for name in ("made", "back"))
    return _by_name(made), _by_name(back), code


def _by_name(values: dict[weft.Point, int]) -> Counter[str]:
    return +Counter({point.function: count for point, count in values.items() if count})


def by_strace(command: list[str], log: Path) -> Counter[str]:
    """The same, natively."""
    strace = ["strace", "-f", "-qq", "-o", str(log), *command]
    subprocess.run(strace, stdout=subprocess.DEVNULL, check=True)
    calls = re.findall(r"^\d+ +(\w+)\(", log.read_text(errors="replace"), re.MULTILINE)
    return Counter(calls)


@pytest.mark.parametrize(
    ("command", "left_out"),
    [
        (["/sbin/ldconfig", "-p"], frozenset(["execve"])),
        (["ls", "-l", "/usr/bin"], LOADING),
        (["sqlite3", "{folder}/base", "create table t(x); insert into t values(1);"], LOADING),
        (["sh", "-c", "(echo a; (echo b)); echo c"], LOADING),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_every_call_is_counted(
    command: list[str], left_out: frozenset[str], tmp_path: Path
) -> None:
    for folder in ("native", "woven"):
        (tmp_path / folder).mkdir()
    natively = by_strace(
        [word.format(folder=tmp_path / "native") for word in command], tmp_path / "log"
    )
    made, back, code = by_weft([word.format(folder=tmp_path / "woven") for word in command])
    assert code == 0
    wanted = {name: count for name, count in natively.items() if name not in left_out}
    assert wanted
    assert {name: count for name, count in made.items() if name not in left_out} == wanted
    returning = {name: count for name, count in made.items() if name not in NEVER_RETURN}
    for name in ("fork", "clone"):
        # The child's own return is one more, unless it has its parent's memory.
        back[name] = min(back[name], returning.get(name, 0))
    assert +back == returning


def test_a_call_that_a_signal_interrupts_is_one_call(tmp_path: Path) -> None:
    path = compile_program("interrupted_reads.c", tmp_path / "interrupted", "-O1")
    ours, theirs = os.pipe()
    with (
        (tmp_path / "out").open("wb") as out,
        weft.run([path], weaver="clone", is_held=True, stdin=ours, stdout=out) as program,
    ):
        os.close(ours)
        probe = program.session.insert("/Syscall/read", COUNTED)
        program.session.resume()
        for _ in range(10):
            time.sleep(0.05)
            os.write(theirs, b".")
        os.close(theirs)
        assert program.wait() == 0
        reads, ticks = map(int, (tmp_path / "out").read_text().split())
        assert reads == 11 and ticks > 50
        assert sum(probe.values("made").values()) == reads
        assert sum(probe.values("back").values()) == reads


def woven(snippet: str, where: str, *command: str) -> subprocess.CompletedProcess[bytes]:
    """What a program says that runs with a snippet at system calls."""
    with TemporaryFile() as out, TemporaryFile() as err:
        with weft.run(command, weaver="clone", is_held=True, stdout=out, stderr=err) as program:
            program.session.insert(where, snippet)
            program.session.resume()
            code = program.wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, code or 0, out.read(), err.read())


def test_a_result_is_changed() -> None:
    assert woven("at sysreturn { result = 4242 }", "/Syscall/geteuid", "id", "-u").stdout == (
        b"4242\n"
    )


def test_a_call_is_not_made() -> None:
    said = woven("at syscall { return -1 }", "/Syscall/geteuid", "id", "-u")
    assert said.stdout != woven("counter c; c += 1", "/Syscall/geteuid", "id", "-u").stdout
    # Nothing is written, and nobody notices.
    assert woven("at syscall { return arg(2) }", "/Syscall/write", "echo", "hello").stdout == b""


def test_arguments_are_changed_for_the_kernel_alone() -> None:
    # By threes, which the C library makes up for: it finds its own arguments again.
    by_threes = woven("at syscall { arg(2) = min(arg(2), 3) }", "/Syscall/write", "echo", "hello!!")
    assert (by_threes.stdout, by_threes.returncode) == (b"hello!!\n", 0)
    moved = woven("at syscall { if arg(0) == 1 { arg(0) = 2 } }", "/Syscall/write", "echo", "hello")
    assert (moved.stdout, moved.stderr, moved.returncode) == (b"", b"hello\n", 0)


def test_what_fails_now_and_then() -> None:
    snippet = """
    local number
    at syscall { number += 1; if number % 2 == 1 { return -4 } }
    """
    # An interrupted system call: programs try again.
    done = woven(snippet, "/Syscall/write", "sh", "-c", "echo one; echo two")
    assert b"two" in done.stdout + done.stderr


def test_time_in_system_calls() -> None:
    snippet = """
    timer spent wall
    map results[2] 64
    at syscall { start spent }
    at sysreturn { stop spent; results[syscall.number, result] += 1 }
    """
    with weft.run(["sleep", "0.2"], weaver="clone", is_held=True) as program:
        probe = program.session.insert("/Syscall/*nanosleep", snippet)
        program.session.resume()
        assert program.wait() == 0
        spent = probe.value("spent")
        assert isinstance(spent, weft.Timer)
        assert spent.count == 1 and 0.2 <= spent.seconds < 5
        # `nanosleep` or `clock_nanosleep`, once, with success.
        assert probe.value("results") in ({(35, 0): 1}, {(230, 0): 1})


def test_probes_come_and_go_while_the_program_sleeps() -> None:
    with subprocess.Popen(["sh", "-c", "while :; do sleep 0.01; done"]) as process:
        try:
            with weft.attach(process.pid, weaver="clone") as program:
                for _ in range(5):
                    probe = program.session.insert("/Syscall/*", COUNTED)
                    time.sleep(0.1)
                    probe.remove()
                    seen = sum(probe.values("made").values())
                    assert seen > 0
                    time.sleep(0.05)
                    assert sum(probe.values("made").values()) == seen
        finally:
            process.kill()


def test_mistakes_are_told() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            with weft.attach(process.pid) as session:
                probe = session.insert("/Syscall/read", "counter c; c += 1")
                assert "from a clone" in probe.refused[0].reason
                with pytest.raises(errors.InvalidArgument, match="no system call 'raed'"):
                    session.points("/Syscall/raed", "syscall")
                for wrong in ("c += caller", "c += result", "result = 1", "arg(6) = 1"):
                    with pytest.raises(errors.BadSnippet):
                        session.insert("/Syscall/read", f"counter c; at syscall {{ {wrong} }}")
                for wrong in ("c += syscall.number", "result = 1"):
                    with pytest.raises(errors.BadSnippet):
                        session.insert(
                            "/Code/libc.so.6/malloc", f"counter c; at entry {{ {wrong} }}"
                        )
        finally:
            process.kill()
