"""Waits whose length a program measures itself: weft says the same, and who is waited for."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any, TypeAlias

import pytest

import weft
from tests.e2e.harness import Background, eventually
from weft.model.sampled import SampledTime, ThreadTime
from weft.program.tasks import state

Build: TypeAlias = Callable[[str], Path]

SECONDS = 4.0
EXACT = 0.03
SAMPLED = 0.10
"""How far from the truth what is divided by some hundred samples may be: three times its spread."""


def again_if_busy(test: Callable[..., None]) -> Callable[..., None]:
    """Try up to four times: a machine that does something else for a while changes what is true."""

    @functools.wraps(test)
    def tried(*given: Any, **named: Any) -> None:
        for _ in range(3):
            with suppress(AssertionError):
                test(*given, **named)
                return
        test(*given, **named)

    return tried


@contextmanager
def waiting(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        yield program
        program.kill()


def sampled(program: subprocess.Popen[str]) -> tuple[weft.SampledProfile, float]:
    """What weft says, and for which share of the same time the program waited by its own clock."""
    assert program.stdin is not None
    assert program.stdout is not None
    tell = program.stdin.write
    began = False

    def begin() -> bool:
        nonlocal began
        if not began:
            tell("\n")
            began = True
        return True

    profile = weft.sample(
        program.pid, SECONDS, "wall", rate=199, budget=0.02, keep=True, every=begin
    )
    tell("\n")
    seconds, waited = map(float, program.stdout.readline().split())
    return profile, waited / seconds


def waiter(found: SampledTime) -> ThreadTime:
    return next(thread for thread in found.threads if thread.name == "waiter")


def waited(found: SampledTime, kind: str, function: str) -> float:
    """For which share of its time the waiter waited for something, in a function."""
    thread = waiter(found)
    places = [place for place in found.places if place.tid == thread.tid and place.wait is not None]
    seconds = [
        place.blocked
        for place in places
        if place.wait is not None
        and place.wait.kind == kind
        and function in [frame.function for frame in place.frames]
    ]
    return sum(seconds) / thread.seconds


@again_if_busy
def test_a_lock_that_is_held(build: Build) -> None:
    with waiting(build("known_waits"), "lock") as program:
        profile, truth = sampled(program)
        found = profile.time
        # The thread naps, too: what it does when is a matter of samples.
        assert waited(found, "lock", "want_it") == pytest.approx(truth, rel=SAMPLED)
        (lock,) = profile.contention().locks
        assert str(lock.lock) == "lock table_lock" and lock.longest == 1 and not lock.is_convoy
        assert lock.seconds / found.seconds == pytest.approx(truth, rel=SAMPLED)
        tids = {thread.name: thread.tid for thread in found.threads}
        assert lock.waiters == (tids["waiter"],)
        assert {holder.tid for holder in lock.holders} == {tids["holder"]}
        most = lock.held[0]
        assert most.holder is not None and most.holder.frame is not None
        assert most.waiter.frame is not None
        assert (most.waiter.frame.function, most.holder.frame.function) == ("want_it", "hold_it")
        assert most.holder.state == "blocked" and most.seconds > 0.6 * lock.seconds


@again_if_busy
def test_a_pipe_whose_writer_sleeps(build: Build) -> None:
    with waiting(build("known_waits"), "pipe") as program:
        profile, truth = sampled(program)
        found = profile.time
        thread = waiter(found)
        # It is blocked nowhere else: the kernel counts it. When it is woken it waits for its turn.
        # One that woke before its stack was read has that of where it was a moment later.
        assert waited(found, "descriptor", "read_it") == pytest.approx(
            thread.blocked / thread.seconds, abs=2 * EXACT
        )
        assert thread.blocked / thread.seconds <= truth + EXACT
        assert (thread.blocked + thread.runnable) / thread.seconds >= truth - EXACT
        assert profile.contention().locks == ()


@again_if_busy
def test_a_busy_disk(build: Build, tmp_path: Path) -> None:
    with waiting(build("known_waits"), "disk", tmp_path / "written") as program:
        profile, truth = sampled(program)
        thread = waiter(profile.time)
        inside = sum(
            place.blocked
            for place in profile.time.places
            if place.tid == thread.tid and place.call == "fsync"
        )
        # In fsync it runs as well; and it waits for its turn there, where no call can be seen.
        others = thread.running + thread.runnable + 0.05
        assert inside / thread.seconds <= truth + EXACT
        assert (inside + others) / thread.seconds >= truth - EXACT
        assert inside > 0.9 * thread.blocked


@again_if_busy
def test_more_threads_than_processors(build: Build) -> None:
    with waiting(build("known_waits"), "turns") as program:
        profile, truth = sampled(program)
        thread = waiter(profile.time)
        assert truth > 0.4
        assert thread.runnable / thread.seconds == pytest.approx(truth, rel=EXACT)
        assert thread.blocked < 0.05 * thread.seconds


def test_the_command(build: Build, tmp_path: Path) -> None:
    def run(*words: str) -> str:
        command = [sys.executable, "-m", "weft", "waits", str(program.pid), "--for", "1", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout

    with waiting(build("known_waits"), "lock") as program:
        text = run()
        assert "lock table_lock" in text and "waiter in want_it" in text
        assert "holder in hold_it" in text and "~ is an estimate" in text
        document = json.loads(run("--format", "json"))
        assert document["schema"] == 1 and document["pid"] == program.pid
        (lock,) = document["locks"]
        assert lock["name"] == "table_lock" and lock["kind"] == "lock" and not lock["convoy"]
        assert lock["waits"][0]["holder"]["function"] == "hold_it"
        assert lock["waits"][0]["waiter"]["threads"] == "waiter"
        named = {thread["name"]: thread for thread in document["threads"]}
        assert named["waiter"]["waits"][0]["for"] == "lock table_lock"
        page = tmp_path / "waits.html"
        run("-o", str(page))
        assert "want_it" in page.read_text() and "table_lock" in page.read_text()


@again_if_busy
def test_a_program_from_its_start(build: Build) -> None:
    command = [sys.executable, "-m", "weft", "waits", "--format", "json", "--", "sleep", "0.3"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == ""
    document = json.loads(done.stderr)
    assert document["locks"] == [] and document["seconds"] > 0
    (thread,) = document["threads"]
    assert thread["waits"][0]["for"] == "timer"
    command = [sys.executable, "-m", "weft", "waits", "--for", "1", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "--for is for processes" in done.stderr


@pytest.mark.parametrize("words", [["stacks"], ["profile", "--cpu"], ["waits"], ["why"]])
def test_what_is_no_process(words: list[str]) -> None:
    """Id 0, and threads of the kernel, if they can be seen here."""
    kernel = [
        file.parent.name
        for file in Path("/proc").glob("[0-9]*/stat")
        if int(file.read_text().rpartition(")")[2].split()[6]) & 0x200000
    ]
    for pid in ["0", *kernel[:1]]:
        command = [sys.executable, "-m", "weft", words[0], pid, *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 3, done.stderr
        assert f"{pid} is no process of user space" in done.stderr


@pytest.mark.parametrize("command", ["why", "waits", "profile"])
def test_what_cannot_be_started_or_written(command: str, tmp_path: Path) -> None:
    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        whole = [sys.executable, "-m", "weft", command, *map(str, words)]
        return subprocess.run(whole, capture_output=True, text=True)

    done = run("--", tmp_path / "absent")
    assert done.returncode == 3 and "cannot be started" in done.stderr
    # The ending of another command's format.
    done = run("-o", tmp_path / "x.parquet", "--", "true")
    assert done.returncode == 2 and f"weft {command} does not write parquet" in done.stderr
    assert not any(tmp_path.iterdir())


@again_if_busy
def test_a_process_that_is_stopped_for_a_while(build: Build) -> None:
    """What its threads wait for when they go on is found, and that it was stopped is said."""
    with waiting(build("known_waits"), "lock") as program:
        os.kill(program.pid, signal.SIGSTOP)
        timer = Timer(0.7, os.kill, (program.pid, signal.SIGCONT))
        timer.start()
        profile = weft.sample(program.pid, 2, "wall", rate=199)
        timer.join()
        assert any("the process was stopped at" in note for note in profile.notes)
        (lock,) = profile.contention().locks
        assert lock.lock.name == "table_lock" and lock.seconds > 0.2


def test_threads_that_come_and_go(build: Build) -> None:
    """What was not seen of them is said, and no time is made up."""
    with Background([build("short_threads")]) as program:
        program.wait_for_line(b"ready")
        found = weft.sample(program.pid, 1.5, "wall", rate=19).time
        assert any("ended meanwhile" in note for note in found.notes)
        assert any("that were not seen" in note for note in found.notes)
        for thread in found.threads:
            if thread.tid != program.pid:
                assert thread.seconds < 0.5, thread


def test_a_first_thread_that_has_ended(build: Build) -> None:
    with Background([build("first_ends")]) as program:
        program.wait_for_line(b"ready")
        eventually(lambda: state(program.pid, program.pid) == "Z")
        found = weft.sample(program.pid, 0.5, "wall").time
        assert found.threads and any(place.frames for place in found.places)


def test_who_ends_it_is_told(build: Build) -> None:
    with waiting(build("known_waits"), "lock") as program:
        looks = iter([True, True, False])
        profile = weft.sample(program.pid, 20, "wall", every=lambda: next(looks))
        assert any("of 20 s" in note for note in profile.notes)
