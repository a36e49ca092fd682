"""Processes by the names that people know them by, in place of their ids."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from weft import attach
from weft.base.names import program_name
from weft.program.processes import find_process, processes, processes_named
from weft.ui.source import SessionSource

WEFT = (sys.executable, "-m", "weft")


@contextmanager
def napping(folder: Path, name: str, count: int = 1) -> Iterator[list[int]]:
    """Processes of a name, which is that of a link to their program."""
    link = folder / name
    if not link.exists():
        link.symlink_to(shutil.which("sleep") or "/bin/sleep")
    with ExitStack() as stack:
        pids = []
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen([f"./{name}", "600"], cwd=folder))
            stack.callback(process.kill)
            pids.append(process.pid)
        # A child has its parent's name until it is another program.
        while len(processes_named(name)) < count:
            pass
        yield pids


def weft(*words: object, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if path is not None:
        environment["PATH"] = f"{path}:{environment['PATH']}"
    command = [*WEFT, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


def test_the_only_process_of_a_name_is_used_and_noted(tmp_path: Path) -> None:
    with napping(tmp_path, "napper-one") as [pid]:
        done = weft("attach", "napper-one", "--format", "json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["target"]["pid"] == pid
        assert done.stderr == f"note: napper-one is process {pid}, ./napper-one 600\n"


@pytest.mark.parametrize(
    "words",
    [
        ("cov", "--for", "100ms", "--format", "json"),
        ("profile", "--for", "100ms", "--format", "json"),
        ("trace", "-o", "/dev/null", "--for", "100ms"),
        ("attach", "-m", "syscalls", "--for", "100ms"),
        ("doctor",),
        ("points", "--function", "main*"),
        ("explain", "calls@/Code/libc.so.6/malloc", "--emit", "points"),
    ],
)
def test_every_command_that_takes_a_process_takes_its_name(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    # Others run this test at the same time.
    name = f"nap-{words[0]}"
    with napping(tmp_path, name) as [pid]:
        done = weft(*words, name)
        assert f"note: {name} is process {pid}" in done.stderr
        assert "error" not in done.stderr


def test_several_processes_of_a_name_are_listed(tmp_path: Path) -> None:
    with napping(tmp_path, "napper-three", 12) as pids:
        done = weft("attach", "napper-three")
        assert done.returncode == 2
        assert "napper-three is the name of 12 processes" in done.stderr
        assert sum(f"{pid}  " in done.stderr for pid in pids) == 10
        assert "./napper-three 600" in done.stderr
        assert "... and 2 more" in done.stderr
        assert "try: name one by its number" in done.stderr


def test_a_name_of_nobody_is_refused_with_one_that_may_be_meant(tmp_path: Path) -> None:
    with napping(tmp_path, "napper-four"):
        done = weft("attach", "naper-four")
        assert done.returncode == 3
        assert "there is no process naper-four" in done.stderr
        assert "did you mean napper-four" in done.stderr


def test_behind_two_dashes_a_name_is_that_of_a_program(tmp_path: Path) -> None:
    with napping(tmp_path, "napper-five") as [pid]:
        done = weft("profile", "--", "napper-five", path=tmp_path)
        assert done.returncode == 1, "sleep without an operand"
        assert "note:" not in done.stderr
        done = weft("profile", "napper-five", "--for", "50ms", path=tmp_path)
        expected = f"note: napper-five is process {pid}, ./napper-five 600; to start "
        assert expected + "another: -- napper-five\n" in done.stderr


def test_a_program_that_does_not_run_is_still_started_without_dashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of a name that no other process has meanwhile.
    (tmp_path / "napper-none").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert weft("profile", "--format", "json", "napper-none").returncode == 0


def test_a_file_comes_before_a_process_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with napping(tmp_path, "napper-six"):
        monkeypatch.chdir(tmp_path)
        done = weft("points", "napper-six", "--function", "main")
        assert (done.returncode, done.stderr) == (0, "")


def test_weft_itself_is_no_process_to_attach_to() -> None:
    assert os.getpid() not in {process.pid for process in processes()}


def test_a_process_goes_by_the_name_of_its_file_and_that_of_its_link(tmp_path: Path) -> None:
    with napping(tmp_path, "napper-seven") as [pid]:
        found = find_process("napper-seven")
        assert (found.pid, found.name) == (pid, "napper-seven")
        assert {"sleep", "napper-seven"} <= found.names


def test_a_program_is_shown_as_what_it_was_started_as(tmp_path: Path) -> None:
    """Not as the file that a link leads to."""
    with napping(tmp_path, "napper-eight") as [pid]:
        assert weft("attach", pid).stdout.startswith(f"napper-eight (process {pid})\n")
        target = json.loads(weft("attach", pid, "--format", "json").stdout)["target"]
        assert (target["name"], Path(target["program"]).name) == ("napper-eight", "sleep")
        measured = weft("attach", pid, "-m", "syscalls", "--for", "50ms", "--format", "json").stdout
        assert json.loads(measured)["target"]["name"] == "napper-eight"
        found = json.loads(weft("ps", "--format", "json").stdout)["processes"]
        assert [one["name"] for one in found if one["pid"] == pid] == ["napper-eight"]
        assert f"{pid} " in weft("ps").stdout
        with attach(pid) as session:
            assert SessionSource(session).target.name == "napper-eight"
            assert session.resources().processes[0].name == "napper-eight"


@pytest.mark.parametrize(
    ("words", "program", "name"),
    [
        (["/usr/bin/redis-server *:6379"], "/usr/bin/redis-check-rdb", "redis-server"),
        (["nginx: master process /usr/sbin/nginx"], "/usr/sbin/nginx", "nginx"),
        (["-bash"], "/bin/bash", "bash"),
        (["./a.out", "x"], "/home/a.out", "a.out"),
        ([], "/bin/true", "true"),
        ([""], "/bin/true", "true"),
    ],
)
def test_what_a_program_was_started_as(words: list[str], program: str, name: str) -> None:
    assert program_name(words, program) == name
