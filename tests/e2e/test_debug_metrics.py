"""Metrics of a program that a debugger is on: nobody notices the other."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.harness import Background, need
from tests.e2e.test_debug_command import words
from tests.toolchain import compile_program
from weft import debug

WEFT = [sys.executable, "-m", "weft", "debug"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("gdb")
    output = tmp_path_factory.mktemp("measured") / "debugged"
    return compile_program("debugged.c", output, "-g", "-pthread")


def measure(metrics: Sequence[str], target: Sequence[str | Path], *steps: str) -> tuple[str, str]:
    """Have GDB do some steps while metrics are measured.

    Return what it prints; and what `monitor` does, with the table at the end.
    """
    options = [word for metric in metrics for word in ("-m", metric)]
    command = [*WEFT, *options, "--gdb-args", shlex.join(words(*steps)), *map(str, target)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def calls(table: str, focus: str) -> list[int]:
    """How many calls a table has of something, as often as it is there."""
    rows = re.findall(rf"^calls +{re.escape(focus)} +([\d,]+)", table, re.MULTILINE)
    return [int(row.replace(",", "")) for row in rows]


def test_calls_are_counted_from_the_start(program: Path) -> None:
    add = "/Code/debugged/add"
    stops = ("break add if a == 3", "continue", "monitor weft probes", "stepi", "next", "finish")
    said, table = measure(
        [f"calls@{add}"],
        ["--", program],
        *stops,
        "delete",
        "print add(1, 2)",
        "continue",
    )
    assert "exited with code 03" in said
    # It stands behind the prologue of the fourth.
    assert calls(table, add) == [4, 10 + 1 + 1]


def test_a_metric_is_asked_for_in_the_middle(program: Path) -> None:
    add = "/Code/debugged/add"
    said, table = measure(
        [],
        ["--", program],
        "monitor weft probes",
        "break add if a == 3",
        "continue",
        f"monitor weft metric calls@{add}",
        "delete",
        "break work",
        "continue",
        "monitor weft probes",
        "continue",
    )
    assert "exited with code 03" in said
    assert "nothing is measured" in table
    assert f"calls@{add} is measured" in table
    assert calls(table, add) == [6, 7]


def test_what_is_not_loaded_yet_is_measured_when_it_is(program: Path) -> None:
    focus = "/Code/libc.so.6/puts"
    said, table = measure(
        [f"calls@{focus}", "calls@/Code/nowhere/never"],
        ["--", program],
        "monitor weft probes",
        "break main",
        "continue",
        "monitor weft probes",
        'print (int)puts("said")',
        "continue",
    )
    assert "exited with code 03" in said
    assert table.count(f"calls@{focus} waits") == 1
    assert table.count("calls@/Code/nowhere/never waits") == 3
    assert calls(table, focus) == [0, 1]


def test_what_is_asked_for_wrongly_is_said(program: Path) -> None:
    command = [*WEFT, "-m", "kalls", "--", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "kalls" in done.stderr and "Traceback" not in done.stderr
    _, told = measure([], ["--", program], "monitor weft metric calls@/Code/nowhere/x", "kill")
    assert "nowhere" in told
    _, told = measure([], ["--", program], "monitor weft metric kalls", "kill")
    assert "kalls" in told


def test_a_program_that_is_run_again_is_measured_again(program: Path) -> None:
    add = "/Code/debugged/add"
    _, table = measure([f"calls@{add}"], ["--", program], "continue", "run")
    assert calls(table, add) == [11]


def test_a_program_that_becomes_another(program: Path, tmp_path: Path) -> None:
    source = tmp_path / "becomes.c"
    source.write_text(
        "#include <unistd.h>\n"
        "int first(void) { return 1; }\n"
        "int main(int n, char **words) { first(); execv(words[1], words + 1); return 1; }\n"
    )
    becomes = tmp_path / "becomes"
    subprocess.run(["gcc", "-g", source, "-o", becomes], check=True)
    first, add = "/Code/becomes/first", "/Code/debugged/add"
    said, table = measure(
        [f"calls@{first}"],
        ["--", becomes, program],
        "catch exec",
        "continue",
        "monitor weft probes",
        f"monitor weft metric calls@{add}",
        "delete",
        "continue",
    )
    assert f"calls@{first} waits" in table
    # One argument makes it two words.
    assert calls(table, add) == [11]
    assert "exited with code 03" in said


MANY = """
#include <stdio.h>
__attribute__((noipa)) long many(long a, long b, long c, long d, long e, long f, long g, long h) {
    return a + b + c + d + e + f + 10 * g + 100 * h;
}
__attribute__((noipa)) long twice(long x) { return many(x, 1, 1, 1, 1, 1, x, 2 * x); }
int main(void) {
    long sum = 0;
    for (long i = 0; i < 100; i++) sum += twice(i);
    printf("%ld\\n", sum);
}
"""


STACKED = """
counter seventh; counter eighth; counter callers; counter frames
seventh += arg(6); eighth += arg(7); callers += caller; frames += frame
arg(7) = arg(7) + 1
"""


def test_snippets_see_the_stack_of_the_program(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """While a debugger looks they work elsewhere, but read and write arguments there."""
    source, program = tmp_path / "many.c", tmp_path / "many"
    source.write_text(MANY)
    subprocess.run(["gcc", "-O1", "-g", source, "-o", program], check=True)
    expected = sum(i + 5 + 10 * i + 100 * (2 * i + 1) for i in range(100))
    path = tmp_path / "socket"
    with debug.launch([program]) as debugged, debug.Address("", 0, path).listen() as listener:
        seen = debugged.weave(lambda session: session.insert("/Code/many/many", STACKED))
        steps = ["set sysroot /", f"target remote {path}", "break *many", "continue", "print $rsp"]
        steps += ["print h", "up", "print $pc", "delete", "continue"]
        command = ["gdb", *words(*steps), str(program)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as gdb:
            connection, _ = listener.accept()
            with connection:
                debugged.serve(connection)
            said, _ = gdb.communicate(timeout=60)
        values = {name: seen.value(name) for name in ("seventh", "eighth", "callers", "frames")}
    frame, eighth, caller = re.findall(r"^\$\d = .*?((?:0x)?\w+)(?: <.*)?$", said, re.MULTILINE)
    assert values == {
        "seventh": sum(range(100)),
        "eighth": 2 * sum(range(100)),
        "callers": 100 * int(caller, 16),
        "frames": 100 * int(frame, 16),
    }, said
    # GDB stands before the snippet, or behind it.
    assert eighth in ("0", "1")
    assert f"{expected}\n" in capfd.readouterr().out


@pytest.mark.parametrize("stop", ["break add", "interrupted"])
def test_a_process_is_left_as_it_was(program: Path, stop: str) -> None:
    """Probes go when the debugger goes, wherever threads stand: at a breakpoint, or in a call."""
    add = "/Code/debugged/add"
    with Background([program, "wait"]) as waiting:
        before = Path(f"/proc/{waiting.pid}/maps").read_text()
        if stop == "interrupted":
            said, table = measure(
                [f"calls@{add}"],
                [str(waiting.pid)],
                "monitor weft metric time@/Code/debugged/add",
                "monitor weft probes",
                "detach",
            )
            assert calls(table, add) == [0, 0]
        else:
            said, table = measure(
                [f"calls@{add}"], [str(waiting.pid)], "print add(2, 2)", "break add", "detach"
            )
            assert calls(table, add) == [1]
        assert "detached" in said
        after = Path(f"/proc/{waiting.pid}/maps").read_text()
        assert "weft" not in after
        assert after.count("\n") == before.count("\n")
        status, output = waiting.finish()
        assert status == 3, output
