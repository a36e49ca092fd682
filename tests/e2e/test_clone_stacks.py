"""The stacks of a process that runs from a clone: the program's calls, and nothing of weft's."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

import weft
from tests.e2e.harness import answers, free_port, need, redis_clients, server
from tests.e2e.test_stacks import OWN, WAYS, by_name, functions, rest, waiting
from weft.cli.stacks import rendered
from weft.model.thread_stacks import Stacks, ThreadStack
from weft.program.frames import SIGNAL
from weft.program.stacks import StackReader, read_stacks

Build: TypeAlias = Callable[[str], Path]

KINDS = ["O2", "O0", "static", "frame_pointers", "musl"]

LOOP = {"recursive": {"recursive"}, "middle": {"recursive"}, "framed": {"middle"}}
LOOP |= {"leaf": {"middle", "framed"}, "other_leaf": {"middle"}}
CALLERS: list[dict[str, set[str]]] = [
    LOOP | {"recursive": {"recursive", "in_calls"}, "in_calls": {"begin"}},
    {"compare": {"in_library"}, "in_library": {"begin"}},
    {"in_system_calls": {"begin"}},
    *(
        LOOP
        | {
            "recursive": {"recursive", "interrupted"},
            "middle": {"recursive", "on_signal"},
            "on_signal": {SIGNAL},
            SIGNAL: {*LOOP, "interrupted"},
            "interrupted": {"with_timer", name},
            "with_timer": {name},
            name: {"begin"},
        }
        for name in ("in_signals", "in_other_stack")
    ),
]
"""By whom the functions of each thread of ``hot_stacks.c`` are called."""


@contextmanager
def launched(path: Path) -> Iterator[int]:
    """The same as ``waiting``, for a program that runs from a clone from the start."""
    (own_in, given), (taken, own_out) = os.pipe(), os.pipe()
    with (
        os.fdopen(own_in) as stdin,
        os.fdopen(own_out) as stdout,
        os.fdopen(given, "w") as into,
        os.fdopen(taken) as out,
        weft.run([path], weaver="clone", stdin=stdin, stdout=stdout) as program,
    ):
        stdin.close()
        stdout.close()
        assert out.readline() == "ready\n"
        yield program.pid
        into.close()
        assert out.read() == "done\n"
        assert program.wait(60) == 0


def check_ways(stacks: Stacks) -> None:
    found = by_name(stacks)
    for number, expected in enumerate(WAYS):
        thread = found[f"way {number}"]
        own = [name for name in functions(thread) if name in OWN]
        assert own == expected and thread.is_whole, (number, thread)
        assert not any(frame.is_guess for frame in thread.frames)
        assert thread.call is not None or expected[0] == "in_loop"


@pytest.mark.parametrize("kind", KINDS)
def test_attached(build: Build, kind: str) -> None:
    path = build(f"stacks_{kind}")
    with waiting(path) as pid:
        rest(pid)
        native = by_name(read_stacks(pid))
        with weft.attach(pid, weaver="clone") as cloned:
            rest(pid)
            for _ in range(5):
                stacks = cloned.stacks()
                check_ways(stacks)
                for name, thread in by_name(stacks).items():
                    # All but the one that runs are where they were, to the instruction.
                    if name != "way 6":
                        assert thread.frames == native[name].frames
        rest(pid)
        check_ways(read_stacks(pid))


@pytest.mark.parametrize("kind", KINDS)
def test_launched(build: Build, kind: str) -> None:
    with launched(build(f"stacks_{kind}")) as pid:
        rest(pid)
        for _ in range(5):
            check_ways(read_stacks(pid))


def test_by_another_weft(build: Build) -> None:
    """A process that a weft has in a clone, seen by another one."""
    command = [sys.executable, "-m", "weft", "stacks"]
    with launched(build("stacks_O2")) as pid:
        done = subprocess.run([*command, str(pid)], capture_output=True, text=True, check=True)
    assert "in_recursion" in done.stdout and "on_signal" in done.stdout
    assert "[truncated" not in done.stdout
    # An address stands for a frame that has no name.
    assert not any(line.startswith("    0x") for line in done.stdout.splitlines())


DYING = """
import os, signal, sys, weft
program = weft.attach(int(sys.argv[1]), weaver="clone")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_of_a_weft_that_was_killed(build: Build) -> None:
    with waiting(build("stacks_O2")) as pid:
        subprocess.run([sys.executable, "-c", DYING, str(pid)], check=False)
        rest(pid)
        check_ways(read_stacks(pid))


@pytest.mark.parametrize("measured", [(), ("leaf", "recursive", "on_signal")])
def test_what_is_measured(build: Build, measured: tuple[str, ...]) -> None:
    """Threads in snippets, and in code that is flushed all the time."""
    with (
        waiting(build("hot_stacks")) as pid,
        weft.attach(pid, weaver="clone", cache_size=1 << 16) as cloned,
    ):
        for name in measured:
            cloned.session.metric("calls", f"/Code/hot_stacks/{name}")
        reader, whole = StackReader(pid), 0
        for _ in range(50):
            found = by_name(reader.read(waits=False))
            for number, callers in enumerate(CALLERS):
                thread = found[f"way {number}"]
                assert is_plausible(thread, callers) if thread.is_whole else not thread.frames
                whole += thread.is_whole
        assert whole


def is_plausible(thread: ThreadStack, callers: dict[str, set[str]]) -> bool:
    names = functions(thread)
    own = [name for name in names if name in callers or name == "begin"]
    # What starts a thread has no caller of the program's.
    calls = itertools.pairwise(own)
    return own[-1:] == ["begin"] and all(outer in callers.get(inner, ()) for inner, outer in calls)


@pytest.mark.parametrize("way", ["attached", "launched"])
def test_threads_that_never_rest(build: Build, way: str) -> None:
    """Wherever one looks, the calls are those that the program makes."""
    path = build("hot_stacks")
    innermost: list[Counter[str | None]] = [Counter() for _ in CALLERS]
    with waiting(path) if way == "attached" else launched(path) as pid:
        cloned = weft.attach(pid, weaver="clone") if way == "attached" else None
        reader = StackReader(pid)
        for _ in range(200):
            stacks = reader.read(waits=False)
            found = by_name(stacks)
            for number, callers in enumerate(CALLERS):
                thread = found[f"way {number}"]
                if thread.is_whole:
                    assert is_plausible(thread, callers), "\n".join(map(str, rendered(stacks)))
                    innermost[number][thread.frames[0].function] += 1
                else:
                    # Where it cannot be told, nothing is made up.
                    assert not thread.frames and thread.cut is not None, thread
                    assert "engine" in thread.cut or "system call" in thread.cut, thread
        if cloned is not None:
            cloned.release()
    assert all(innermost) and len(innermost[0]) > 1, innermost


def test_redis_under_load(tmp_path: Path) -> None:
    need("redis-server", "redis-benchmark")
    port = free_port()
    options = ["--port", str(port), "--save", "", "--dir", str(tmp_path)]
    with (
        server(["redis-server", *options], lambda: answers(port)) as pid,
        weft.attach(pid, weaver="clone"),
        redis_clients(port, "set", "get", "incr"),
    ):
        whole, reader = 0, StackReader(pid)
        for _ in range(50):
            stacks = reader.read(waits=False)
            for thread in stacks.threads:
                if thread.is_whole and thread.tid == pid:
                    assert functions(thread)[-1] == "_start", thread
                    whole += 1
                # A thread that is being started has no caller yet, and no rule says so.
                is_young = functions(thread)[:1] == ["clone3"]
                assert thread.is_whole or not thread.frames or is_young, thread
        assert whole
