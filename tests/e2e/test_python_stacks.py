"""Frames of Python, and of code that programs make, among native ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.harness import eventually, need
from weft.model.thread_stacks import ThreadStack
from weft.program.python_frames import EVALUATES, line_at
from weft.program.stacks import read_stacks

PROGRAM = Path(__file__).parents[1] / "programs" / "python_frames.py"
KNOWN = ["3.11", "3.12", "3.13", "3.14"]


def interpreters() -> dict[str, str]:
    """The interpreters that there are, by their versions: that of the tests at least."""
    found: dict[str, str] = {}
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    for name in (sys.executable, "/usr/bin/python3", *(f"python{version}" for version in KNOWN)):
        if path := shutil.which(name):
            done = subprocess.run([path, "-c", code], capture_output=True, text=True)
            found.setdefault(done.stdout.strip(), path)
    return {version: path for version, path in found.items() if version in KNOWN}


INTERPRETERS = interpreters()


@contextmanager
def sleeping(*command: str | Path, folder: Path | None = None) -> Iterator[tuple[int, str]]:
    """Run a program until it prints a line."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=folder) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield process.pid, process.stdout.readline()
        finally:
            process.kill()


def interpreted(thread: ThreadStack) -> list[list[object]]:
    """The frames of Python of a thread, as the program prints them."""
    return [
        [
            frame.function,
            frame.location and frame.location.file,
            frame.location and frame.location.line,
        ]
        for frame in thread.frames
        if frame.language == "python"
    ]


@pytest.mark.parametrize("version", INTERPRETERS)
def test_as_the_interpreter_sees_it(version: str) -> None:
    with sleeping(INTERPRETERS[version], PROGRAM) as (pid, printed):
        expected = {int(tid): frames for tid, frames in json.loads(printed).items()}
        stacks = read_stacks(pid)
    assert stacks.notes == ()
    found = {thread.tid: thread for thread in stacks.threads}
    assert {tid: interpreted(found[tid]) for tid in expected} == expected
    assert len(expected) == 4
    for tid in expected:
        names = [frame.function or "" for frame in found[tid].frames]
        # All calls of the interpreter have become frames of the program, in the midst of C code.
        assert not any(name.startswith(EVALUATES) for name in names)
        assert "clock_nanosleep" in names[0]
        languages = [frame.language for frame in found[tid].frames]
        assert languages[0] == languages[-1] == "native"


def test_a_child_of_a_fork() -> None:
    code = "import os, time\ndef child(): print(os.getpid(), flush=True); time.sleep(600)\n"
    code += "if os.fork(): os.wait()\nelse: child()"
    with sleeping(sys.executable, "-c", code) as (_, printed):
        child = int(printed)

        def is_found() -> bool:
            (thread,) = read_stacks(child).threads
            return [row[0] for row in interpreted(thread)] == ["child", "<module>"]

        try:
            eventually(is_found)
        finally:
            subprocess.run(["kill", "-KILL", str(child)], check=True)


def test_more_frames_than_are_read() -> None:
    code = "import sys, time\nsys.setrecursionlimit(9000)\ndef deep(n):\n"
    code += " if n: return deep(n - 1)\n print('ready', flush=True); time.sleep(600)\ndeep(6000)"
    with sleeping(sys.executable, "-c", code) as (pid, _):
        (thread,) = read_stacks(pid).threads
    assert [row[0] for row in interpreted(thread)] == ["deep"] * 4096
    assert thread.cut is not None and "Python" in thread.cut


def test_lines_are_those_of_the_interpreter() -> None:
    """Every instruction of some modules of the standard library."""
    codes = [
        compile(Path(file).read_text(), file, "exec") for file in (json.__file__, shutil.__file__)
    ]
    seen = 0
    while codes:
        code = codes.pop()
        codes += [one for one in code.co_consts if isinstance(one, types.CodeType)]
        for start, end, line in code.co_lines():
            for offset in range(start, end, 2):
                assert line_at(code.co_linetable, code.co_firstlineno, offset) == line
                seen += 1
    assert seen > 5000


def test_code_that_node_makes(tmp_path: Path) -> None:
    need("node")
    script = tmp_path / "busy.js"
    script.write_text(
        "function innermost(n) { let s = 0; for (let i = 0; i < n; i++) s += i % 7; return s }\n"
        "function outer(n) { let s = 0; for (;;) s += innermost(n) }\n"
        "console.log('ready'); outer(1e6)\n"
    )
    options = ["--perf-basic-prof", "--interpreted-frames-native-stack"]
    with sleeping("node", *options, script, folder=tmp_path) as (pid, _):
        path = Path(f"/tmp/perf-{pid}.map")

        def is_named() -> bool:
            main = next(thread for thread in read_stacks(pid).threads if thread.tid == pid)
            made = [frame.function or "" for frame in main.frames if frame.language == "jit"]
            inside = [at for at, name in enumerate(made) if "innermost" in name]
            outside = [at for at, name in enumerate(made) if "outer" in name]
            return bool(inside and outside) and inside[0] < outside[0] and main.is_whole

        try:
            eventually(is_named)
        finally:
            path.unlink(missing_ok=True)
