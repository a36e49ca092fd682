"""Circles of waits: told where they are, and only there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.e2e.harness import Background, children, eventually, is_blocked, need
from weft.model.thread_stacks import Deadlock, Stacks
from weft.program.stacks import read_stacks

Build: TypeAlias = Callable[[str], Path]


@contextmanager
def running(*command: str | Path) -> Iterator[Background]:
    with Background(command) as program:
        yield program


def is_at_rest(pid: int) -> bool:
    """Whether a process and its children sleep."""
    with suppress(OSError):
        return all(is_blocked(one) for one in (pid, *children(pid)))
    return False


def found_in(pid: int) -> Deadlock:
    """Return the only deadlock of a program that runs into one."""
    seen: list[Deadlock] = []

    def has_one() -> bool:
        eventually(lambda: is_at_rest(pid))
        seen[:] = read_stacks(pid).deadlocks
        return bool(seen)

    eventually(has_one)
    (one,) = seen
    return one


@pytest.mark.parametrize(("way", "size"), [("two", 2), ("three", 3), ("timed", 2)])
def test_threads_that_take_locks_in_turn(build: Build, way: str, size: int) -> None:
    with running(build("deadlocks"), way) as program:
        found = found_in(program.pid)
        eventually(lambda: len(read_stacks(program.pid).deadlocks[0].behind) == 1)
    assert sorted(one.name for one in found.threads) == [f"ring {at}" for at in range(size)]
    for one, following in zip(found.threads, (*found.threads[1:], found.threads[0]), strict=True):
        assert [holder.tid for holder in one.waits_for.holders] == [following.tid]
        assert one.at is not None and one.at.function == "take_second"
        assert one.at.location is not None and one.at.location.file.endswith("deadlocks.c")
        assert (one.waits_for.symbol or "").startswith("locks")
    assert found.certainty == ("likely" if way == "timed" else "certain")
    assert bool(found.doubts) == (way == "timed")


def test_a_thread_that_waits_for_itself(build: Build) -> None:
    with running(build("deadlocks"), "self") as program:
        found = found_in(program.pid)
    assert found.certainty == "certain"
    assert [one.tid for one in found.threads] == [program.pid]


def test_a_thread_that_joins_one_that_wants_its_lock(build: Build) -> None:
    with running(build("deadlocks"), "joined") as program:
        found = found_in(program.pid)
    assert found.certainty == "certain"
    assert sorted(one.waits_for.kind for one in found.threads) == ["lock", "thread"]


KINDS = {
    "pipes": ["descriptor", "descriptor"],
    "full_pipe": ["child", "descriptor"],
    "unix": ["descriptor", "descriptor"],
    "tcp": ["descriptor", "descriptor"],
    "files": ["file lock", "file lock"],
    "shared": ["lock", "lock"],
}


@pytest.mark.parametrize("way", KINDS)
def test_processes(build: Build, tmp_path: Path, way: str) -> None:
    files = [tmp_path / "first", tmp_path / "second"]
    for file in files:
        file.touch()
    with running(build("deadlocks"), way, *files) as program:
        found = found_in(program.pid)
        (child,) = children(program.pid)
        from_there = found_in(child)
    assert found.certainty == "certain", found
    assert {one.pid for one in found.threads} == {program.pid, child}
    assert sorted(one.waits_for.kind for one in found.threads) == KINDS[way]
    assert all(one.at is not None and one.at.location is not None for one in found.threads)
    assert {one.pid for one in from_there.threads} == {program.pid, child}


PARENT = """
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", "import sys; sys.stdout.write('x' * 10_000_000)"], stdout=subprocess.PIPE
)
print("ready", flush=True)
child.wait()
"""


def test_python_that_waits_for_a_child_whose_output_it_does_not_read() -> None:
    with running(sys.executable, "-c", PARENT) as program:
        found = found_in(program.pid)
    assert all(one.at is not None for one in found.threads)
    assert len({one.pid for one in found.threads}) == 2
    assert sorted(one.waits_for.kind for one in found.threads) == ["child", "descriptor"]


def none_in(pid: int) -> None:
    """Look several times at a program that is well."""
    eventually(lambda: is_at_rest(pid))
    for _ in range(3):
        stacks: Stacks = read_stacks(pid)
        assert stacks.deadlocks == (), stacks.deadlocks


@pytest.mark.parametrize("way", ["unix_timeout", "server", "pool", "own_pipe"])
def test_healthy_programs(build: Build, way: str) -> None:
    with running(build("deadlocks"), way) as program:
        none_in(program.pid)
        for child in children(program.pid):
            none_in(child)


def test_a_process_that_is_stopped_may_be_let_go(build: Build) -> None:
    with running(build("deadlocks"), "pipes") as program:
        found_in(program.pid)
        (child,) = children(program.pid)
        os.kill(child, signal.SIGSTOP)
        eventually(lambda: Path(f"/proc/{child}/stat").read_text().rpartition(")")[2][1] == "T")
        assert read_stacks(program.pid).deadlocks == ()
        os.kill(child, signal.SIGCONT)
        found_in(program.pid)


def test_contention_is_none(build: Build) -> None:
    with running(build("deadlocks"), "contention") as program:
        for _ in range(8):
            assert read_stacks(program.pid).deadlocks == ()


POOLS = """
import concurrent.futures, multiprocessing, sys
threads = concurrent.futures.ThreadPoolExecutor(3)
list(threads.map(abs, range(9)))
processes = concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork"))
list(processes.map(abs, range(9)))
print("ready", flush=True)
sys.stdin.read()
"""


def test_idle_pools_of_python() -> None:
    with running(sys.executable, "-c", POOLS) as program:
        none_in(program.pid)
        for child in children(program.pid):
            none_in(child)


@pytest.mark.parametrize("script", ["cat; true", "cat | cat", "sleep 600 | cat; true"])
def test_shells(script: str) -> None:
    """A shell that waits for its children, which wait for others."""
    reader, writer = os.pipe()
    with subprocess.Popen(
        ["sh", "-c", script], stdin=reader, stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            os.close(reader)
            eventually(lambda: bool(children(process.pid)))
            none_in(process.pid)
            for child in children(process.pid):
                none_in(child)
        finally:
            os.close(writer)
            os.killpg(process.pid, signal.SIGKILL)


def test_idle_redis(tmp_path: Path) -> None:
    need("redis-server")
    place = tmp_path / "socket"
    with subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", str(place)],
        stdout=subprocess.DEVNULL,
        cwd=tmp_path,
    ) as process:
        try:
            eventually(place.exists)
            for _ in range(3):
                assert read_stacks(process.pid).deadlocks == ()
        finally:
            process.kill()
