"""What stands in the way of attaching, shown on real processes."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.e2e.harness import NOBODY, Background, eventually, status
from weft import _native, errors
from weft.cli import doctor, ps

Build = Callable[[str], Path]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes users or cgroups")

SLEEPER = "print('ready', flush=True); input()"

# Both change their user only after Python is loaded, which other users may not be able to read.
SLEEPER_OF_NOBODY = """
import ctypes, os, sys
os.setgroups([]), os.setresgid(*[{user}] * 3), os.setresuid(*[{user}] * 3)
PR_SET_DUMPABLE = 4
assert ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, {dumpable}, 0, 0, 0) == 0
print("ready", flush=True)
input()
"""
PREFLIGHT_BY_NOBODY = """
import json, os
from weft import _native, errors
os.setgroups([]), os.setresgid(*[{user}] * 3), os.setresuid(*[{user}] * 3)
try:
    _native.preflight({pid})
    print("null")
except errors.WeftError as error:
    print(json.dumps([type(error).__name__, error.why, error.advice]))
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.fixture
def sleeper() -> Iterator[Background]:
    with Background(python(SLEEPER)) as background:
        yield background


@contextmanager
def refused(kind: type[errors.WeftError], why: str, advice: str) -> Iterator[None]:
    """Expect an error that says why and what to try."""
    with pytest.raises(kind) as caught:
        yield
    assert why in caught.value.why
    assert advice in caught.value.advice


def preflight_by_nobody(pid: int) -> list[str] | None:
    """Ask as an ordinary user: the kind, reason and advice of the refusal, if it is one."""
    code = PREFLIGHT_BY_NOBODY.format(user=NOBODY, pid=pid)
    result = subprocess.run(python(code), stdout=subprocess.PIPE, check=True)
    answer: list[str] | None = json.loads(result.stdout)
    return answer


def test_an_ordinary_process_is_fine(sleeper: Background) -> None:
    _native.preflight(sleeper.pid)


def test_no_process_has_the_id() -> None:
    with refused(errors.NoSuchProcess, "ended", "weft ps"):
        _native.preflight(2**22 + 1)


@pytest.mark.parametrize("pid", [0, -1])
def test_an_id_that_cannot_be(pid: int) -> None:
    with refused(errors.InvalidArgument, "positive", "weft ps"):
        _native.preflight(pid)


def test_weft_itself() -> None:
    with refused(errors.InvalidArgument, "stop itself", "second weft"):
        _native.preflight(os.getpid())


def test_a_thread_is_not_a_process() -> None:
    code = (
        "import threading; event = threading.Event(); "
        "thread = threading.Thread(target=event.wait); thread.start(); "
        "print(thread.native_id); print('ready', flush=True); event.set() if not input() else 0"
    )
    with Background(python(code)) as background:
        tid = int(background.output.split()[0])
        with refused(errors.NoSuchProcess, "threads", f"weft attach {background.pid}"):
            _native.preflight(tid)


def test_zombie() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with refused(errors.ZombieTarget, str(os.getpid()), "reap"):
            _native.preflight(process.pid)


