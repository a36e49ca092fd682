"""Why a program is slow: what was planted is answered; and what the command prints."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.bottlenecks.asking import ask
from tests.bottlenecks.catalogue import CASES
from tests.bottlenecks.running import RECIPES
from tests.e2e.harness import Background, children, eventually, need
from weft.why.search import why

WEFT = (sys.executable, "-m", "weft")
BLOCKED = ("ledger", "quotes", "spool-claim", "checker", "resolver", "cache", "inventory")
"""Programs that wait: what else the machine does changes little of that."""
BUSY = ("report", "table", "loader", "feed")
"""Programs that run. Where others have the processors, waiting for one is the truth."""
HEALTHY = ("desk", "timers")


def case(name: str):  # type: ignore[no-untyped-def]
    (found,) = (one for one in CASES if one.name == name)
    if Path(found.source).suffix in RECIPES:
        need(RECIPES[Path(found.source).suffix][0])
    return found


@pytest.mark.parametrize("name", BLOCKED)
def test_what_it_waits_for(name: str) -> None:
    verdict = ask(case(name), 3.0, 1, False)
    assert verdict.right, verdict


@pytest.mark.parametrize("name", BUSY)
def test_what_it_runs(name: str) -> None:
    verdict = ask(case(name), 3.0, 1, False)
    found = [answer.hypothesis for answer in verdict.answers]
    is_crowded = found[:1] == ["run_queue"] and set(case(name).expected) <= set(found)
    assert verdict.right or is_crowded, verdict


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_stands_out(name: str) -> None:
    verdict = ask(case(name), 3.0, 1, False)
    assert verdict.right, verdict


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for a lock on a file, which another has."""
    file = tmp_path / "busy.lock"
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with subprocess.Popen(["flock", str(file), "true"]) as waiter:
            try:
                wait = Path(f"/proc/{waiter.pid}/wchan")
                eventually(lambda: "lock" in wait.read_text())
                yield waiter
            finally:
                waiter.kill()


