"""What threads wait for: each kind, as the program that waits knows it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.e2e.harness import Background, eventually, is_blocked, need, threads
from weft.model.stacks import StackFrame
from weft.model.thread_stacks import ThreadStack
from weft.model.waits import Wait
from weft.program.descriptors import Ends
from weft.program.futexes import is_c_library
from weft.program.live_modules import live_modules
from weft.program.stacks import StackReader, read_stacks
from weft.program.waits import Waits

Build: TypeAlias = Callable[[str], Path]


@contextmanager
def waiting(*command: str | Path, **options: Any) -> Iterator[Background]:
    """Run a program until all its threads sleep; at the end it must not have noticed anything."""
    with Background(command, **options) as program:
        eventually(lambda: is_blocked(program.pid))
        yield program
        code, printed = program.finish()
        assert (code, printed) == (0, "ready\ndone\n")


def by_name(pid: int) -> dict[str, ThreadStack]:
    return {thread.name: thread for thread in read_stacks(pid).threads}


def waits(pid: int) -> dict[str, Wait]:
    found = {name: thread.waits_for for name, thread in by_name(pid).items()}
    assert None not in found.values()
    return {name: wait for name, wait in found.items() if wait is not None}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    path = tmp_path / "locked"
    path.touch()
    os.mkfifo(f"{path}.fifo")
    return path


IN_FUTEX = 16
"""How many threads of the program are in the end, its holder among them."""


def in_its_ways(pid: int) -> bool:
    """Whether the threads have got from the barrier to where they will stay."""
    calls = [Path(f"/proc/{pid}/task/{tid}/syscall").read_text() for tid in threads(pid)]
    return sum(call.startswith("202 ") for call in calls) == IN_FUTEX and is_blocked(pid)


OWNED = {
    "normal": "mutex normal_lock",
    "recursive": "recursive mutex recursive_lock",
    "checking": "error-checking mutex checking_lock",
    "adaptive": "adaptive mutex adaptive_lock",
    "inheriting": "mutex with priority inheritance inheriting_lock",
    "robust": "robust mutex robust_lock",
    "shared": "process-shared mutex",
    "timed": "mutex timed_lock",
    "reader": "read-write lock write_held",
    "writer": "read-write lock write_held",
}
"""The threads that wait for a lock of a known owner, and how the lock is called."""
KINDS = {
    "behind_readers": "read-write lock",
    "condition": "condition",
    "semaphore": "semaphore",
    "barrier": "barrier",
    "join": "thread",
    "pipe": "descriptor",
    "full_pipe": "descriptor",
    "closed_socket": "descriptor",
    "poll": "descriptor",
    "select": "descriptor",
    "epoll": "descriptor",
    "timerfd": "descriptor",
    "signalfd": "descriptor",
    "child": "child",
    "sleep": "timer",
    "pause": "signal",
    "sigwait": "signal",
    "flock": "file lock",
    "fifo": "file",
}


@pytest.mark.parametrize("kind", ["waits", "waits_static"])
def test_each_kind(build: Build, files: Path, kind: str) -> None:
    with waiting(build(kind), files) as program:
        eventually(lambda: in_its_ways(program.pid))
        found = waits(program.pid)
        holder = by_name(program.pid)["holder"]
    for name, text in OWNED.items():
        wait = found[name]
        assert wait.kind == ("read-write lock" if name in ("reader", "writer") else "lock")
        assert wait.text.startswith(text), wait
        (one,) = wait.holders
        assert (one.pid, one.tid, one.name) == (program.pid, holder.tid, "holder")
        assert one.sure == "sure" and wait.doubt is None, wait
        assert wait.only_holders == (name != "timed")
        if name != "shared":
            assert wait.symbol is not None and wait.address is not None
    assert 3000 < (found["timed"].timeout or 0) <= 3600
    assert {name: found[name].kind for name in KINDS} == KINDS
    assert found["join"].holders[0].tid == holder.tid
    assert found["condition"].symbol == "condition" and not found["condition"].holders
    assert found["behind_readers"].doubt is not None and not found["behind_readers"].holders
    assert found["sleep"].timeout == 3600
    assert found["poll"].timeout == 3600
    assert [one.kind for one in found["poll"].descriptors] == ["pipe", "eventfd"]
    assert [one.kind for one in found["select"].descriptors] == ["inotify"]
    (epoll,) = found["epoll"].descriptors
    assert epoll.kind == "epoll" and [one.kind for one in epoll.watches] == ["eventfd"]
    assert found["pipe"].descriptors[0].direction == "read"
    assert found["full_pipe"].descriptors[0].direction == "write"
    assert program.pid in [one.pid for one in found["pipe"].holders]
    assert found["closed_socket"].descriptors[0].protocol == "unix"
    assert found["child"].holders[0].pid != program.pid
    assert program.pid in [one.pid for one in found["flock"].holders]
    assert str(files) in found["flock"].text and f"{files}.fifo" in found["fifo"].text


def test_a_c_library_without_names(build: Build, files: Path) -> None:
    """What the program has called tells it then, and what is in memory."""
    with waiting(build("waits"), files) as program:
        eventually(lambda: in_its_ways(program.pid))
        modules = live_modules(program.pid)
        threads = read_stacks(program.pid, waits=False).threads
        nameless = [replace(one, frames=tuple(map(without_name, one.frames))) for one in threads]
        found = Waits(program.pid, modules, Ends()).of(nameless)
        holder = next(one.tid for one in threads if one.name == "holder")
    by_thread = {one.name: wait for one, wait in zip(threads, found, strict=True)}
    for name, text in OWNED.items():
        wait = by_thread[name]
        assert wait is not None and wait.text.startswith(text), wait
        assert [one.tid for one in wait.holders] == [holder]
    for name in ("condition", "semaphore", "barrier", "join"):
        wait = by_thread[name]
        assert wait is not None and wait.kind == KINDS[name], wait


def without_name(frame: StackFrame) -> StackFrame:
    return replace(frame, function=None) if is_c_library(frame.module) else frame


@pytest.mark.parametrize("kind", ["waits_musl", "waits_musl_static"])
def test_musl(build: Build, files: Path, kind: str) -> None:
    """Its plain mutexes do not say who holds them, and that is said."""
    with waiting(build(kind), files) as program:
        eventually(lambda: in_its_ways(program.pid))
        found = waits(program.pid)
        holder = by_name(program.pid)["holder"].tid
    for name in ("recursive", "checking", "robust", "inheriting"):
        assert [one.tid for one in found[name].holders] == [holder], found[name]
    for name in ("normal", "shared"):
        assert found[name].kind == "lock" and not found[name].holders
        assert "does not say who holds it" in (found[name].doubt or "")
    assert found["sleep"].timeout == 3600 and found["sleep"].kind == "timer"
    # Its functions are not always found, and nothing is guessed then.
    for name in ("behind_readers", "condition", "semaphore", "barrier", "join"):
        assert found[name].kind in (KINDS[name], "futex") and not found[name].holders
    for name in ("reader", "writer"):
        assert found[name].kind in ("read-write lock", "futex") and not found[name].holders
    for name in ("pipe", "full_pipe", "poll", "epoll", "child", "pause", "flock"):
        assert found[name].kind == KINDS[name]


def test_cpp(build: Build) -> None:
    with waiting(build("locks_cpp")) as program:
        found = waits(program.pid)
    (holder,) = found["mutex"].holders
    assert (holder.tid, found["mutex"].symbol) == (program.pid, "held")
    assert found["condition"].kind == "condition"


def test_locks_of_a_program_that_was_replaced_have_names(build: Build, tmp_path: Path) -> None:
    copy = tmp_path / "locks"
    shutil.copy(build("locks_cpp"), copy)
    with waiting(copy) as program:
        copy.unlink()
        assert waits(program.pid)["mutex"].symbol == "held"


def test_rust_does_not_say_who_holds_a_mutex(build: Build) -> None:
    with waiting(build("locks_rs")) as program:
        found = waits(program.pid)
    assert found["mutex"].kind == "lock" and "Rust" in found["mutex"].text
    assert not found["mutex"].holders and found["mutex"].doubt is not None
    assert found["condition"].kind == "condition"


PYTHON = """
import sys, threading
lock = threading.Lock()
lock.acquire()
threading.Thread(target=lock.acquire, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
print("done", flush=True)
"""


def test_python_lock() -> None:
    with waiting(sys.executable, "-c", PYTHON) as program:
        stacks = read_stacks(program.pid)
        (other,) = (one for one in stacks.threads if one.tid != program.pid)
    assert other.waits_for is not None and not other.waits_for.holders
    names = [frame.function for frame in other.frames]
    if any("acquire_lock" in (name or "") for name in names):
        assert other.waits_for.kind == "lock" and "Python" in other.waits_for.text


SPINS = """
import threading
def spin():
    while True: pass
for _ in range(3): threading.Thread(target=spin).start()
print("ready", flush=True)
spin()
"""


def test_the_interpreter_lock_of_python() -> None:
    with Background([sys.executable, "-c", SPINS]) as program:
        reader = StackReader(program.pid)
        names: set[str | None] = set()
        kinds: set[str] = set()

        def is_seen() -> bool:
            for thread in reader.read().threads:
                names.update(frame.function for frame in thread.frames)
                if thread.waits_for is not None and "interpreter lock" in thread.waits_for.text:
                    kinds.add(thread.waits_for.kind)
            return bool(kinds)

        try:
            eventually(is_seen)
        except TimeoutError:
            if "take_gil" in names:
                raise
            pytest.skip("this Python has lost the names of its functions")
        assert kinds == {"lock"}


def test_the_other_end_of_a_pipe() -> None:
    need("cat")
    reader, writer = os.pipe()
    with subprocess.Popen(["cat"], stdin=reader, stdout=subprocess.DEVNULL) as process:
        try:
            os.close(reader)
            eventually(lambda: reads_input(process.pid))
            (thread,) = read_stacks(process.pid).threads
            wait = thread.waits_for
            assert wait is not None and [one.pid for one in wait.holders] == [os.getpid()]
            assert wait.descriptors[0].inode == os.fstat(writer).st_ino
            assert wait.holders[0].sure == "sure"
        finally:
            os.close(writer)
            process.wait(30)


def test_the_peer_of_a_connection() -> None:
    need("cat")
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with (
        ours,
        subprocess.Popen(["cat"], stdin=theirs.fileno(), stdout=subprocess.DEVNULL) as process,
    ):
        try:
            eventually(lambda: reads_input(process.pid))
            local, peer = theirs.getsockname(), theirs.getpeername()
            theirs.close()
            (thread,) = read_stacks(process.pid).threads
            wait = thread.waits_for
            assert wait is not None
            assert wait.descriptors[0].local == f"127.0.0.1:{local[1]}"
            assert wait.descriptors[0].peer == f"127.0.0.1:{peer[1]}"
            assert [one.pid for one in wait.holders] == [os.getpid()]
        finally:
            ours.shutdown(socket.SHUT_RDWR)
            process.wait(30)


def test_a_thread_that_runs_waits_for_nothing() -> None:
    code = "print('ready', flush=True)\nwhile True: pass"
    with Background([sys.executable, "-c", code]) as program:
        eventually(lambda: read_stacks(program.pid).threads[0].waits_for is None)


def test_a_stopped_process_waits_to_go_on() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            process.send_signal(signal.SIGSTOP)

            def is_stopped() -> bool:
                (thread,) = read_stacks(process.pid).threads
                wait = thread.waits_for
                return wait is not None and wait.kind == "signal" and "SIGCONT" in wait.text

            eventually(is_stopped)
            # It stays so.
            assert (
                Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
            )
        finally:
            process.kill()


def test_waits_need_not_be_asked_for() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            (thread,) = read_stacks(process.pid, waits=False).threads
            assert thread.waits_for is None
        finally:
            process.kill()


def reads_input(pid: int) -> bool:
    """Whether a program has been started and reads its standard input."""
    is_cat = Path(f"/proc/{pid}/comm").read_text() == "cat\n"
    return is_cat and Path(f"/proc/{pid}/syscall").read_text().split()[:2] == ["0", "0x0"]


def test_a_mutex_that_the_kernel_refuses_has_no_invented_owner(build: Build) -> None:
    """The C library waits for a word of its own then, with anything around it."""
    with Background([build("refused_mutex")]) as program:
        eventually(lambda: is_blocked(program.pid))

        def is_refused() -> bool:
            second = waits(program.pid)["second"]
            return "never gets" in second.text and second.doubt is not None

        eventually(is_refused)
        found = waits(program.pid)
        assert (found["second"].address, found["second"].holders) == (None, ())
        assert [one.name for one in found["first"].holders] == ["second"]
        assert program.finish()[0] == 0
