"""What a session can do with its target, and what happens when the target changes under it."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

import pytest

import weft
from tests.e2e.harness import (
    Background,
    Footprint,
    children,
    eventually,
    is_blocked,
    need,
    status,
)
from weft import _native, errors

Build = Callable[[str], Path]


def say(background: Background, word: str) -> None:
    stdin = background.process.stdin
    assert stdin is not None
    stdin.write(f"{word}\n".encode())
    stdin.flush()


@contextmanager
def capturing() -> Iterator[tuple[int, IO[bytes]]]:
    """Give a descriptor for a program to write to, and a file to read it from."""
    source, sink = os.pipe()
    with os.fdopen(source, "rb") as reader:
        try:
            yield sink, reader
        finally:
            os.close(sink)


def has_agent(pid: int) -> bool:
    return "/memfd:weft" in Path(f"/proc/{pid}/maps").read_text()


def test_run_stops_before_the_first_instruction() -> None:
    with weft.run(["true"]) as session:
        # The kernel hands over at the loader's entry; nothing is mapped but what the kernel mapped.
        files = {m.path for m in session.maps() if m.path.startswith("/") and "weft" not in m.path}
        assert len(files) == 2
        assert any("ld-" in file for file in files)
        assert session.wait() == 0


@pytest.mark.parametrize("given", [{}, {"LC_CTYPE": "C.UTF-8"}, {"LANG": "C"}])
def test_a_program_finds_the_environment_that_the_command_was_given(given: dict[str, str]) -> None:
    """Python sets a locale for itself where there is none."""
    for weaver in ([], ["--weaver", "clone"]):
        command = [sys.executable, "-m", "weft", "run", *weaver, "--", "/usr/bin/env"]
        found = subprocess.run(command, env=given, capture_output=True, text=True, check=True)
        assert found.stdout.splitlines() == [f"{name}={value}" for name, value in given.items()]


def test_run_passes_environment_directory_and_streams(tmp_path: Path) -> None:
    with capturing() as (sink, reader):
        session = weft.run(
            ["sh", "-c", "echo $COLOUR; pwd; exit 9"],
            env={"COLOUR": "blue", "PATH": os.environ["PATH"]},
            cwd=tmp_path,
            stdout=sink,
        )
        with session:
            assert session.wait() == 9
        os.set_blocking(reader.fileno(), False)
        assert reader.read() == f"blue\n{tmp_path}\n".encode()


def test_a_signal_that_ends_the_program_is_in_its_exit_code() -> None:
    with weft.run(["sh", "-c", "kill -TERM $$"]) as session:
        assert session.wait() == 128 + signal.SIGTERM


def test_wait_gives_up_after_a_while() -> None:
    with weft.run(["sleep", "60"]) as session:
        assert session.wait(timeout=0.1) is None
        os.kill(session.pid, signal.SIGKILL)
        assert session.wait() == 128 + signal.SIGKILL


def test_leaving_the_session_lets_the_program_run_on() -> None:
    with capturing() as (sink, reader):
        with weft.run(["sh", "-c", "echo alive"], stdout=sink):
            pass
        assert reader.readline() == b"alive\n"


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(errors.LaunchFailed, match="PATH"):
        weft.run(["no-such-program-anywhere"])
    with pytest.raises(errors.InvalidArgument):
        weft.run([])


def test_a_program_that_replaces_itself_is_another_program(build: Build) -> None:
    with Background([build("exec_fork")]) as background:
        with weft.attach(background.pid) as session:
            say(background, "exec")
            eventually(lambda: not has_agent(background.pid))
            with pytest.raises(errors.TargetGone, match="execve"):
                session.ping()
        assert background.finish()[0] == 7


def test_a_child_does_not_inherit_the_agent(build: Build) -> None:
    with Background([build("exec_fork")]) as background:
        with weft.attach(background.pid):
            say(background, "fork")
            eventually(lambda: bool(children(background.pid)))
            (child,) = children(background.pid)
            assert has_agent(background.pid)
            assert not has_agent(child)
            os.kill(child, signal.SIGKILL)
        assert background.finish()[0] == 7


def test_a_target_that_ends_is_no_error_when_leaving() -> None:
    with subprocess.Popen(["sleep", "60"]) as process, weft.attach(process.pid) as session:
        process.kill()
        process.wait()
        with pytest.raises(errors.WeftError):
            session.ping()


def test_detaching_twice_is_fine_and_using_it_afterwards_is_not() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        session = weft.attach(process.pid)
        session.detach()
        session.detach()
        assert "detached" in repr(session)
        with pytest.raises(errors.TargetGone, match="weft has left"):
            session.ping()
        process.kill()


def test_registers_with_vector_state(build: Build) -> None:
    with Background([build("exec_fork")]) as background:
        with weft.attach(background.pid) as session:
            say(background, "regs")
            background.wait_for_line(b"regs")
            eventually(lambda: session.registers()["r13"] == 0x1122334455667788)
            registers = session.registers()
            low = registers.zmm[9][:8]
            assert struct.unpack("<Q", low) == (0x1122334455667788,)
            program = next(m for m in session.maps() if m.path.endswith("/exec_fork"))
            assert program.start <= registers["rip"] < program.start + 0x10000
            assert len(registers.xsave) >= 512 + 64
            assert len(registers.zmm) == 32
        os.kill(background.pid, signal.SIGUSR1)
        assert background.finish()[0] == 7


def test_memory_is_read_and_written() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        with weft.attach(process.pid) as session:
            stack = next(m for m in session.maps() if m.path == "[stack]")
            unused = stack.start
            old = session.read(unused, 16)
            session.write(unused, b"woven")
            assert session.read(unused, 5) == b"woven"
            session.write(unused, old)
            assert session.read_many([(unused, 4), (8, 4), (unused + 4, 4)]) == [
                old[:4],
                None,
                old[4:8],
            ]
            with pytest.raises(errors.InvalidArgument):
                session.read(8, 4)
        process.kill()


def test_system_calls_of_the_target(build: Build) -> None:
    getpid, munmap, mmap, close = 39, 11, 9, 3
    with Background([build("exec_fork")]) as background:
        before = Footprint.of(background.pid)
        with weft.attach(background.pid) as session:
            assert session.syscall(getpid) == background.pid
            private_anonymous, read_write = 0x22, 3
            page = session.syscall(mmap, 0, 4096, read_write, private_anonymous, -1, 0)
            session.write(page, b"woven")
            assert session.read(page, 5) == b"woven"
            assert session.syscall(munmap, page, 4096) == 0
            with pytest.raises(OSError, match="Bad file descriptor"):
                session.syscall(close, -1)
            with pytest.raises(errors.InvalidArgument):
                session.syscall(getpid, *range(7))
            assert len(session.ping()) == 1
        assert before.differences(Footprint.of(background.pid)) == []
        assert background.finish()[0] == 7


def test_a_session_that_is_forgotten_detaches() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        weft.attach(process.pid)
        assert not has_agent(process.pid)
        process.kill()


def test_restartable_sequences_start_again(build: Build) -> None:
    with Background([build("rseq")]) as background:
        with weft.attach(background.pid) as session:
            for _ in range(100):
                session.ping()
        assert background.finish() == (7, "ready\nall additions are there\n")


def test_nothing_moves_while_it_is_stopped(build: Build) -> None:
    with Background([build("pie")]) as background:
        with weft.attach(background.pid) as session:
            with session.stopped():
                assert {thread.state for thread in session.threads()} == {"t"}
                first = session.registers()
                session.ping()
                assert session.registers() == first
            eventually(lambda: any(thread.state != "t" for thread in session.threads()))
        assert background.finish()[0] == 7


def test_while_a_session_lasts_nothing_holds_the_target() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        with weft.attach(process.pid):
            assert status(process.pid)["TracerPid"] == "0"
        process.kill()


def test_the_agents_memory_is_never_writable_and_executable() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        with weft.attach(process.pid) as session:
            ours = [m.permissions for m in session.maps() if "/memfd:weft" in m.path]
            assert sorted(ours) == ["r-xs", "rw-s"]
        process.kill()


def test_two_sessions_at_once() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        eventually(lambda: is_blocked(process.pid))
        before = Footprint.of(process.pid)
        with weft.attach(process.pid) as first, weft.attach(process.pid) as second:
            assert first.ping() == second.ping()
        eventually(lambda: is_blocked(process.pid))
        assert before.differences(Footprint.of(process.pid)) == []
        process.kill()


def test_what_a_killed_weft_has_left_is_taken_out() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        eventually(lambda: is_blocked(process.pid))
        before = Footprint.of(process.pid)
        script = f"import os, weft; s = weft.attach({process.pid}); os.kill(os.getpid(), 9)"
        subprocess.run([sys.executable, "-c", script], check=False)
        assert has_agent(process.pid)
        with weft.attach(process.pid):
            pass
        eventually(lambda: is_blocked(process.pid))
        assert before.differences(Footprint.of(process.pid)) == []
        process.kill()


def test_modules_of_deleted_and_nameless_files(build: Build, tmp_path: Path) -> None:
    program = tmp_path / "short-lived"
    program.write_bytes(build("exec_fork").read_bytes())
    program.chmod(0o755)
    with Background([program]) as background:
        program.unlink()
        modules = {module["path"]: module for module in _native.modules(background.pid)}
        gone = modules[str(program)]
        assert gone["is_program"]
        assert gone["open_path"] is not None
        assert Path(gone["open_path"]).read_bytes() == build("exec_fork").read_bytes()
        assert modules["[vdso]"]["open_path"] is None
        image = _native.module_image(background.pid, modules["[vdso]"]["start"])
        assert image is not None
        assert image.startswith(b"\x7fELF")
        assert background.finish()[0] == 7
    descriptor = os.memfd_create("nameless")
    os.write(descriptor, build("exec_fork").read_bytes())
    with Background([f"/proc/self/fd/{descriptor}"], pass_fds=[descriptor]) as background:
        os.close(descriptor)
        modules = {module["path"]: module for module in _native.modules(background.pid)}
        nameless = modules["/memfd:nameless (deleted)"]
        assert nameless["open_path"] is not None
        assert Path(nameless["open_path"]).read_bytes() == build("exec_fork").read_bytes()
        with weft.attach(background.pid) as session:
            session.ping()
        assert background.finish()[0] == 7


def test_a_program_that_may_not_be_traced_is_refused_at_once() -> None:
    need("strace")
    weft_run = [sys.executable, "-m", "weft", "run", "--", "true"]
    done = subprocess.run(
        ["strace", "-f", "-o", "/dev/null", *weft_run],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert "weft may not trace true" in done.stderr
    assert "traces weft, and with it what weft starts" in done.stderr


@pytest.mark.parametrize("weaver", ["patch", "clone"])
@pytest.mark.parametrize("pid", [1 << 22, 10**20])
def test_an_id_that_no_process_can_have(pid: int, weaver: Literal["patch", "clone"]) -> None:
    with pytest.raises(errors.NoSuchProcess, match="there is no process"):
        weft.attach(pid, weaver=weaver)
