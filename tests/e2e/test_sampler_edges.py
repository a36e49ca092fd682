"""Sampling where a process becomes another program, weft may open few files, or may not sample."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.e2e.harness import Background
from weft.program.sampler import ThreadSampler

Build: TypeAlias = Callable[[str], Path]

WEFT = [sys.executable, "-m", "weft"]
UNPRIVILEGED = ["setpriv", "--bounding-set=-perfmon,-sys_admin"]
"""As root, which may stop others, and without the right to sample by the kernel's clock."""


def report(words: Sequence[str | Path]) -> dict[str, Any]:
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_frames_are_those_of_the_program_that_ran(build: Build) -> None:
    """Both are mapped anywhere: by the other's tables and names nothing is right."""
    with Background([build("execs_late")]) as program:
        program.wait_for_line(b"ready")
        sampler = ThreadSampler(program.pid)
        assert sampler.watch(0.5, budget=1.0)
        os.kill(program.pid, signal.SIGUSR1)
        program.wait_for_line(b"again")
        assert sampler.watch(0.5, budget=1.0)
        os.kill(program.pid, signal.SIGUSR1)
        sampler.watch(60.0, budget=1.0)
        found = sampler.result()
    running = Counter[str]()
    for place in found.places:
        functions = [frame.function for frame in place.frames]
        own = next((name for name in functions if name and name.startswith("as_the_")), "other")
        running[own] += place.running  # type: ignore[assignment]
    assert running["as_the_first"] and running["as_the_second"], running
    # Between both, the loader and the kernel work.
    assert running["other"] < 0.2 * found.running + 0.1, running


def test_an_interpreter_that_comes_by_exec_is_read() -> None:
    busy = "def busy():\n    while True: pass\nbusy()"
    script = 'for i in $(seq 60000); do :; done; exec "$0" -c "$1"'
    with subprocess.Popen(["bash", "-c", script, sys.executable, busy]) as process:
        try:
            sampler = ThreadSampler(process.pid)
            seen = False
            for _ in range(20):
                assert sampler.watch(0.5, budget=1.0)
                places = sampler.result().places
                seen = any(
                    frame.language == "python" and frame.function == "busy"
                    for place in places
                    for frame in place.frames
                )
                if seen:
                    break
        finally:
            process.kill()
    assert seen


THREADS = """
import threading
for _ in range(200):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
while True: pass
"""


@pytest.mark.parametrize("command", ["stacks", "profile --wall --for 1", "why --for 3"])
def test_many_threads_with_few_files(command: str) -> None:
    """Each thread has files of its own that are kept open where there is room for them."""
    first, *rest = command.split()
    with Background([sys.executable, "-c", THREADS]) as program:
        program.wait_for_line(b"ready")
        words = [*WEFT, first, str(program.pid), *rest, "--format", "json"]
        found = report(["sh", "-c", 'ulimit -n 96; exec "$0" "$@"', *words])
        program.kill()
    if first == "why":
        assert found["answers"][0]["hypothesis"] == "cpu"
    else:
        assert len(found["threads"]) == 201


@pytest.mark.parametrize("command", ["stacks", "profile"])
def test_calls_that_weft_has_cut_short_are_counted(command: str) -> None:
    """Where it may not sample it has to stop threads, and what that does to them is said."""
    count = 40
    dd = ["dd", "if=/dev/urandom", "of=/dev/null", "bs=16M", f"count={count}"]
    words = ["stacks", "--repeat", "40", "--interval", "0.02"]
    if command == "profile":
        words = ["profile", "--wall", "--for", "1", "--rate", "200"]
    with subprocess.Popen(dd, stderr=subprocess.PIPE, text=True) as process:
        done = subprocess.run(
            [*UNPRIVILEGED, *WEFT, *words, str(process.pid)],
            capture_output=True,
            text=True,
            timeout=100,
        )
        _, errors = process.communicate()
    assert done.returncode == 0, done.stderr
    whole, partial = map(int, re.findall(r"(\d+)\+(\d+) records in", errors)[0])
    assert whole + partial == count
    told = re.findall(r"([\d,]+) system calls? may have come back", done.stdout + done.stderr)
    assert (partial > 0) == bool(told), (errors, done.stdout, done.stderr)


@pytest.mark.parametrize("looks", [5, 50])
def test_a_wait_for_a_processor_is_one_before_it_is_over(looks: int) -> None:
    """The kernel counts it when it is, and then all of it, also what was before weft looked."""
    one = {min(os.sched_getaffinity(0))}

    def idle() -> None:
        os.sched_setaffinity(0, one)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    spin = [sys.executable, "-c", "while True: pass"]
    programs = [
        subprocess.Popen(spin, preexec_fn=lambda: os.sched_setaffinity(0, one)),
        subprocess.Popen(spin, preexec_fn=idle),
    ]
    try:
        time.sleep(0.5)
        sampler = ThreadSampler(programs[1].pid)
        assert sampler.watch(1.0, rate=looks, budget=1.0)
        (thread,) = sampler.result().threads
    finally:
        for program in programs:
            program.kill()
            program.wait()
    assert thread.running < 0.5 * thread.seconds
    assert thread.blocked < 0.1 * thread.seconds, thread
    assert thread.running + thread.runnable == pytest.approx(thread.seconds, rel=0.02)


@pytest.mark.parametrize("seconds", [0.05, 0.3])
def test_a_program_is_sampled_from_its_beginning(seconds: float, tmp_path: Path) -> None:
    """What it does before weft has read its names counts, and its loader does not."""
    text = "import time\nbegan = time.process_time()\n"
    text += f"while time.process_time() < began + {seconds}: pass\nprint(time.process_time())"
    out = tmp_path / "out.json"
    words = [
        "profile",
        "--cpu",
        "-o",
        str(out),
        "--format",
        "json",
        "--",
        sys.executable,
        "-Sc",
        text,
    ]
    done = subprocess.run([*WEFT, *words], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    own = float(done.stdout)
    (thread,) = json.loads(out.read_text())["threads"]
    assert own - 0.05 < thread["running"] < own + 0.1


@pytest.mark.parametrize("command", ["profile --cpu", "waits", "why"])
def test_what_is_started_ends_as_it_would(command: str) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        started = [*WEFT, *command.split(), "--", *words]
        return subprocess.run(started, capture_output=True, text=True, timeout=100)

    assert run("sh", "-c", "exit 3").returncode == 3
    assert run("sh", "-c", "kill -9 $$").returncode == 137
    missing = run("no-such-program")
    assert missing.returncode != 0 and "no-such-program" in missing.stderr
    assert run("sh", "-c", "echo said").stdout.startswith("said\n")