def test_stopped(sleeper: Background) -> None:
    os.kill(sleeper.pid, signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    with refused(errors.StoppedTarget, "SIGSTOP", f"kill -CONT {sleeper.pid}"):
        _native.preflight(sleeper.pid)


def test_traced_by_another(sleeper: Background) -> None:
    seize = 0x4206
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(seize, sleeper.pid, None, None) == 0, os.strerror(ctypes.get_errno())
    name = status(os.getpid())["Name"]
    with refused(errors.AlreadyTraced, f"{os.getpid()} ({name})", f"kill {os.getpid()}"):
        _native.preflight(sleeper.pid)


def test_kernel_thread() -> None:
    kthreadd = 2
    if not Path(f"/proc/{kthreadd}").exists() or status(kthreadd)["Name"] != "kthreadd":
        pytest.skip("the kernel's threads are not visible")
    with refused(errors.UnsupportedTarget, "kernel's threads", "weft ps"):
        _native.preflight(kthreadd)


def test_program_of_32_bits(build: Build) -> None:
    with (
        Background([build("thirty_two_bits")]) as background,
        refused(errors.UnsupportedTarget, "64-bit", "gcc -m64"),
    ):
        _native.preflight(background.pid)


@needs_root
def test_process_of_another_user(sleeper: Background) -> None:
    answer = preflight_by_nobody(sleeper.pid)
    assert answer is not None
    kind, why, advice = answer
    assert kind == "PermissionDenied"
    assert "belongs to user root" in why
    assert "--cap-add=SYS_PTRACE" in advice


@needs_root
def test_own_process_of_an_ordinary_user() -> None:
    with Background(python(SLEEPER_OF_NOBODY.format(user=NOBODY, dumpable=1))) as background:
        assert preflight_by_nobody(background.pid) is None


@needs_root
def test_process_that_is_not_dumpable() -> None:
    with Background(python(SLEEPER_OF_NOBODY.format(user=NOBODY, dumpable=0))) as background:
        answer = preflight_by_nobody(background.pid)
        _native.preflight(background.pid)
    assert answer is not None
    kind, why, advice = answer
    assert (kind, "not dumpable" in why, "sudo weft" in advice) == ("PermissionDenied", True, True)


@contextmanager
def frozen(pid: int, root: Path, switch: str, on: str, off: str) -> Iterator[Path]:
    """Freeze a process in a cgroup of its own."""
    group = root / f"weft-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / switch).write_text(on)
        yield group
    finally:
        (group / switch).write_text(off)
        (root / "cgroup.procs").write_text(str(pid))
        eventually(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def cgroup_mount(kind: str, option: str) -> Path:
    """Return where a cgroup hierarchy is mounted, if it can be used."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, file_system, options, *_ = line.split()
        if file_system == kind and option in options.split(",") and os.access(place, os.W_OK):
            return Path(place)
    pytest.skip(f"no {kind} hierarchy to freeze a process in")


@needs_root
def test_cgroup_frozen_by_version_1(sleeper: Background) -> None:
    root = cgroup_mount("cgroup", "freezer")
    with frozen(sleeper.pid, root, "freezer.state", "FROZEN", "THAWED") as group:
        eventually(lambda: "FROZEN" in (group / "freezer.state").read_text())
        with refused(errors.StoppedTarget, str(group), f"echo THAWED | sudo tee {group}"):
            _native.preflight(sleeper.pid)
    _native.preflight(sleeper.pid)


@needs_root
def test_cgroup_frozen_by_version_2(sleeper: Background) -> None:
    root = cgroup_mount("cgroup2", "rw")
    with frozen(sleeper.pid, root, "cgroup.freeze", "1", "0") as group:
        eventually(lambda: "frozen 1" in (group / "cgroup.events").read_text())
        with refused(errors.StoppedTarget, str(group), f"echo 0 | sudo tee {group}"):
            _native.preflight(sleeper.pid)
    _native.preflight(sleeper.pid)


def test_strict_seccomp(build: Build) -> None:
    with Background([build("seccomp"), "strict"]) as background:
        with refused(errors.SeccompForbids, "strict mode", "without"):
            _native.preflight(background.pid)
        assert background.finish() == (7, "ready\nunharmed\n")


def test_a_seccomp_filter_is_left_to_attach(build: Build) -> None:
    with Background([build("seccomp"), "errno"]) as background:
        _native.preflight(background.pid)
        checks = {check["name"]: check for check in _native.doctor(background.pid)}
        assert checks["target: seccomp"]["detail"].startswith("1 filter")
        assert checks["target: no_new_privs"]["detail"].startswith("set")


def test_ps_lists_what_can_be_attached_to_and_why_not(sleeper: Background) -> None:
    os.kill(sleeper.pid, signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    with Background(python(SLEEPER)) as other:
        result = CliRunner().invoke(ps.command, ["--format", "json"])
        assert result.exit_code == 0, result.output
        listing = json.loads(result.output)
        assert listing["schema"] == 1
        found = {process["pid"]: process for process in listing["processes"]}
        assert found[other.pid]["attachable"]
        assert found[other.pid]["threads"] == 1
        assert SLEEPER in found[other.pid]["cmdline"]
        assert not found[sleeper.pid]["attachable"]
        assert found[sleeper.pid]["advice"] == f"resume it: kill -CONT {sleeper.pid}"
        assert os.getpid() not in found
        assert not any(process["kernel"] for process in found.values())


def test_ps_fits_a_narrow_terminal(sleeper: Background) -> None:
    os.kill(sleeper.pid, signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    environment = {"COLUMNS": "80", "FORCE_COLOR": "1"}
    result = CliRunner().invoke(ps.command, ["--all"], env=environment)
    assert result.exit_code == 0, result.output
    lines = click.unstyle(result.output).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert any(f"{sleeper.pid} " in line and "no: " in line for line in lines)


def test_doctor_ends_with_1_when_something_fails(sleeper: Background) -> None:
    machine = CliRunner().invoke(doctor.command, ["--format", "json"])
    checks = json.loads(machine.output)["checks"]
    assert {check["status"] for check in checks} <= {"ok", "warn", "fail"}
    assert machine.exit_code == any(check["status"] == "fail" for check in checks)

    os.kill(sleeper.pid, signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    result = CliRunner().invoke(doctor.command, [str(sleeper.pid)])
    assert result.exit_code == 1
    assert f"→ resume it: kill -CONT {sleeper.pid}" in result.output


def test_doctor_of_no_process() -> None:
    result = CliRunner().invoke(doctor.command, [str(2**22 + 1)])
    assert result.exit_code == 1
    assert "there is no process" in " ".join(result.output.split())
