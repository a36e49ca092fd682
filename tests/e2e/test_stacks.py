"""The stacks of a process: what its threads are in, as they know and as GDB sees it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

import weft
from tests.e2e.harness import eventually, need
from weft import _native
from weft.model.stacks import Stacks, ThreadStack
from weft.program.stacks import SIGNAL, read_stacks

Build: TypeAlias = Callable[[str], Path]

KINDS = ["O2", "O0", "no_pie", "static", "static_pie", "frame_pointers", "musl", "musl_static"]
WAYS = [
    ["in_condition", "begin"],
    ["in_semaphore", "begin"],
    ["in_epoll", "begin"],
    ["in_poll", "begin"],
    ["in_sleep", "begin"],
    ["in_read", "begin"],
    ["in_loop", "begin"],
    [*["in_recursion"] * 2001, "too_deep", "begin"],
    ["in_variable", "variable", "begin"],
    ["on_signal", SIGNAL, "interrupted", "in_handler", "begin"],
    ["on_signal", SIGNAL, "in_other_stack", "begin"],
]
"""The functions of the program, and the signal frame, that each thread is in."""
OWN = {name for way in WAYS for name in way}


def functions(thread: ThreadStack) -> list[str]:
    return [frame.function or "?" for frame in thread.frames if not frame.inlined]


@contextmanager
def waiting(path: Path) -> Iterator[int]:
    """Run the program until its threads wait; it must not have noticed anything."""
    with subprocess.Popen(
        [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process.pid
            process.stdin.close()
            assert process.stdout.read() == "done\n"
            assert process.wait(30) == 0
        finally:
            process.kill()


def rest(pid: int) -> None:
    """Wait until all threads but the one that never sleeps have come to where they wait."""

    def is_asleep() -> bool:
        threads = _native.threads(pid)
        return all(state == "S" for _, name, state in threads if name != "way 6")

    for _ in range(3):
        eventually(is_asleep)


def by_name(stacks: Stacks) -> dict[str, ThreadStack]:
    return {thread.name: thread for thread in stacks.threads}


@pytest.mark.parametrize("kind", KINDS)
def test_threads_are_where_they_are(build: Build, kind: str) -> None:
    with waiting(build(f"stacks_{kind}")) as pid:
        rest(pid)
        for _ in range(5):
            found = by_name(read_stacks(pid))
            for number, expected in enumerate(WAYS):
                thread = found[f"way {number}"]
                own = [name for name in functions(thread) if name in OWN]
                assert own == expected and thread.is_whole, (number, thread)
                assert not any(frame.is_guess for frame in thread.frames)
                assert thread.call is not None or expected[0] == "in_loop"


def test_lines_and_inlined_functions(build: Build) -> None:
    with waiting(build("stacks_O2")) as pid, weft.attach(pid) as session:
        rest(pid)
        found = by_name(session.stacks())
        (looping,) = (one for one in found["way 6"].frames if one.function == "in_loop")
        assert looping.location is not None and looping.location.file.endswith("stacks.c")
        assert found["way 5"].call is not None and found["way 5"].call.name == "read"
        assert "in_loop" in str(looping) and "stacks.c:" in str(looping)


def test_the_process_stands_still_for_milliseconds(build: Build) -> None:
    with waiting(build("stacks_O2")) as pid:
        best = min(sum(read_stacks(pid).pauses) for _ in range(5))
    assert best < 0.2


@pytest.mark.parametrize("name", ["python", "redis", "sqlite3", "sleep", "node"])
def test_as_gdb_sees_it(name: str, tmp_path: Path) -> None:
    """Programs of the distribution that wait: the same functions, thread by thread."""
    need("gdb")
    commands: dict[str, list[str]] = {
        "python": [sys.executable, "-c", "import time; time.sleep(600)"],
        "redis": ["redis-server", "--port", "0", "--unixsocket", str(tmp_path / "socket")],
        "sqlite3": ["sqlite3", ":memory:"],
        "sleep": ["sleep", "600"],
        "node": ["node", "-e", "setTimeout(() => {}, 600000)"],
    }
    need(commands[name][0])
    with subprocess.Popen(
        commands[name], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=tmp_path
    ) as process:
        try:
            seen: list[int] = []

            def rests() -> bool:
                """Whether all its threads, no more than before, sleep."""
                stacks = read_stacks(process.pid)
                seen.append(len(stacks.threads))
                return seen[-10:] == [len(stacks.threads)] * 10 and all(
                    thread.state == "S" for thread in stacks.threads
                )

            eventually(rests)
            found = {
                one.tid: list(dict.fromkeys(frame.address for frame in one.frames))
                for one in read_stacks(process.pid).threads
            }
            expected = _by_gdb(process.pid, tmp_path)
        finally:
            process.kill()
    assert found == expected


SCRIPT = """
import gdb
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame, addresses = gdb.newest_frame(), []
    while frame is not None:
        # Neither has a call of its own.
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            addresses.append(frame.pc())
        frame = frame.older()
    print("STACK", thread.ptid[1], *addresses)
"""


def _by_gdb(pid: int, folder: Path) -> dict[int, list[int]]:
    """Return the addresses of the frames of all threads."""
    script = folder / "stacks.py"
    script.write_text(SCRIPT)
    command = ["gdb", "-batch", "-nx", "-ex", "set backtrace past-main on"]
    command += ["-ex", "set backtrace past-entry on", "-p", str(pid), "-x", str(script)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split()[1:] for line in printed.splitlines() if line.startswith("STACK")]
    return {int(tid): [int(one) for one in addresses] for tid, *addresses in rows}
