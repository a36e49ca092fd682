"""``weft stacks``, as people and programs use it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from tests.e2e.harness import eventually
from tests.e2e.test_stacks import waiting
from weft import _native
from weft.cli.stacks import rendered
from weft.model.thread_stacks import Stacks, ThreadStack
from weft.model.waits import Descriptor, Wait
from weft.program.frames import SIGNAL

Build: TypeAlias = Callable[[str], Path]


def stacks(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "weft", "stacks", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
    )


def documents(*words: object) -> list[dict[str, Any]]:
    done = stacks(*words)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_text(build: Build) -> None:
    with waiting(build("stacks_O2")) as pid:
        done = stacks(pid)
    assert (done.returncode, done.stderr) == (0, "")
    title, *rest = done.stdout.splitlines()
    assert title.startswith(f"stacks_O2 ({pid}): 12 threads, stood still for ")
    assert any(line.startswith("    in_loop") and "stacks.c:" in line for line in rest)
    # What calls itself 2000 times takes a few lines.
    assert sum("in_recursion" in line for line in rest) == 3
    assert "    ... 1998 more of the same" in rest
    assert any("sleeps in read" in line for line in rest)


def test_json(build: Build) -> None:
    with waiting(build("stacks_O2")) as pid:
        (document,) = documents(pid, "--json")
        (same,) = documents(pid, "--format", "json")
    assert document["schema"] == 1
    assert document["seconds_stopped"] > 0
    assert len(document["threads"]) == len(same["threads"]) == 12
    for thread in document["threads"]:
        assert {"tid", "name", "state", "call", "frames", "truncated"} <= set(thread)
        for frame in thread["frames"]:
            keys = {"function", "module", "file", "line", "inlined", "language"}
            assert keys <= set(frame)
    (deep,) = (one for one in document["threads"] if one["name"] == "way 7")
    assert sum(frame["function"] == "in_recursion" for frame in deep["frames"]) == 2001


def test_again_and_again(build: Build) -> None:
    with waiting(build("stacks_O2")) as pid:
        began = time.time()
        found = documents(pid, "--json", "--repeat", 3, "--interval", 0.3)
    assert len(found) == 3
    assert found[2]["time"] - found[0]["time"] >= 0.3
    assert began <= found[0]["time"] < found[1]["time"] < found[2]["time"]


def test_a_process_that_ends_meanwhile() -> None:
    with (
        subprocess.Popen(["sleep", "1000"]) as process,
        subprocess.Popen(
            [sys.executable, "-m", "weft", "stacks", str(process.pid), "--repeat", "1000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as looking,
    ):
        assert looking.stdout is not None and looking.stderr is not None
        assert looking.stdout.readline().startswith("sleep (")
        process.kill()
        process.wait()
        assert looking.wait(60) == 0
        assert "has ended after" in looking.stderr.read()


def test_threads_in_the_same_place_are_shown_once() -> None:
    code = "import threading, time\n"
    code += "for _ in range(12):\n threading.Thread(target=time.sleep, args=(600,)).start()\n"
    code += "print('ready', flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            time.sleep(0.1)
            (document,) = documents(process.pid, "--json")
            text = stacks(process.pid).stdout
        finally:
            process.kill()
    assert len(document["threads"]) == 13
    # Fewer titles than threads; a thread may not have reached its place.
    assert text.count("sleeps in") < 13
    assert " threads " in text


def test_a_first_thread_that_has_ended(build: Build) -> None:
    """And a name of a thread that would be taken for another thread."""
    with subprocess.Popen([build("first_ends")], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            eventually(lambda: all(state in "SZ" for *_, state in _native.threads(process.pid)))
            (document,) = documents(process.pid, "--json")
            text = stacks(process.pid).stdout
        finally:
            process.kill()
    (thread,) = document["threads"]
    assert "in_read" in [frame["function"] for frame in thread["frames"]]
    assert (thread["call"], thread["waits_for"]["kind"]) == ("read", "descriptor")
    assert sum(line.startswith("thread ") for line in text.splitlines()) == 1


def test_a_process_that_waits_for_its_parent() -> None:
    with subprocess.Popen(["true"]) as process:
        eventually(lambda: _native.threads(process.pid)[0][2] == "Z")
        done = stacks(process.pid)
    assert done.returncode != 0
    assert f"process {process.pid} has ended" in done.stderr and "parent" in done.stderr


def test_a_call_of_nothing(build: Build) -> None:
    """What it returns to is at the top of the stack."""
    with subprocess.Popen([build("calls_nothing")], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            eventually(lambda: _native.threads(process.pid)[0][2] == "S")
            (document,) = documents(process.pid, "--json")
        finally:
            process.kill()
    (thread,) = document["threads"]
    names = [frame["function"] for frame in thread["frames"]]
    at = names.index("on_signal")
    assert names[at:][:5] == ["on_signal", SIGNAL, None, "calls_nothing", "main"], names
    assert thread["truncated"] is None


def test_a_process_that_weft_holds(build: Build) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([build("holds")], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            # Where it may not sample by the kernel's clock, it has to stop it.
            refused = ["setpriv", "--bounding-set=-perfmon,-sys_admin"]
            words = [*refused, sys.executable, "-m", "weft", "stacks", process.stdout.readline()]
            done = subprocess.run([one.strip() for one in words], capture_output=True, text=True)
            process.stdin.close()
        finally:
            process.kill()
    assert done.returncode != 0
    assert "is held by weft" in done.stderr and "debugger" not in done.stderr


def test_times_that_are_none() -> None:
    for word in ("nan", "-1", "inf"):
        done = stacks(1, "--repeat", 2, f"--interval={word}")
        assert done.returncode == 2 and "--interval" in done.stderr, word


def test_how_long_it_stood_still_and_waits() -> None:
    socket = Descriptor(3, "socket", "unix")
    wait = Wait("descriptor", "data from descriptor 3", descriptors=(socket,), timeout=2.0)
    thread = ThreadStack(7, "own", "D", (), None, None, wait)
    for seconds, shown in ((0.0, "0 ms"), (0.14, "140 ms"), (2.0, "2.0 s")):
        title, _, state, waits = map(str, rendered(Stacks(7, "own", 0.0, (thread,), (seconds,))))
        assert title == f"own (7): 1 thread, stood still for {shown}"
    assert state == "thread 7 own: waits in the kernel"
    assert waits == "    waits for data from descriptor 3, for 2.0 s at most"


def test_what_is_not_there() -> None:
    done = stacks(999_999_999)
    assert done.returncode != 0
    assert "does not exist" in done.stderr
