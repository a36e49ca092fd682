"""The attach zoo: no program notices that weft came and went.

Every program works until its input ends, checks itself all the while, and then prints what came of
it and ends with the exit code 7. It must do so with weft as it does alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

import weft
from tests.e2e.harness import (
    NOBODY,
    PROGRAMS,
    Background,
    Footprint,
    children,
    code,
    eventually,
    is_blocked,
    need,
    threads,
)
from weft import errors
from weft.model.program import Pong

Build = Callable[[str], Path]
Command = list[str | Path]

CYCLES = 10

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes users or reads filters")


@dataclass(frozen=True)
class Animal:
    """A program of the zoo."""

    name: str
    command: Callable[[Build], Command]
    makes_code: bool = False
    """Whether it is forever changing its own code, as just-in-time compilers do."""


def native(name: str) -> Animal:
    return Animal(name, lambda build: [build(name)])


def java(collector: str) -> Animal:
    # Few helper threads and a small heap: the collector is to be busy, not the machine.
    options = [f"-XX:+Use{collector}GC", "-Xmx64m", "-XX:ActiveProcessorCount=2"]
    return Animal(
        f"java_{collector.lower()}",
        lambda build: ["java", *options, "-cp", build("java"), "Workload"],
        makes_code=True,
    )


def interpreted(interpreter: str, file: str, makes_code: bool = False) -> Animal:
    return Animal(interpreter, lambda _: [interpreter, PROGRAMS / file], makes_code)


ZOO = [
    *map(native, ["pie", "non_pie", "static", "static_pie", "musl", "musl_static"]),
    *map(native, ["goroutines", "channels", "exceptions"]),
    Animal("python", lambda _: [sys.executable, PROGRAMS / "workload.py"]),
    interpreted("perl", "workload.pl"),
    interpreted("node", "workload.js", makes_code=True),
    java("G1"),
    java("Serial"),
]

BLOCKING_CALLS = [
    "read",
    "poll",
    "poll-timeout",
    "ppoll",
    "ppoll-timeout",
    "pselect",
    "pselect-timeout",
    "epoll_wait",
    "epoll_wait-timeout",
    "futex",
    "futex-timeout",
    "futex-deadline",
    "nanosleep",
    "clock_nanosleep",
    "clock_nanosleep-deadline",
    "wait4",
    "accept",
    "sigsuspend",
    "pause",
    "rt_sigtimedwait",
    "rt_sigtimedwait-timeout",
    "semop",
    "semtimedop-timeout",
    "recv-timeout",
]
TIMEOUT = 1.0
"""The timeout of the calls above that have one, in seconds."""

STARTS_ANEW = {
    "epoll_wait-timeout",
    "rt_sigtimedwait-timeout",
    "semtimedop-timeout",
    "recv-timeout",
}
"""Calls whose deadline the kernel forgets when their thread is stopped: they may end late."""

STANDS_STILL = {"ppoll-timeout", "pselect-timeout"}
"""Calls that do not count the time for which their thread stood still, as after any other stop."""

every_animal = pytest.mark.parametrize("animal", ZOO, ids=lambda animal: animal.name)
every_call = pytest.mark.parametrize("call", BLOCKING_CALLS)


def attach_ping_detach(pid: int) -> tuple[list[Pong], float]:
    """Go through one life of a session: what the threads answered, how long they stood still."""
    with weft.attach(pid) as session:
        pongs = session.ping()
    tids = [pong.tid for pong in pongs]
    assert pid in tids
    assert len(tids) == len(set(tids))
    return pongs, stood_still(session)


def stood_still(session: weft.Session) -> float:
    return sum(pause.seconds for pause in session.pauses())


def all_answered(pongs: list[Pong], pid: int) -> bool:
    """Say whether every thread of a quiet process answered."""
    return {pong.tid for pong in pongs if pong.answered} == threads(pid)


def has_timeout(call: str) -> bool:
    return call.endswith(("timeout", "deadline", "nanosleep"))


def visits(call: str) -> Iterator[int]:
    """Count the visits to a blocked call: some, or if it has a timeout until shortly before it."""
    end = time.monotonic() + 0.85 * TIMEOUT
    count = 0
    while count < CYCLES or (has_timeout(call) and time.monotonic() < end):
        count += 1
        yield count


def lateness(call: str, outcome: tuple[int, str], last_visit: float, still: float) -> float:
    """Check that a blocked call came back right: how many seconds after its deadline."""
    exit_code, output = outcome
    times = re.fullmatch(r"ready\nright from (\d+) to (\d+)\n", output)
    assert exit_code == 7, output
    assert times, output
    if not has_timeout(call):
        return 0.0
    start, end = (int(milliseconds) / 1000 for milliseconds in times.groups())
    if call in STARTS_ANEW:
        return end - (last_visit + TIMEOUT)
    allowance = still if call in STANDS_STILL else 0.0
    return end - max(start + TIMEOUT + allowance, last_visit)


def in_time(attempt: Callable[[], float]) -> bool:
    """Say whether a call was in time, as far as a busy machine can tell: late thrice is late.

    The limit is too little for a timeout that started anew.
    """
    return any(attempt() < TIMEOUT / 2 for _ in range(3))


@contextmanager
def started_by_weft(command: Command) -> Iterator[tuple[weft.Session, IO[bytes], IO[bytes]]]:
    """Start a program: its session, and our ends of its standard input and output."""
    stdin, our_stdin = os.pipe()
    our_stdout, stdout = os.pipe()
    with os.fdopen(our_stdin, "wb") as source, os.fdopen(our_stdout, "rb") as sink:
        try:
            session = weft.run([str(word) for word in command], stdin=stdin, stdout=stdout)
        finally:
            os.close(stdin)
            os.close(stdout)
        with session:
            yield session, source, sink


def alone(command: Command) -> tuple[int, str]:
    """Return the exit code and the output of a program that weft never saw."""
    need(command[0])
    with Background(command) as background:
        outcome = background.finish()
    assert outcome[0] == 7, outcome
    return outcome


@every_animal
def test_attach(animal: Animal, build: Build) -> None:
    command = animal.command(build)
    expected = alone(command)
    with Background(command) as background:
        before = code(background.pid)
        for _ in range(CYCLES):
            attach_ping_detach(background.pid)
        if not animal.makes_code:
            assert code(background.pid) == before
        assert background.finish() == expected


@every_animal
def test_run(animal: Animal, build: Build) -> None:
    command = animal.command(build)
    expected = alone(command)
    with started_by_weft(command) as (session, stdin, stdout):
        assert [pong.tid for pong in session.ping()] == [session.pid]
        session.resume()
        output = stdout.readline()
        session.ping()
        stdin.close()
        output += stdout.read()
        assert (session.wait(), output.decode()) == expected


@every_call
def test_attach_to_a_blocked_thread(call: str, build: Build) -> None:
    def attempt() -> float:
        with Background([build("blocked"), call]) as background:
            eventually(lambda: is_blocked(background.pid))
            before = Footprint.of(background.pid)
            still = 0.0
            for _ in visits(call):
                pongs, seconds = attach_ping_detach(background.pid)
                assert all_answered(pongs, background.pid)
                still += seconds
            last_visit = time.monotonic()
            eventually(lambda: is_blocked(background.pid))
            assert Footprint.of(background.pid) == before
            return lateness(call, background.finish(), last_visit, still)

    assert in_time(attempt)


@every_call
def test_ping_a_blocked_thread(call: str, build: Build) -> None:
    """The same within one session, which the call ends in or is released in."""

    def attempt() -> float:
        with Background([build("blocked"), call]) as background:
            eventually(lambda: is_blocked(background.pid))
            with weft.attach(background.pid) as session:
                for _ in visits(call):
                    assert all_answered(session.ping(), background.pid)
                last_visit = time.monotonic()
                # What a thread waits for may not come while it is on its way back into its call:
                # a futex is then another one than it was asked to wait for.
                eventually(lambda: is_blocked(background.pid))
                outcome = background.finish()
                return lateness(call, outcome, last_visit, stood_still(session))

    assert in_time(attempt)


def test_every_blocking_call_is_tried(build: Build) -> None:
    modes = subprocess.run([build("blocked")], stdout=subprocess.PIPE, check=True, text=True)
    assert modes.stdout.split() == BLOCKING_CALLS


@needs_root
def test_attach_across_namespaces(build: Build) -> None:
    """The program's file exists only in its own mount namespace."""
    program = build("pie")
    inside = f"mount -t tmpfs tmpfs /mnt && cp {program} /mnt/alien && exec /mnt/alien"
    namespaces = ["--user", "--map-root-user", "--pid", "--fork", "--mount", "--mount-proc"]
    with Background(["unshare", *namespaces, "sh", "-c", inside]) as background:
        (alien,) = children(background.pid)
        before = code(alien)
        for _ in range(CYCLES):
            attach_ping_detach(alien)
        assert code(alien) == before
        assert background.finish() == (7, "ready\nall is well\n")


