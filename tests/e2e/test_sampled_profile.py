"""Sampled profiles, held against what programs know of themselves."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import weft
from tests.e2e.harness import Background, eventually
from tests.pprof import Pprof
from tests.unit.test_stacks_perfetto import Trace
from weft.errors import InvalidArgument

Build: TypeAlias = Callable[[str], Path]
Document: TypeAlias = "dict[str, Any]"

KINDS = ("cpu", "wall", "off-cpu")


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "weft", "profile", *map(str, words)]


def profile(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120
    )


def sampled(tmp_path: Path, *words: object) -> Document:
    """What a profile says as JSON."""
    out = tmp_path / "out.json"
    done = profile("-o", out, *words)
    assert done.returncode == 0, done.stderr
    found: Document = json.loads(out.read_text())
    return found


def names(stack: Document) -> list[str]:
    return [frame["function"] for frame in stack["frames"]]


def seconds_in(found: Document, name: str) -> float:
    return sum((float(one["seconds"]) for one in found["stacks"] if name in names(one)), 0.0)


def waits_in(found: Document, name: str) -> Iterator[Document]:
    return (one for one in found["stacks"] if name in names(one) and one["state"] == "blocked")


@pytest.fixture
def timed(build: Build) -> Iterator[Background]:
    with Background([build("timed")]) as program:
        yield program


def test_shares_are_those_of_the_program(build: Build, tmp_path: Path) -> None:
    """Within the error that as many independent samples have; once in a million it is larger."""
    out = tmp_path / "out.json"
    done = profile("--cpu", "--budget", "20%", "-o", out, "--", build("shares"), 2500)
    assert (done.returncode, done.stderr) == (0, "")
    own = [float(word) for word in done.stdout.split()]
    found = json.loads(out.read_text())
    samples = sum(one["samples"] for one in found["stacks"])
    assert samples > 20
    total = sum(one["seconds"] for one in found["stacks"])
    for name, ran in zip(("sixty", "thirty", "ten"), own, strict=False):
        expected = ran / sum(own[:3])
        error = 5 * math.sqrt(expected * (1 - expected) / samples) + 0.01
        assert seconds_in(found, name) / total == pytest.approx(expected, abs=error), name


def test_the_total_is_the_kernels(build: Build, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = profile("--wall", "-o", out, "--", build("shares"), 1000)
    assert done.returncode == 0
    own = float(done.stdout.split()[3])
    found = json.loads(out.read_text())
    (thread,) = found["threads"]
    # What it did before it was first looked at is missing: it was loaded then.
    assert own - 0.25 < thread["running"] < own + 0.05
    by_state = {
        state: sum(one["seconds"] for one in found["stacks"] if one["state"] == state)
        for state in ("running", "runnable", "blocked")
    }
    for state, seconds in by_state.items():
        assert seconds == pytest.approx(thread[state], abs=1e-6), state
    assert sum(by_state.values()) == pytest.approx(thread["seconds"], rel=0.03)


@pytest.mark.parametrize("kind", ["off-cpu", "wall"])
def test_waits_have_their_functions_and_names(timed: Background, kind: str, tmp_path: Path) -> None:
    found = sampled(tmp_path, timed.pid, f"--{kind}", "--for", "2")
    assert found["kind"] == kind and found["pid"] == timed.pid
    (read,) = waits_in(found, "main")
    assert read["wait"]["name"] == "[read pipe]" and read["seconds"] == pytest.approx(2, rel=0.1)
    locked = [one for one in waits_in(found, "contend") if one["wait"]["kind"] == "lock"]
    # About five of ten milliseconds; less where a busy machine lets it ask late for the lock.
    assert 0.2 < sum(one["seconds"] for one in locked) < 1.6
    for one in locked:
        assert one["wait"]["name"] == "[lock shared_lock]"
        assert {holder["name"] for holder in one["wait"]["held_by"]} <= {"holds"}
    assert any(one["wait"]["held_by"] for one in locked)
    napping = [one for one in waits_in(found, "nap") if one["samples"]]
    assert {one["wait"]["name"] for one in napping} == {"[timer]"}
    # All of the time that it holds the lock, and of the time that it does not.
    by_thread = {one["tid"]: one["name"] for one in found["threads"]}
    held = sum(one["seconds"] for one in napping if by_thread[one["tid"]] == "holds")
    assert 1 < held < 2.2
    states = {one["state"] for one in found["stacks"]}
    assert ("running" in states) == (kind == "wall")
    assert "blocked" in states


def test_threads_and_notes_are_told_apart(timed: Background, tmp_path: Path) -> None:
    found = sampled(tmp_path, timed.pid, "--cpu", "--for", "0.5")
    assert found["schema"] == 1 and found["name"] == "timed"
    assert {one["name"] for one in found["threads"]} == {"timed", "computes", "holds", "contends"}
    for thread in found["threads"]:
        parts = thread["running"] + thread["runnable"] + thread["blocked"]
        assert parts == pytest.approx(thread["seconds"], rel=0.05)
    assert found["looks"] > 1 and found["stood_still"] >= 0
    assert "is exact" in found["notes"][0] and "estimated" in found["notes"][0]
    assert seconds_in(found, "compute") > 0


def test_text(timed: Background) -> None:
    done = profile(timed.pid, "--off-cpu", "--for", "1")
    assert done.returncode == 0
    assert done.stderr == f"recording process {timed.pid} for 1 s\n"
    title, *lines = done.stdout.splitlines()
    assert f"timed ({timed.pid})  off-cpu time, watched for 1." in title
    assert "looks, threads stood still for" in title
    for heading in ("THREAD", "   SELF", "  TOTAL", "   WAIT"):
        assert any(line.lstrip().startswith(heading.strip()) for line in lines), heading
    (locked,) = (line for line in lines if "lock shared_lock" in line)
    assert locked.startswith("~") or locked.lstrip().startswith("~")
    assert "'holds'" in locked and locked.endswith("contend")
    assert any(line.startswith("~ is an estimate: ") for line in lines)


def test_frames_of_python_are_named(tmp_path: Path) -> None:
    script = tmp_path / "busy.py"
    script.write_text(
        "import time\n"
        "def inner(n):\n"
        "    return sum(i * i for i in range(n))\n"
        "def outer(end):\n"
        "    while time.thread_time() < end:\n"
        "        inner(100000)\n"
        "outer(1.5)\n"
    )
    found = sampled(tmp_path, "--cpu", "--", sys.executable, script)
    total = sum(one["seconds"] for one in found["stacks"])
    assert seconds_in(found, "outer") > 0.6 * total
    assert seconds_in(found, "inner") > 0.6 * total
    python = [frame for one in found["stacks"] for frame in one["frames"]]
    files = {frame["file"] for frame in python if frame["language"] == "python"}
    assert str(script) in files


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_written(timed: Background, kind: str, tmp_path: Path) -> None:
    expected = {"cpu": "compute", "wall": "[lock shared_lock]", "off-cpu": "[lock shared_lock]"}
    for ending in ("folded", "svg", "html", "pprof", "speedscope.json", "perfetto", "txt"):
        out = tmp_path / f"out.{ending}"
        done = profile(timed.pid, f"--{kind}", "--for", "0.5", "-o", out)
        assert done.returncode == 0, done.stderr
        data = out.read_bytes()
        if ending == "folded":
            # Notes stand above the stacks, and say that it is an estimate.
            first, *lines = data.decode().splitlines()
            assert first.startswith("# (") and "estimated" in first
            stacks = [line.rpartition(" ") for line in lines if not line.startswith("# ")]
            assert any(stack.split(";")[-1] == expected[kind] for stack, _, _ in stacks)
            assert all(int(weight) > 0 for _, _, weight in stacks)
        elif ending == "svg":
            xml.fromstring(data)
            assert b"estimate" in data
        elif ending == "pprof":
            pprof = Pprof(data)
            assert pprof.kinds == [(f"{kind.replace('-', '_')}_time", "nanoseconds")]
            assert any("estimated" in comment for comment in pprof.comments)
            assert any(stack.split(";")[-1] == expected[kind] for stack in pprof.folded())
        elif ending == "speedscope.json":
            document = json.loads(data)
            assert "estimate" in document["profiles"][0]["name"]
        elif ending == "perfetto":
            trace = Trace(data)
            assert any(name.endswith(expected[kind]) for name in trace.folded())
            assert set(trace.threads.values()) <= {"timed", "computes", "holds", "contends"}
            times = [row[0] for row in trace.samples]
            assert times == sorted(times)
            now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            assert now - 60e9 < times[0] and times[-1] < now
            (about,) = trace.processes.values()
            assert "an estimate" in about
        else:
            assert expected[kind].strip("[]").encode() in data


def test_a_program_has_its_own_input_output_and_exit_code() -> None:
    script = "read line; echo got $line; echo bad >&2; sleep 0.3; exit 7"
    done = subprocess.run(
        command("--wall", "--", "sh", "-c", script),
        input="this\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (7, "got this\n")
    assert done.stderr.startswith("bad\n") and "wall time, watched for" in done.stderr
    done = profile("--cpu", "--", "sh", "-c", "sleep 0.2; kill -9 $$")
    assert done.returncode == 128 + 9


def test_a_program_that_ends_at_once(tmp_path: Path) -> None:
    found = sampled(tmp_path, "--wall", "--", "true")
    assert found["stacks"] == [] or found["seconds"] < 1


def test_a_process_that_ends_early() -> None:
    with subprocess.Popen(["sleep", "2"]) as process:
        done = profile(process.pid, "--wall", "--for", "60")
        assert done.returncode == 0
        assert "note: the process has ended after " in done.stdout
        assert "clock_nanosleep" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_it_still_reports(timed: Background, number: signal.Signals) -> None:
    with subprocess.Popen(
        command(timed.pid, "--cpu"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None and process.stdout is not None
            assert process.stderr.readline() == f"recording process {timed.pid} until Ctrl-C\n"
            time.sleep(2)
            process.send_signal(number)
            text = process.stdout.read()
            assert process.wait(60) == 0, process.stderr.read()
        finally:
            process.kill()
    assert "cpu time, watched for" in text and "compute" in text
    assert timed.process.poll() is None


def test_a_signal_is_the_programs() -> None:
    script = "trap 'echo bye; exit 5' TERM; while :; do sleep 0.05; done"
    with subprocess.Popen(
        command("--cpu", "--", "sh", "-c", script),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            eventually(lambda: bool(children.read_text().split()))
            # Until it has set its trap, and weft hands signals on.
            time.sleep(1)
            process.send_signal(signal.SIGTERM)
            stdout, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, stdout) == (5, "bye\n"), stderr


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--cpu", "--wall", "--", "true"], 2, "--cpu and --wall are two profiles"),
        (["--cpu", "--for", "1", "--", "true"], 2, "--for is for processes that run already"),
        (["--cpu", "4194303"], 3, "there is no process 4194303"),
        (["--cpu", "--", "/not/there"], 3, "/not/there cannot be started"),
        (["--rate", "10", "--", "true"], 2, "--rate is for samples"),
        (["--budget", "1%", "--", "true"], 2, "--budget is for samples"),
        (["--format", "perfetto", "-o", "x", "--", "true"], 2, "--format perfetto is for samples"),
        (["--cpu", "--format", "callgrind", "--", "true"], 2, "cannot be written as callgrind"),
        (["--cpu", "--module", "x", "--", "true"], 2, "--module is for exact counts"),
        (["--cpu", "--budget", "x", "--", "true"], 2, "'x' is no budget"),
        (["--cpu", "--rate", "0", "--", "true"], 2, "Invalid value for '--rate'"),
    ],
)
def test_what_is_refused(words: list[str], code: int, text: str) -> None:
    done = profile(*words)
    assert done.returncode == code and text in done.stderr, done.stderr


def test_from_python(timed: Background, tmp_path: Path) -> None:
    found = weft.sample(timed.pid, 0.5, "off-cpu", keep=True)
    assert found.kind == "off-cpu" and "timed" in found.title
    assert any("is exact" in note for note in found.write_stacks(tmp_path / "waits.svg"))
    xml.fromstring((tmp_path / "waits.svg").read_text())
    found.write_stacks(tmp_path / "waits.perfetto")
    assert Trace((tmp_path / "waits.perfetto").read_bytes()).samples
    assert found.to_json()["kind"] == "off-cpu"
    assert "lock shared_lock" in str(found)
    with weft.attach(timed.pid) as session:
        assert "compute" in session.sample(0.5).text(top=3)
    with pytest.raises(InvalidArgument, match="no kind of time 'user'"):
        weft.sample(timed.pid, 1, "user")  # type: ignore[arg-type]


def test_a_timeline_has_an_end(timed: Background, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.program.sampler._MOST_KEPT", 8)
    found = weft.sample(timed.pid, 0.5, "wall", keep=True)
    (note,) = (one for one in found.notes if "timeline" in one)
    assert "the first 2 of " in note
    assert 0 < len(found.weighed_stacks().samples) <= 8
