"""What a value does not contain is said wherever it is shown; what would be wrong is refused."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.e2e.harness import Background, code
from weft.errors import IncompleteMetric

Build = Callable[[str], Path]
Word = str | Path

WEFT = (sys.executable, "-m", "weft")
ROUNDS = 40
HALF = "/Code/incomplete/half"
TIMER = "entry half { startWallTimer(took) } return half { stopWallTimer(took) }"

REFUSED = [
    ("-m", f"latency@{HALF}"),
    ("-m", f"inclusive_time@{HALF}"),
    ("-m", f"cpu_time@{HALF}"),
    ("-m", f"syscalls@{HALF}"),
    ("-e", TIMER),
]
"""What begins where the function is entered, and ends where it is left."""


@pytest.fixture
def incomplete(build: Build) -> Path:
    return build("incomplete")


def weft_run(*words: Word) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WEFT, "run", *words], capture_output=True, text=True, timeout=120)


def total(document: dict[str, Any], metric: str) -> dict[str, Any]:
    (found,) = [one for one in document["totals"] if one["metric"] == metric]
    return dict(found)


@pytest.mark.parametrize("wanted", REFUSED)
def test_what_never_ends_is_refused(incomplete: Path, wanted: tuple[str, str]) -> None:
    done = weft_run(*wanted, "--", incomplete, str(ROUNDS))
    # It says so before the program has done anything.
    assert (done.returncode, done.stdout) == (5, "")
    assert re.match(rf"error: .* cannot be measured right: {HALF} can be entered", done.stderr)
    assert "--weaver auto" in done.stderr
    assert "--allow-incomplete" in done.stderr


@pytest.mark.parametrize("wanted", REFUSED)
def test_what_never_ends_is_measured_if_one_asks_for_it(
    incomplete: Path, wanted: tuple[str, str]
) -> None:
    options = ["--allow-incomplete", "--format", "json", *wanted]
    done = weft_run(*options, "-m", "calls@/Code/incomplete/plain", "--", incomplete, str(ROUNDS))
    assert (done.returncode, done.stdout.splitlines()[0]) == (7, f"half {ROUNDS}")
    document = json.loads(done.stderr)
    (plain, plain_series), (first, series) = sorted(
        zip(document["totals"], document["series"], strict=True),
        key=lambda pair: pair[0]["metric"] != "calls",
    )
    assert first["status"] == "incomplete"
    assert (HALF, "exit points") in {(one["where"], one["what"]) for one in first["missing"]}
    assert all(one["why"] for one in first["missing"])
    assert all(sample[2] == "incomplete" for sample in series["samples"])
    # What has nothing to do with it is as good as ever.
    assert (plain["value"], plain["status"], plain["missing"]) == (ROUNDS, "exact", [])
    assert {sample[2] for sample in plain_series["samples"]} == {"exact"}


def test_a_clone_measures_what_can_be_seen(incomplete: Path) -> None:
    """In a clone there is room for the exit that is known, but the other one is not known."""
    wanted = ["-m", f"latency@{HALF}", "--format", "json"]
    for weaver in ("clone", "auto"):
        done = weft_run("--weaver", weaver, *wanted, "--", incomplete, str(ROUNDS))
        assert done.returncode == 7
        latency = total(json.loads(done.stderr.splitlines()[-1]), "latency")
        assert latency["value"]["count"] == ROUNDS / 2
        assert latency["status"] == "incomplete"
        # An exit is not known, and so half of the calls are not seen to return.
        missing = {(one["where"], one["what"]) for one in latency["missing"]}
        assert {where for where, _ in missing} == {HALF}
        assert (HALF, "exit points") in missing
    # Of the other function no exit at all is known, whatever the weaver.
    for weaver in ("patch", "clone", "auto"):
        hidden = ["-m", "latency@/Code/incomplete/hidden", "--weaver", weaver]
        done = weft_run(*hidden, "--", incomplete, str(ROUNDS))
        assert (done.returncode, done.stdout) == (5, "")
        assert "/Code/incomplete/hidden can be entered" in done.stderr


def test_a_counter_that_misses_points_is_marked(incomplete: Path) -> None:
    """Where signal handlers return, nothing can be woven, so that call is never counted."""
    done = weft_run("-m", "syscalls", "--format", "json", "--", incomplete, "1")
    syscalls = total(json.loads(done.stderr), "syscalls")
    assert done.returncode == 7
    assert syscalls["status"] == "incomplete"
    assert "/Code/libc.so.6/__restore_rt" in {one["where"] for one in syscalls["missing"]}
    assert any("--weaver auto" in one["advice"] for one in syscalls["missing"])


def test_each_format_says_it(incomplete: Path, tmp_path: Path) -> None:
    def written(format_: str) -> Path:
        out = tmp_path / format_
        wanted = [
            "--allow-incomplete",
            "-m",
            f"latency@{HALF}",
            "-m",
            "calls@/Code/incomplete/half",
        ]
        done = weft_run(*wanted, "--format", format_, "-o", out, "--", incomplete, str(ROUNDS))
        assert (done.returncode, done.stderr) == (7, "")
        return out

    text = written("text").read_text()
    assert re.search(rf"^latency +{HALF} +!\d+ ", text, re.MULTILINE), text
    assert re.search(rf"^calls +{HALF} +{ROUNDS} ", text, re.MULTILINE), text
    note = rf"^! latency@{HALF}: incomplete: missing exit points of {HALF}.*--weaver auto"
    assert re.search(note, text, re.MULTILINE), text
    rows = list(csv.DictReader(written("csv").read_text().splitlines()))
    worth = {row["metric"]: (row["status"], bool(row["missing"])) for row in rows}
    assert worth == {"latency": ("incomplete", True), "calls": ("exact", False)}
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(written("parquet"))
    statuses = {(row["metric"], row["status"]) for row in table.to_pylist()}
    assert statuses == {("latency", "incomplete"), ("calls", "exact")}
    about = json.loads(table.schema.metadata[b"weft"])
    assert total(about, "latency")["missing"]


@contextmanager
def attached(incomplete: Path) -> Iterator[tuple[Background, weft.Session]]:
    with Background([incomplete]) as program:
        before = code(program.pid)
        with weft.attach(program.pid) as session:
            yield program, session
        assert code(program.pid) == before


def round_of_calls(program: Background) -> None:
    assert program.process.stdin
    program.process.stdin.write(b"go\n")
    program.process.stdin.flush()
    count = program.output.splitlines().count(b"done")
    while program.output.splitlines().count(b"done") == count:
        program.output += program.process.stdout.read1()  # type: ignore[union-attr]


def test_python_knows(incomplete: Path) -> None:
    with attached(incomplete) as (program, session):
        woven = code(program.pid)
        with pytest.raises(IncompleteMetric) as caught:
            session.metric("latency", HALF)
        assert [one.where for one in caught.value.missing] == [HALF]
        # What was refused has left nothing behind.
        assert code(program.pid) == woven
        assert session.metrics.metrics == []
        latency = session.metric("latency", HALF, allow_incomplete=True)
        calls = session.metric("calls", HALF)
        round_of_calls(program)
        session.metrics.sample()
        assert latency.completeness.status == "incomplete"
        assert {one.where for one in latency.completeness.missing} == {HALF}
        assert latency.history()[-1].completeness == latency.completeness
        assert "incomplete" in repr(latency)
        assert "incomplete: missing exit points" in latency._repr_html_()
        assert (calls.value, calls.completeness) == (1, weft.Completeness())
        assert next(calls.stream(interval=0.0, limit=1)).completeness.is_exact
        pandas = pytest.importorskip("pandas")
        frame = latency.to_pandas()
        assert isinstance(frame, pandas.DataFrame)
        assert set(frame["status"]) == {"incomplete"}
        assert set(calls.to_pandas()["status"]) == {"exact"}
        missing = json.loads(latency.to_arrow().schema.metadata[b"missing"])
        assert [one["where"] for one in missing] == [
            one.where for one in latency.completeness.missing
        ]
    # A value that can still be read still says what it is worth.
    assert latency.completeness.status == "incomplete"
    assert calls.completeness.is_exact


def test_probes_know(incomplete: Path) -> None:
    with attached(incomplete) as (_, session):
        probe = session.insert(HALF, "counter exits\nat exit { exits += 1 }")
        assert probe.completeness.status == "incomplete"
        assert {one.where for one in probe.completeness.missing} == {HALF}
        reasons = {one.why for one in probe.completeness.missing}
        assert {refusal.reason for refusal in probe.refused} <= reasons
        assert session.insert(HALF, "counter calls; calls += 1").completeness.is_exact


def test_prometheus_says_it(incomplete: Path) -> None:
    pytest.importorskip("prometheus_client")
    with Background([incomplete]) as program:
        wanted = [
            "--allow-incomplete",
            "-m",
            f"latency@{HALF}",
            "-m",
            "calls@/Code/incomplete/plain",
        ]
        command = [*WEFT, "attach", str(program.pid), "--prometheus", ":0", *wanted]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                assert process.stderr
                url = process.stderr.readline().decode().split()[-1]
                with urllib.request.urlopen(url, timeout=30) as answer:
                    page: str = answer.read().decode()
            finally:
                process.kill()
    status = re.findall(r'^weft_status\{.*metric="(\w+)".*status="(\w+)"\} ([\d.]+)$', page, re.M)
    now = {(metric, status) for metric, status, value in status if float(value) == 1}
    assert now == {("latency", "incomplete"), ("calls", "exact")}
    assert re.search(r'^weft_missing\{.*metric="latency".*what="exit points".*\} [1-9]', page, re.M)
    assert not re.search(r'^weft_missing\{.*metric="calls"', page, re.M)


# --- Results that a metric counts by, and does not see ------------------------------------------


@pytest.mark.parametrize("weaver", ["patch", "clone"])
@pytest.mark.parametrize("name", ["written", "written_musl"])
def test_results_that_are_not_seen_are_missing(build: Build, name: str, weaver: str) -> None:
    """``write`` of musl ends in a jump to what makes the call, and has no result of its own."""
    with Background([str(build(name))]) as program:
        program.wait_for_line(b"ready")
        pid, in_clone = program.pid, weaver == "clone"
        with weft.attach(pid, weaver="clone") if in_clone else weft.attach(pid) as attached:
            session = attached if isinstance(attached, weft.Session) else attached.session
            metric = session.metric("io_bytes")
            assert program.finish() == (0, "ready\ndone\n")
            session.metrics.sample()
            last = metric.history()[-1]
            if name == "written":
                assert last.completeness.is_exact
                assert metric.value == 1005
            else:
                (missing,) = last.completeness.missing
                # The end of a read, and 101 calls of write.
                assert (missing.what, missing.count) == ("results", 102)
                assert metric.completeness == last.completeness
