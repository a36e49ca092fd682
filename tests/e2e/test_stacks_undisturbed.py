"""Stacks are read without the program's noticing: no call takes longer, nothing stands still."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

import weft
from tests.e2e.harness import Background, eventually
from weft import _native
from weft.errors import NoSuchProcess, TargetGone
from weft.model.thread_stacks import Stacks
from weft.program.stacks import StackReader, read_stacks

Build: TypeAlias = Callable[[str], Path]

CALLS = ["epoll_wait", "semtimedop", "recvfrom", "accept", "rt_sigtimedwait", "clock_nanosleep"]


@pytest.mark.parametrize("kind", ["timed_calls", "timed_calls_O0"])
@pytest.mark.parametrize("call", CALLS)
def test_timeouts_are_not_begun_anew(build: Build, kind: str, call: str) -> None:
    """As long as it is looked at, a call that is restarted never ends."""
    with subprocess.Popen([build(kind), call], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reader, deadline = StackReader(process.pid), time.monotonic() + 20
        found: list[Stacks] = []
        try:
            while process.poll() is None and time.monotonic() < deadline:
                found.append(reader.read())
                time.sleep(0.1)
        except (NoSuchProcess, TargetGone):
            pass
        finally:
            seconds = float(process.stdout.readline())
            process.kill()
    # As long as the machine may be busy.
    assert seconds < 10
    first = [one.threads[0] for one in found if one.threads]
    names = {one.call.name for one in first if one.call is not None}
    # Also of one that was stopped for its frame pointer, which the kernel restarts.
    assert call in names and "restart_syscall" not in names
    asleep = [one for one in first if one.call is not None and one.call.name == call]
    limits = {one.waits_for.timeout for one in asleep if one.waits_for is not None}
    # What is read of one that has ended meanwhile has none.
    assert limits <= {2.0, None} and 2.0 in limits
    for thread in asleep:
        functions = [frame.function for frame in thread.frames]
        if not any(functions):
            # It has ended before its files were read for names.
            continue
        # Without a stop, a frame pointer is not known: then the stack says so.
        assert "main" in functions or thread.cut is not None, thread
        assert "main" in functions or kind == "timed_calls_O0"


@pytest.mark.parametrize("kind", ["vforks", "vforks_musl"])
def test_a_thread_in_vfork_does_not_hold_up_the_others(build: Build, kind: str) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([build(kind)], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            eventually(lambda: any(state == "D" for *_, state in _native.threads(process.pid)))
            for _ in range(3):
                (waiting,) = (
                    one
                    for one in read_stacks(process.pid).threads
                    if one.call is not None and one.call.name == "vfork"
                )
                names = [frame.function for frame in waiting.frames]
                # The first may have no name, where the library was stripped.
                assert names[1:3] == ["in_vfork", "wait_for_child"], waiting
                assert waiting.is_whole or kind == "vforks_musl", waiting
            process.stdin.close()
            longest = float(process.stdout.readline())
        finally:
            process.kill()
    assert longest < 1


def test_a_program_that_becomes_another_is_not_held_up(build: Build) -> None:
    """Its other threads have to end first, and who holds one of them must let go."""
    with subprocess.Popen([build("execs"), "100000"]) as process:
        try:
            for _ in range(40):
                assert sum(read_stacks(process.pid, waits=False).pauses) < 1
        finally:
            process.kill()


@pytest.mark.parametrize("nap", [50, 400, 1500])
def test_a_deep_stack_is_whole_however_often_its_thread_wakes(build: Build, nap: int) -> None:
    """It was left as far as it was known when the thread woke, or went to sleep, in between."""
    with Background([build("deep_naps"), str(nap)]) as program:
        program.wait_for_line(b"ready")
        for _ in range(60):
            (thread,) = read_stacks(program.pid, waits=False).threads
            names = [frame.function for frame in thread.frames]
            assert thread.is_whole and names.count("in_recursion") == 2001, thread.cut


@pytest.mark.parametrize("how", ["stacks", "profile"])
def test_long_calls_are_not_cut_short(how: str) -> None:
    """A stop would make one that is at work for long come back with less than it was asked for."""
    count = 24
    command = ["dd", "if=/dev/urandom", "of=/dev/null", "bs=16M", f"count={count}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        seen = set[str | None]()
        try:
            if how == "profile":
                sampled = weft.sample(process.pid, 20, "wall", rate=500, budget=1)
                seen = {one.function for place in sampled.time.places for one in place.frames}
            while process.poll() is None:
                found = read_stacks(process.pid).threads
                seen.update(frame.function for one in found for frame in one.frames)
        except (NoSuchProcess, TargetGone):
            pass
        _, errors = process.communicate()
    assert f"{count}+0 records in" in errors
    assert "read" in seen