ATTACH_BY_NOBODY = """
import os
from weft import Session, attach  # while their modules can be read
os.setgroups([]), os.setresgid(*[{user}] * 3), os.setresuid(*[{user}] * 3)
for _ in range({cycles}):
    with attach({pid}) as session:
        assert {pid} in [pong.tid for pong in session.ping()]
"""


@needs_root
def test_ordinary_user_attaches_to_an_own_process(build: Build) -> None:
    identity: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    with Background([build("pie")], **identity) as background:
        # Python is loaded by root, as other users may not be able to read it.
        script = ATTACH_BY_NOBODY.format(user=NOBODY, pid=background.pid, cycles=CYCLES)
        subprocess.run([sys.executable, "-c", script], check=True)
        assert background.finish() == (7, "ready\nall is well\n")


@needs_root
@pytest.mark.parametrize(("mode", "action"), [("errno", "EPERM"), ("kill", "death")])
def test_a_filter_that_forbids_is_respected(mode: str, action: str, build: Build) -> None:
    with Background([build("seccomp"), mode]) as background:
        eventually(lambda: is_blocked(background.pid))
        before = Footprint.of(background.pid)
        with pytest.raises(errors.SeccompForbids) as caught:
            weft.attach(background.pid)
        assert "mmap" in caught.value.why
        assert action in caught.value.why
        eventually(lambda: is_blocked(background.pid))
        assert Footprint.of(background.pid) == before
        assert background.finish() == (7, "ready\nunharmed\n")


@needs_root
def test_a_filter_that_permits_does_no_harm(build: Build) -> None:
    with Background([build("seccomp"), "allow"]) as background:
        pongs, _ = attach_ping_detach(background.pid)
        assert all_answered(pongs, background.pid)
        assert background.finish() == (7, "ready\nunharmed\n")
