"""The stacks of a process: what its threads are in, as they know and as GDB sees it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

import weft
from tests.e2e.harness import eventually
from weft import _native
from weft.model.thread_stacks import Stacks, ThreadStack
from weft.program.frames import PROBE, SIGNAL
from weft.program.stacks import StackReader, read_stacks

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


@pytest.mark.parametrize("kind", ["", "_stripped"])
def test_goroutines(build: Build, kind: str) -> None:
    """Go has frame pointers; without its symbol table, its own tables have the names."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [build(f"stacks_go{kind}")], stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            expected = [*["main.innermost"] * 6, "main.outer", "main.main", "runtime.main"]

            def is_found() -> bool:
                threads = read_stacks(process.pid).threads
                names = [functions(one) for one in threads if "main.main" in functions(one)]
                names = [[name.removesuffix(".abi0") for name in one] for one in names]
                # It may not be in the call yet.
                return bool(names) and names[0][-10:] == [*expected, "runtime.goexit"]

            eventually(is_found)
            process.stdin.close()
            assert process.stdout.read() == "done\n"
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_threads_that_wake_all_the_time_are_there(build: Build) -> None:
    """Each is in a call that must not be disturbed, and hardly stays in one while it is read."""
    with subprocess.Popen(
        [build("gaps"), "12", "50"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            reader = StackReader(process.pid)
            for _ in range(LOOKS):
                threads = reader.read(waits=False).threads
                assert len(threads) == 12
                assert all(one.frames or one.cut is not None for one in threads)
        finally:
            process.kill()


LOOKS = 40


def test_probes_are_not_seen(build: Build) -> None:
    """A thread in a probe is in the function that it belongs to, as the program would have it."""
    with subprocess.Popen(
        [build("stack_spins")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        try:
            seen = set()
            with weft.attach(process.pid) as session:
                metrics = [
                    session.metric(name, "/Code/stack_spins/innermost")
                    for name in ("calls", "inclusive_time", "latency")
                ]
                for _ in range(LOOKS):
                    (spinning,) = (
                        one for one in session.stacks().threads if one.tid != process.pid
                    )
                    assert spinning.is_whole
                    found = [name for name in functions(spinning) if name in (PROBE, *SPINNING)]
                    assert found in (SPINNING, SPINNING[1:], [PROBE, *SPINNING[1:]]), spinning
                    seen.add(found[0])
                assert metrics[0].value
            assert "innermost" in seen
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()


SPINNING = ["innermost", "spins", "begin"]


def test_a_thread_that_must_not_be_stopped_says_what_is_not_known(build: Build) -> None:
    """A write that is stopped would come back short; and without a stop, nobody knows `rbp`."""
    with subprocess.Popen([build("full_pipe")], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            eventually(lambda: read_stacks(process.pid).threads[0].state == "S")
            (thread,) = read_stacks(process.pid).threads
            assert thread.call is not None and thread.call.name == "write"
            is_whole = "main" in functions(thread)
            assert is_whole or thread.cut is not None, thread
        finally:
            process.kill()