def test_json_and_html(locked: subprocess.Popen[bytes], tmp_path: Path) -> None:
    found = json.loads(
        subprocess.run(
            [*WEFT, "why", str(locked.pid), "--for", "1", "--format", "json"],
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    )
    assert found["schema"] == 1
    first = found["answers"][0]
    assert first["hypothesis"] == "lock_wait" and "busy.lock" in first["focus"]
    assert 0.9 < first["share"] <= 1 and "busy.lock" in first["text"]
    assert first["evidence"] and all(one["text"] for one in first["evidence"])
    assert first["evidence"][0]["threshold"] < first["evidence"][0]["interval"][0]
    page = tmp_path / "why.html"
    subprocess.run([*WEFT, "why", str(locked.pid), "--for", "1", "-o", page], check=True)
    assert "busy.lock" in page.read_text() and "lock_wait" in page.read_text()


def test_python_says_the_same(locked: subprocess.Popen[bytes]) -> None:
    with weft.attach(locked.pid) as session:
        first = session.why(1.0).answers[0]
    assert first.hypothesis == "lock_wait" and "busy.lock" in first.focus


def test_hypotheses_of_a_user(locked: subprocess.Popen[bytes], tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "queue.toml").write_text(
        'name = "queueing"\ntitle = "queueing"\nthreshold = 0.5\ntext = "{share} in {focus}"\n'
        '[[time]]\nstate = "blocked"\ncalls = ["flock"]\n'
    )
    command = [*WEFT, "why", str(locked.pid), "--for", "1", "--hypotheses", str(folder)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert "1. queueing: 100% in" in printed
    (folder / "queue.toml").write_text("name = 3")
    refused = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert refused.returncode == 2 and "queue.toml is no hypothesis" in refused.stderr


def test_who_ends_it_early_is_told_what_was_seen(locked: subprocess.Popen[bytes]) -> None:
    command = [*WEFT, "why", str(locked.pid), "--for", "600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        printed = process.stdout.read()
        process.wait(60)
    assert "lock_wait" in printed, printed


def test_a_program_that_is_started_keeps_its_output_and_code() -> None:
    text = "import time; print('out'); time.sleep(2); raise SystemExit(7)"
    done = subprocess.run(
        [*WEFT, "why", "--for", "1", "--", sys.executable, "-c", text],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 7 and done.stdout == "out\n"
    assert "Nothing stands out" in done.stderr


MANY = """
import os, threading
for _ in range(10):
    read, write = os.pipe()
    if os.fork() == 0:
        __import__("time").sleep(60)
        os._exit(0)
    threading.Thread(target=os.read, args=(read, 1), daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""


def test_one_of_many_is_not_all_of_them() -> None:
    with Background([sys.executable, "-c", MANY]) as program:
        program.wait_for_line(b"ready")
        try:
            first, *_ = why(program.pid, seconds=1.5).answers
        finally:
            for child in children(program.pid):
                os.kill(child, signal.SIGKILL)
            program.kill()
    assert first.hypothesis == "peer_wait" and first.share > 0.9, first
    assert first.focus_share == pytest.approx(0.1, abs=0.05)
    assert "10 things, most often" in first.text and "(10% of that)" in first.text, first.text


def test_a_program_is_watched_from_its_beginning() -> None:
    """Also if it is over before weft could have looked at it."""
    text = "n = 0\nwhile n < 5_000_000: n += 1"
    done = subprocess.run(
        [*WEFT, "why", "--format", "json", "--", sys.executable, "-Sc", text],
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stderr)
    assert done.returncode == 0 and found["seconds"] > 0.15, found
    assert found["answers"][0]["hypothesis"] in ("cpu", "run_queue"), found


def test_a_process_that_ends_meanwhile() -> None:
    with subprocess.Popen(["sleep", "15"]) as process:
        done = subprocess.run(
            [*WEFT, "why", str(process.pid), "--for", "60"], stdout=subprocess.PIPE, text=True
        )
    assert done.returncode == 0 and "the process ended after" in done.stdout
    assert "stopped" not in done.stdout


def test_the_child_of_one_that_only_waits() -> None:
    """As servers have it: the process that was started leaves the work to others."""
    script = "import os,signal\nif os.fork() == 0:\n while True: sum(range(1000))\nsignal.pause()"
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            eventually(lambda: bool(children.read_text().split()))
            command = [*WEFT, "why", str(process.pid), "--for", "4", "--format", "json"]
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            assert found["pid"] == int(children.read_text().split()[0])
            assert {"cpu", "run_queue"} & {one["hypothesis"] for one in found["answers"]}
            assert any("busiest child" in note for note in found["notes"])
        finally:
            subprocess.run(["kill", *children.read_text().split()], check=True)
            process.kill()


@pytest.mark.parametrize(
    "text",
    [
        "from concurrent.futures import ThreadPoolExecutor as P\np = P(4)\n"
        "list(p.map(time.sleep, [0.01] * 4))\nprint('ready', flush=True)\ntime.sleep(1000)",
        "import queue\nq = queue.Queue()\n"
        "[threading.Thread(target=q.get, daemon=True).start() for _ in range(4)]\n"
        "print('ready', flush=True)\ntime.sleep(1000)",
        "e = threading.Event()\nt = threading.Thread(target=e.wait)\nt.start()\n"
        "print('ready', flush=True)\nt.join()",
    ],
    ids=["pool", "queue", "event and join"],
)
def test_threads_of_python_that_wait_for_work(text: str) -> None:
    command = [sys.executable, "-c", f"import threading, time\n{text}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            found = why(process.pid, seconds=2.0)
            assert [one.hypothesis for one in found.answers] == ["none"], found.answers
        finally:
            process.kill()


@pytest.mark.parametrize(("text", "code"), [("exit 9", 9), ("kill -9 $$", 137), ("true", 0)])
def test_a_program_that_ends_at_once(text: str, code: int) -> None:
    done = subprocess.run([*WEFT, "why", "--", "sh", "-c", text], stderr=subprocess.PIPE, text=True)
    assert done.returncode == code and "internal error" not in done.stderr


def test_the_child_of_one_that_waits_for_it() -> None:
    script = "import subprocess, sys\n" + (
        "subprocess.run([sys.executable, '-c', 'while True: sum(range(1000))'])"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        try:
            eventually(lambda: bool(children.read_text().split()))
            found = why(process.pid, seconds=3.0)
            assert found.pid == int(children.read_text().split()[0])
            assert {"cpu", "run_queue"} & {one.hypothesis for one in found.answers}
        finally:
            subprocess.run(["kill", *children.read_text().split()], check=True)
            process.kill()


def test_one_that_is_stopped() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            process.send_signal(signal.SIGSTOP)
            found = why(process.pid, seconds=1.0)
            assert "it is stopped" in found.answers[0].text
        finally:
            process.kill()
