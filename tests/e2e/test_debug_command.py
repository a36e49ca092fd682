"""``weft debug``: an unmodified debugger on a program that runs from its clone."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import weft.trace
from tests.e2e.harness import Background, free_port, need
from tests.toolchain import compile_program
from weft.debug import Address, Ending
from weft.errors import BadFile, InvalidArgument, WeftError
from weft.tools.query import ask

WEFT = [sys.executable, "-m", "weft", "debug"]
SUM = 45 + 10
"""What the program has added up, without arguments, before its thread begins."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("gdb")
    output = tmp_path_factory.mktemp("debugged") / "debugged"
    return compile_program("debugged.c", output, "-g", "-pthread")


def words(*steps: str) -> list[str]:
    """GDB's words for a session without a person."""
    steps_of = [word for step in steps for word in ("-ex", step)]
    return ["-nx", "-batch", *steps_of]


def debug(
    target: Sequence[str | Path], *steps: str, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Have GDB do some steps, in a program or in a process."""
    gdb = ["--gdb-args", shlex.join(words(*steps))] if steps else []
    command = [*WEFT, *options, *gdb, *map(str, target)]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_session_shows_the_program(program: Path) -> None:
    done = debug(
        ["--", program],
        "break add if a == 3",
        "continue",
        "info breakpoints",
        "backtrace",
        "info locals",
        "finish",
        "delete",
        "break work",
        "continue",
        "next",
        "next",
        "print own",
        "info threads",
        "print add(1, 2)",
        "info sharedlibrary",
        "continue",
    )
    said = done.stdout
    assert done.returncode == 0, done.stderr
    assert "Breakpoint 1, add (a=3, b=1)" in said
    assert "stop only if a == 3 (target evals)" in said
    assert re.search(r"#1  0x\w+ in main \(argc=1, ", said)
    assert "Value returned is $1 = 4" in said
    assert "$2 = 9" in said, "a variable of the thread's own"
    assert re.search(r"^\* 2 +Thread [\d.]+ \"debugged\" work", said, re.MULTILINE)
    assert "$3 = 3" in said
    assert "libc.so.6" in said
    assert "exited with code 03" in said
    assert f"{SUM + 3 + 9 + 1}\n" in said


def test_what_the_program_has_been_told_is_what_gdb_shows(program: Path) -> None:
    registers = ["rip", "rsp", "eflags", "fs_base", "xmm1", "ymm2", "st0", "fctrl", "mxcsr"]
    steps = [
        "break add",
        "continue",
        *(f"print ${name}" for name in registers),
        "print $_siginfo.si_signo",
        "x/4i $pc",
        "info line",
    ]
    here = debug(["--", program], *steps).stdout
    environment = {**os.environ, "LINES": "", "COLUMNS": ""}
    command = ["gdb", *words("starti", *steps), str(program)]
    native = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment, timeout=60
    ).stdout
    # Where the stack is depends on the names in the environment.
    stack = re.compile(r"0x7ffffff\w+")

    def shown(text: str) -> list[str]:
        lines = text[text.index("Breakpoint 1, add") :].splitlines()
        return [stack.sub("STACK", line) for line in lines]

    assert shown(here) == shown(native)


def test_watched_memory_and_system_calls(program: Path) -> None:
    said = debug(
        ["--", program], "break main", "continue", "watch total", "continue", "continue",
        "delete", "catch syscall write", "continue", "continue", "print $_exitcode",
    ).stdout  # fmt: skip
    assert "Old value = 0\nNew value = 1" in said
    assert "Old value = 1\nNew value = 3" in said
    assert "(call to syscall write)" in said
    assert "(returned from syscall write)" in said


def test_the_program_is_started_again(program: Path) -> None:
    said = debug(
        ["--", program, "one"], "break main", "continue", "run", "print argc", "run a b c",
        "print argc", "kill", "run", "print argc", "delete", "continue",
    ).stdout  # fmt: skip
    assert [f"${number} = {argc}" in said for number, argc in [(1, 2), (2, 4), (3, 4)]] == [
        True
    ] * 3
    assert "exited with code 03" in said


def test_the_program_is_started_again_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another environment, in another folder, and where it was at first."""
    need("gdb")
    monkeypatch.setenv("SECOND", "second")
    script = tmp_path / "show.py"
    script.write_text("import os; print([*map(os.environ.get, ('FIRST', 'SECOND'))], os.getcwd())")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    said = debug(
        ["--", sys.executable, script],
        "set environment FIRST one and more", "unset environment SECOND", "run",
        f"set cwd {folder}", "set environment SECOND", "run",
        "set cwd", "unset environment FIRST", "set environment SECOND 2", "run",
    ).stdout  # fmt: skip
    here = Path.cwd()
    assert [line for line in said.splitlines() if line.endswith(("elsewhere", str(here)))] == [
        f"['one and more', None] {here}",
        f"['one and more', ''] {folder}",
        f"[None, '2'] {here}",
    ]


def test_gdb_disconnects_and_comes_back(program: Path) -> None:
    script = (
        "python import gdb; "
        "where = gdb.selected_inferior().connection.details; "
        "gdb.execute('disconnect'); "
        "gdb.execute('target extended-remote ' + where)"
    )
    said = debug(["--", program], "break add", "continue", script, "print a", "continue").stdout
    assert "$1 = 0" in said
    assert "Breakpoint 1, add (a=1, b=1)" in said


def test_the_exit_code_is_gdbs(program: Path) -> None:
    assert debug(["--", program], "quit 42").returncode == 42


def test_a_process_goes_on_without_weft(program: Path) -> None:
    with Background([program, "wait"]) as process:
        done = debug([str(process.pid)], "backtrace", "print total", "detach")
        assert "main (argc=2" in done.stdout, done.stderr
        assert "$1 = 65" in done.stdout
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        assert "weft" not in maps
        # And one that a debugger leaves without a word.
        assert debug([str(process.pid)], "print total").returncode == 0
        output, _ = process.process.communicate(b"x", timeout=30)
        assert output.endswith(b"%d\n" % (65 + 2 + 9 + 2))


def test_core_files(program: Path, tmp_path: Path) -> None:
    core = tmp_path / "core"
    with Background([program, "wait"]) as process:
        done = debug([str(process.pid)], options=["--core", str(core)])
        assert done.returncode == 0, done.stderr
    read = [
        "gdb",
        *words("backtrace", "print total", "info proc mappings"),
        str(program),
        str(core),
    ]
    said = subprocess.run(read, capture_output=True, text=True, check=True).stdout
    assert "main (argc=2" in said
    assert "$1 = 65" in said
    assert core.stat().st_size < 16 << 20, "what is weft's is not in it"

    core.unlink()
    done = debug(["--", program, "crash"], options=["--core", str(core)])
    assert done.returncode == 128 + signal.SIGSEGV, done.stderr
    assert list(tmp_path.iterdir()) == [core]
    said = subprocess.run(
        ["gdb", *words("print $_siginfo._sifields._sigfault.si_addr"), program, core],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "terminated with signal SIGSEGV" in said
    assert "$1 = (void *) 0x8" in said

    core.unlink()
    done = debug(["--", program], options=["--core", str(core)])
    assert "ended without a core" in done.stderr
    assert not core.exists()


@pytest.mark.parametrize(
    ("script", "code"), [("exit 7", 7), ("kill -TERM $$", 143), ("kill -ABRT $$", 134)]
)
def test_core_ends_with_the_code_of_the_program(script: str, code: int, tmp_path: Path) -> None:
    core = tmp_path / "core"
    done = debug(["--", "sh", "-c", script], options=["--core", str(core)])
    assert done.returncode == code, done.stderr
    assert core.exists() == (code == 134)


def test_a_core_that_cannot_be_written_is_an_error(program: Path) -> None:
    with Background([program, "wait"]) as process:
        done = debug([str(process.pid)], options=["--core", "/nowhere/core"])
    assert done.returncode == BadFile.exit_code
    assert "cannot write /nowhere/core" in done.stderr


def test_what_is_executed_meanwhile_is_recorded(program: Path, tmp_path: Path) -> None:
    """Steps and breakpoints neither add to it nor take from it; a call from GDB is one."""
    steps = ("break add", "continue", "stepi", "next", "delete", "print add(1, 2)", "continue")
    covered, traced = tmp_path / "covered.json", tmp_path / "traced.weft-trace"
    done = debug(["--", program], *steps, options=["--coverage", str(covered)])
    assert done.returncode == 0, done.stderr
    modules = json.loads(covered.read_text())["modules"]
    [functions] = [one["functions"] for one in modules if one["path"] == str(program)]
    assert {"add", "work", "main"} <= {one["name"] for one in functions if one["count"]}

    done = debug(["--", program], *steps, options=["--trace", str(traced)])
    assert done.returncode == 0, done.stderr
    _, [(entered,)] = ask(
        weft.trace.open(traced),
        """SELECT count(*) FROM blocks JOIN code USING (block) WHERE function = 'add' AND
        instructions > 0 AND address = (SELECT min(code_start) FROM code WHERE function = 'add')""",
    )
    assert entered == 10 + 1 + 1


@contextmanager
def listening(address: str, *target: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A server that waits for a debugger."""
    command = [*WEFT, "--listen", address, *map(str, target)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            for line in server.stderr:
                if "VS Code" in line:
                    break
            yield server
        finally:
            if server.poll() is None:
                server.send_signal(signal.SIGINT)
                server.wait(30)


def gdb(address: str, program: Path, *steps: str) -> str:
    command = ["gdb", *words("set sysroot /", f"target remote {address}", *steps), str(program)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout


def test_one_debugger_after_the_other(program: Path) -> None:
    address = f"localhost:{free_port()}"
    with listening(address, "--", program) as server:
        said = gdb(address, program, "break add", "continue", "disconnect")
        assert "Breakpoint 1, add (a=0, b=1)" in said
        # The breakpoint went with the one who had set it.
        assert "exited with code 03" in gdb(address, program, "print a", "continue")
        output, errors = server.communicate(timeout=30)
        assert output == f"{SUM + 9 + 1}\n"
        assert "the debugger has gone; waiting for the next" in errors
        assert server.returncode == 3


def test_a_socket_is_for_its_owner_and_goes_with_the_server(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with listening(str(path), "--", program):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        other = debug(["--", program], options=["--listen", str(path)])
        assert other.returncode == 1
        assert "weft cannot listen at" in other.stderr
    assert not path.exists()


def test_lldb(program: Path, tmp_path: Path) -> None:
    need("lldb")
    path = tmp_path / "socket"
    with listening(str(path), "--", program) as server:
        steps = [
            f"process connect --plugin gdb-remote unix-connect://{path}",
            "breakpoint set --name work",
            "continue",
            "bt",
            "register read rip",
            "thread list",
            "breakpoint delete --force",
            "continue",
        ]
        step_words = [word for step in steps for word in ("-o", step)]
        done = subprocess.run(
            ["lldb", "--no-lldbinit", "--batch", *step_words, program],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "stop reason = breakpoint 1" in done.stdout, done.stderr
        assert "debugged`work(argument=" in done.stdout
        assert "exited with status = 3" in done.stdout
        assert server.wait(30) == 3


def test_ctrl_c_stops_the_program(tmp_path: Path) -> None:
    need("gdb")
    source = tmp_path / "busy.c"
    source.write_text("volatile long n; int main(void) { for (;;) n++; }\n")
    busy = tmp_path / "busy"
    subprocess.run(["gcc", "-g", source, "-o", busy], check=True)
    path = tmp_path / "socket"
    with listening(str(path), "--", busy):
        steps = words("set sysroot /", f"target remote {path}", "continue", "print n > 0", "kill")
        with subprocess.Popen(["gdb", *steps, busy], stdout=subprocess.PIPE, text=True) as session:
            time.sleep(3)
            session.send_signal(signal.SIGINT)
            said, _ = session.communicate(timeout=60)
    assert "Program received signal SIGINT" in said
    assert "$1 = 1" in said


def test_the_terminal_is_the_programs_while_it_runs() -> None:
    need("gdb")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*WEFT, "--gdb-args", "-nx -q", "--", "cat"])
    said = b""

    def until(words_of_it: bytes) -> None:
        nonlocal said
        deadline = time.monotonic() + 60
        while words_of_it not in said:
            ready, _, _ = select.select([terminal], [], [], deadline - time.monotonic())
            assert ready, said
            said += os.read(terminal, 4096)
        said = said.partition(words_of_it)[2]

    until(b"(gdb) ")
    os.write(terminal, b"continue\n")
    until(b"Continuing.\r\n")
    os.write(terminal, b"hello\n")
    # The terminal's echo, in whatever mode it is by now, and what cat has read.
    until(b"hello")
    until(b"hello")
    os.write(terminal, b"\x03")
    until(b"received signal SIGINT")
    until(b"(gdb) ")
    # What Ctrl-C is at GDB's prompt is none of the program's business.
    os.write(terminal, b"\x03")
    until(b"(gdb) ")
    os.write(terminal, b"continue\n")
    until(b"Continuing.\r\n")
    os.write(terminal, b"again\n")
    until(b"again")
    until(b"again\r\n")
    os.write(terminal, b"\x04")
    until(b"exited normally")
    until(b"(gdb) ")
    os.write(terminal, b"quit\n")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize(
    ("arguments", "words_of_it"),
    [
        (["--listen", "localhost:x", "--", "true"], "is no port"),
        (["--listen", "1234", "--core", "x", "--", "true"], "do not go together"),
        (["999999999"], "there is no process 999999999"),
        (["--", "no-such-program"], "no-such-program cannot be started"),
        (["--core", "a b", "--", "true"], "has a blank in it"),
        (["--coverage", "x", "--trace", "y", "--", "true"], "do not go together"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: list[str], words_of_it: str) -> None:
    need("gdb")
    done = subprocess.run([*WEFT, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert words_of_it in done.stderr
    assert "Traceback" not in done.stderr


def test_without_gdb(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(
        [*WEFT, "--", "/bin/true"], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 1
    assert "GDB is not installed" in done.stderr
    assert "--listen" in done.stderr


def test_addresses() -> None:
    assert str(Address.parse(":1234")) == "127.0.0.1:1234"
    assert str(Address.parse("1234")) == "127.0.0.1:1234"
    assert str(Address.parse("[::1]:1234")) == "::1:1234"
    assert Address.parse("./here").path == Path.cwd() / "here"
    assert Address.parse("here").path == Path.cwd() / "here"
    with pytest.raises(InvalidArgument):
        Address.parse("localhost:99999")
    with pytest.raises(WeftError, match="cannot listen"):
        Address.parse("no.such.host.invalid:1").listen()
    assert Ending("killed", 11).exit_code == 139
    assert not Ending("hung up", 0).is_over
