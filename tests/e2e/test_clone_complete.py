"""What is recorded of a program that runs from a clone is all of it, or says what is missing."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.e2e.harness import need
from tests.recorded import bytes_of
from weft import clone
from weft.model.flow import Flow

Build = Callable[[str], Path]

PATIENCE = 60.0


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that comes about by itself."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def recorded(command: Sequence[str | Path], records: clone.Records = "counts") -> Flow:
    environment = [("LC_ALL", "C"), ("PATH", os.environ["PATH"])]
    with (
        Path(os.devnull).open("r+b") as nowhere,
        clone.launch(
            command, records=records, environment=environment, streams=(nowhere.fileno(),) * 3
        ) as program,
    ):
        assert program.wait() == 0
        return program.flow()


def executed(flow: Flow, name: str) -> dict[int, int]:
    """How often each byte of a file's code was executed."""
    return {at: n for (path, at), n in bytes_of(flow).items() if Path(path).name == name}


def count_at(flow: Flow, program: Path, function: str) -> int:
    """How often a function was entered."""
    text = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    found = re.search(rf"^([0-9a-f]+) \w {function}$", text, re.MULTILINE)
    assert found
    return executed(flow, program.name).get(int(found[1], 16), 0)


@pytest.fixture
def root_without_proc(tmp_path: Path) -> Path:
    """A folder with a program and its libraries, and nothing else."""
    need("chroot")
    need("ldd")
    if os.geteuid() != 0:
        pytest.skip("only root may change the root")
    program = shutil.which("seq")
    assert program
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for file in [program, *re.findall(r"(/\S+) \(0x", listing)]:
        copy = tmp_path / file.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    return tmp_path


def test_a_program_without_proc_is_recorded(root_without_proc: Path) -> None:
    program = shutil.which("seq") or ""
    alone = executed(recorded([program, "300"]), "seq")
    flow = recorded(["chroot", root_without_proc, program, "300"])
    assert alone and executed(flow, "seq") == alone
    assert executed(flow, "libc.so.6")
    assert not flow.lost


def test_more_threads_than_can_be_recorded_are_said(build: Build) -> None:
    program = build("clone_many")
    flow = recorded([program, "2100"])
    # The first thread is recorded as well.
    assert count_at(flow, program, "body") == 2047
    [text] = flow.lost
    assert text.startswith("53 threads and processes are missing")


def test_a_program_that_cannot_be_cloned_is_said(tmp_path: Path) -> None:
    file = tmp_path / "coverage.json"
    need("prlimit")
    # By another process: a program that limits itself leaves its clone.
    command = ["sh", "-c", "prlimit --pid $$ --as=300000000; exec seq 3"]
    words = [sys.executable, "-m", "weft", "cov", "--format", "json", "-o", str(file), "--"]
    done = subprocess.run([*words, *command], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, "1\n2\n3\n"), done.stderr
    [text] = json.loads(file.read_text())["lost"]
    assert text.startswith("1 program is missing: it was executed natively")
    assert text in done.stderr


def sleeps_in_futex(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/syscall").read_text().startswith("202 ")
    except OSError:
        return False


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


@pytest.mark.watchdog(180)
def test_programs_wait_for_a_slow_weft(tmp_path: Path) -> None:
    file, count = tmp_path / "coverage.json", 80
    script = (
        f"for i in $(seq {count}); do (read x; exec cksum /dev/null) <&3 & done; echo ready; wait"
    )
    weft = [sys.executable, "-m", "weft", "cov", "--counts", "--format", "json", "-o", str(file)]
    reading, writing = os.pipe()
    with subprocess.Popen(
        [*weft, "--", "bash", "-c", script.replace("<&3", f"<&{reading}")],
        stdout=subprocess.PIPE,
        pass_fds=[reading],
        text=True,
    ) as process:
        assert process.stdout
        while process.stdout.readline() != "ready\n":
            assert process.poll() is None
        [bash] = children(process.pid)
        os.kill(process.pid, signal.SIGSTOP)
        os.close(reading)
        os.close(writing)
        # All ask at once, and nobody answers.
        until(lambda: sum(map(sleeps_in_futex, children(bash))) == count, "they do not ask")
        os.kill(process.pid, signal.SIGCONT)
        process.communicate(timeout=PATIENCE)
    document = json.loads(file.read_text())
    assert not document["lost"]
    [module] = [one for one in document["modules"] if one["path"].endswith("/cksum")]
    assert max(n for _, _, _, n in module["blocks"]) >= count


@pytest.mark.watchdog(180)
def test_following_goes_on_after_weft_was_too_slow(tmp_path: Path) -> None:
    file = tmp_path / "coverage.json"
    script = "echo ready; read x; seq 1; while read x; do cksum /dev/null; done"
    weft = [sys.executable, "-m", "weft", "cov", "--format", "json", "-o", str(file), "--"]
    with subprocess.Popen(
        [*weft, "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout

        def ask() -> str:
            assert process.stdin and process.stdout
            process.stdin.write("\n")
            process.stdin.flush()
            return process.stdout.readline()

        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        # It waits for some seconds, and goes on without weft.
        assert ask() == "1\n"
        os.kill(process.pid, signal.SIGCONT)
        for _ in range(50):
            assert ask() == "4294967295 0 /dev/null\n"
        process.communicate(timeout=PATIENCE)
    document = json.loads(file.read_text())
    names = [Path(module["path"]).name for module in document["modules"]]
    assert "seq" not in names and "cksum" in names
    [text] = document["lost"]
    assert "executed natively" in text


def test_what_has_ended_is_released() -> None:
    """Programs that have ended leave neither threads nor address space behind in weft."""

    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    def gigabytes() -> float:
        return int(Path("/proc/self/statm").read_text().split()[0]) * 4096 / (1 << 30)

    before = threads(), gigabytes()
    # Each forks, and one of them becomes another one.
    one = "(exit 0); exec sh -c '(exit 0)'"
    script = f'for i in 1 2 3 4 5 6; do sh -c "{one}"; done; echo ready; read x'
    incoming, outgoing = os.pipe(), os.pipe()
    with clone.launch(
        ["sh", "-c", script], records="counts", streams=(incoming[0], outgoing[1], None)
    ) as program:
        assert os.read(outgoing[0], 100) == b"ready\n"
        # The one that waits has a thread of weft's, and room for what it records.
        until(lambda: threads() <= before[0] + 2, f"{threads()} threads, {before[0]} at first")
        until(lambda: gigabytes() < before[1] + 70, f"{gigabytes()} gigabytes")
        os.write(incoming[1], b"\n")
        assert program.wait() == 0
        assert not program.flow().lost
    for end in (*incoming, *outgoing):
        os.close(end)


def test_a_metric_says_that_the_program_has_left_its_clone(build: Build, tmp_path: Path) -> None:
    """Code of a file that is cut short makes it go on natively: three calls, the first two seen."""
    program = build("clone_smc_memory")
    with (
        Path(os.devnull).open("r+b") as nowhere,
        clone.launch(
            [program, "file_truncated"],
            is_held=True,
            directory=str(tmp_path),
            streams=(nowhere.fileno(),) * 3,
        ) as cloned,
    ):
        metric = cloned.session.metric("calls", focus=f"/Code/{program.name}/say_call")
        assert cloned.wait() == 0
        assert metric.value == 2
        (missing,) = metric.completeness.missing
        assert (missing.what, missing.count) == ("processes", 1)
        assert "left their clone" in missing.why
