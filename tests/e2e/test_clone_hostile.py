"""Programs that write to the memory that they share with weft harm themselves, and nobody else."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clone import cloned
from tests.e2e.harness import need
from weft import clone

Build = Callable[[str], Path]

SEEDS = range(int(os.environ.get("WEFT_CASES", "2")))

COMMANDS = {
    "run": ["run", "--weaver", "clone"],
    "run -m": ["run", "--weaver", "clone", "-m", "calls@/Code/libc.so.6/getpid"],
    "cov": ["cov"],
    "profile": ["profile"],
    "trace": ["trace", "-o", "hostile.weft-trace"],
    "trace --values": ["trace", "--values", "-o", "hostile.weft-trace"],
}

MOST_MEMORY = 3 << 20
"""How much weft may use, in KiB: a trace has memory for each thread that writes one."""


@contextmanager
def bystander() -> Iterator[int]:
    """A process that has nothing to do with the program."""
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def tracer_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^TracerPid:\s*(\d+)$", status, re.MULTILINE)
    assert found
    return int(found[1])


def test_a_program_cannot_have_another_process_held(build: Build) -> None:
    command = [*cloned(), str(build("clone_hostile")), "name"]
    with (
        bystander() as pid,
        subprocess.Popen(
            [*command, str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout
        answer = process.stdout.readline()
        tracer = tracer_of(pid)
        process.communicate("\n", timeout=60)
        assert (answer, tracer, process.returncode) == ("refused\n", 0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a PID namespace")
def test_programs_in_a_namespace_are_followed(tmp_path: Path) -> None:
    need("unshare")
    # Its ids are those of others outside. The first one in there calls itself 1.
    nested = ["unshare", "-fp", "sh", "-c", "wc -c /etc/hostname > /dev/null; exec cksum /dev/null"]
    with clone.launch(
        ["unshare", "-fp", "sh", "-c", 'unshare "$@"; true', *nested], records="hits"
    ) as program:
        assert program.wait() == 0
        flow = program.flow()
    names = {Path(module.path).name for module in flow.modules}
    assert {"unshare", "wc", "cksum"} <= names
    assert not flow.lost


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.watchdog(180)
def test_what_a_program_scribbles_harms_nobody_else(
    build: Build, command: list[str], seed: int
) -> None:
    program = ["timeout", "-s", "KILL", "3", str(build("clone_hostile")), "scribble", "400"]
    words = [sys.executable, "-m", "weft", *command, "--", *program, str(seed)]
    with tempfile.TemporaryDirectory(prefix="weft-") as folder, bystander() as pid:
        with subprocess.Popen(
            words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            text, _ = process.communicate(timeout=150)
        assert tracer_of(pid) == 0
    assert "panicked" not in text and "Traceback" not in text, text
    assert process.returncode >= 0 and process.returncode != 70, text
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < MOST_MEMORY
