"""``weft run`` and ``weft attach`` with metrics: what they print, write and leave behind."""

from __future__ import annotations

import csv
import importlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import weft as weft_library
from tests.e2e.harness import Background, need
from tests.lockstep import Lockstep, lockstep, parse_counts
from weft.errors import BadFile, InvalidArgument

Build = Callable[[str], Path]
Word = str | Path

WEFT = (sys.executable, "-m", "weft")
TINY = "calls@/Code/counts/tiny"


def weft(*words: Word, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WEFT, *words], capture_output=True, text=True, timeout=120, **options)


@contextmanager
def attached(pid: int, *words: Word) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run ``weft attach`` until it measures: then it says where it serves Prometheus."""
    command = [*WEFT, "attach", str(pid), "--prometheus", ":0", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            assert said.startswith("metrics for Prometheus: http://127.0.0.1:"), said
            yield process, said.split()[-1]
        finally:
            process.kill()


def leaves_nothing(pid: int) -> bool:
    return "/memfd:weft" not in Path(f"/proc/{pid}/maps").read_text()


def total(document: dict[str, Any], metric: str, focus: str = "") -> Any:
    """Return the one total of a metric in a document."""
    (found,) = [
        one["value"]
        for one in document["totals"]
        if (one["metric"], one["focus"]) == (metric, focus)
    ]
    return found


@pytest.fixture
def counts(build: Build) -> Path:
    return build("counts")


# weft run


def test_run_writes_a_document(counts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    wanted = ["-m", TINY, "-m", "calls@/Code/counts/normal", "-m", "latency@/Code/counts/normal"]
    done = weft("run", *wanted, "--format", "json", "-o", out, "--", counts, "3", "500")
    assert (done.returncode, done.stderr) == (7, "")
    truth = parse_counts(done.stdout)
    document = json.loads(out.read_text())
    assert document.keys() == {"schema", "target", "seconds", "totals", "series", "shed"}
    assert document["schema"] == 2
    assert document["target"]["program"] == str(counts)
    assert document["target"]["command"] == [str(counts), "3", "500"]
    assert document["target"]["exit_code"] == 7
    assert document["shed"] == []
    assert total(document, "calls", "/Code/counts/tiny") == truth["tiny"]
    assert total(document, "calls", "/Code/counts/normal") == truth["normal"]
    assert total(document, "latency", "/Code/counts/normal")["count"] == truth["normal"]
    for one in document["series"]:
        assert one.keys() == {"metric", "focus", "unit", "samples"}
        assert one["samples"][-1][1] == truth[one["focus"].split("/")[-1]]


def test_run_leaves_standard_output_to_the_program(tmp_path: Path) -> None:
    need("sqlite3")
    script = "create table t (x); insert into t values (1), (2); select x from t;"
    command = ["sqlite3", ":memory:", script]
    alone = subprocess.run(command, capture_output=True, text=True)
    done = weft("run", "-m", "alloc_bytes", "-m", "io_bytes", "--", *command)
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout) == (0, "1\n2\n")
    assert re.search(r"^sqlite3  pid \d+  .*exit code 0$", done.stderr, re.MULTILINE)
    assert re.search(r"^alloc_bytes +[\d,]{4,}  bytes ", done.stderr, re.MULTILINE)
    # What it has printed is all that it has written.
    assert re.search(r"^io_bytes .* bytes ", done.stderr, re.MULTILINE)


def test_run_has_all_formats(counts: Path, tmp_path: Path) -> None:
    def written(name: str) -> tuple[Path, dict[str, int]]:
        out = tmp_path / name
        format_ = out.suffix[1:] if out.suffix != ".txt" else "text"
        done = weft("run", "-m", TINY, "--format", format_, "-o", out, "--", counts, "1", "50")
        assert (done.returncode, done.stderr) == (7, "")
        return out, parse_counts(done.stdout)

    out, truth = written("out.csv")
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert list(rows[-1])[:6] == ["time", "metric", "focus", "value", "rate", "unit"]
    assert list(rows[-1])[6:] == ["status", "low", "high", "missing"]
    assert rows[-1]["metric"] == "calls" and int(rows[-1]["value"]) == truth["tiny"]
    out, truth = written("out.txt")
    assert re.search(rf"^calls +/Code/counts/tiny +{truth['tiny']:,}  calls", out.read_text(), re.M)
    pytest.importorskip("pyarrow")
    out, truth = written("out.parquet")
    table = importlib.import_module("pyarrow.parquet").read_table(out).to_pylist()
    assert float(table[-1]["value"]) == truth["tiny"]


def test_run_takes_one_liners_and_files(counts: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.mdl"
    file.write_text("""
        list some is procedure { items { "tiny", "normal" }; }
        metric some_calls {
          base is counter { foreach func in some append preInsn func.entry (* some_calls++; *) }
        }
    """)
    one_liner = "entry /Code/counts/tiny { times++ } return normal { ended++ }"
    wanted: list[Word] = ["-f", file, "-m", "some_calls", "-e", one_liner, "--format", "json"]
    done = weft("run", *wanted, "--", counts, "2", "50")
    truth, document = parse_counts(done.stdout), json.loads(done.stderr)
    assert total(document, "some_calls") == truth["tiny"] + truth["normal"]
    assert total(document, "times") == truth["tiny"]
    assert total(document, "ended") == truth["normal"]


def test_sizes_are_no_times() -> None:
    one_liner = "entry malloc { sizes << $arg[0] } return malloc { stopWallTimer(took) }"
    one_liner += " entry malloc { startWallTimer(took); took << 1 }"
    done = weft("run", "-e", one_liner, "--format", "json", "--", "sh", "-c", "exit 4")
    assert done.returncode == 4
    units = {one["metric"]: one["unit"] for one in json.loads(done.stderr)["totals"]}
    assert units == {"sizes": "", "took": "s"}


def test_run_of_a_thread_that_there_is_not(counts: Path) -> None:
    focus = "/Code/counts/tiny,/Thread/nobody"
    done = weft("run", "-m", f"calls@{focus}", "--format", "json", "--", counts, "1", "1")
    assert done.returncode == 7
    assert total(json.loads(done.stderr), "calls", focus) == 0


def test_run_says_what_sees_nothing(counts: Path) -> None:
    ended = weft("run", "-m", "calls@/Code/counts/one_byte", "--", counts, "1", "1")
    assert re.search(r"^calls +/Code/counts/one_byte +!0  calls ", ended.stderr, re.MULTILINE)
    assert "! calls@/Code/counts/one_byte: incomplete: missing entry points of " in ended.stderr


def test_run_counts_forked_children(build: Build) -> None:
    focus = "/Code/forks/in_family"
    wanted = ["-m", f"calls@{focus}", "--format", "json"]
    done = weft("run", *wanted, "--", build("forks"), "2", "10")
    assert done.returncode == 7
    truth = parse_counts(done.stdout)
    assert truth["forked_in_family"] > 0
    assert total(json.loads(done.stderr), "calls", focus) == (
        truth["in_family"] + truth["forked_in_family"]
    )


@pytest.mark.parametrize("program", ["moves", "datagrams"])
def test_what_go_reads_and_writes_is_seen(build: Build, program: str) -> None:
    """Its system calls do not go through the C library."""
    need("go")
    done = weft("run", "-m", "io_bytes", "--format", "json", "--", build(program))
    assert done.returncode == 0
    moved = int(done.stdout) + len(done.stdout)
    assert total(json.loads(done.stderr), "io_bytes") == moved


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_the_kernel_is_asked_at_the_end_of_a_program(weaver: str) -> None:
    """It ends within an interval; what was counted is there until it is waited for."""
    size = 5_000_000
    options = ["--weaver", weaver, "-m", "process_io_bytes", "-m", "page_faults"]
    command = ["head", "-c", str(size), "/dev/zero"]
    done = weft("run", *options, "--format", "json", "--", *command)
    read, faults = json.loads(done.stderr)["totals"]
    # The loader reads its libraries before.
    assert 2 * size <= read["value"] < 2 * size + 100_000
    assert faults["value"] > 0
    assert (read["status"], faults["status"]) == ("exact", "exact")


def test_what_has_ended_unasked_is_said() -> None:
    """The kernel counts until the end; of a process that is not weft's nobody can ask it then."""
    command = ["sh", "-c", "echo ready; read line; head -c 100000 /dev/zero"]
    with Background(command) as program, weft_library.attach(program.pid) as session:
        metric = session.metric("process_io_bytes")
        program.finish()
        session.metrics.sample()
        assert metric.completeness.status == "incomplete"


def test_run_measures_for_a_while(tmp_path: Path) -> None:
    script = "sleep 1; exit 3"
    done = weft(
        "run", "-m", "syscalls", "--for", "0.2", "--format", "json", "--", "sh", "-c", script
    )
    assert done.returncode == 3
    document = json.loads(done.stderr)
    # When that was written, the program had not ended.
    assert document["target"]["exit_code"] is None
    assert 0.2 <= document["seconds"] < 1


@pytest.mark.parametrize(("how", "code"), [("KILL", 137), ("SEGV", 139), ("TERM", 143)])
def test_run_of_a_program_that_a_signal_ends(how: str, code: int) -> None:
    done = weft("run", "-m", "calls", "--", "sh", "-c", f"kill -{how} $$")
    assert done.returncode == code
    assert f"exit code {code}" in done.stderr
    assert re.search(r"^calls +[1-9]", done.stderr, re.MULTILINE)


def test_run_hands_signals_on() -> None:
    script = "trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    command = [*WEFT, "run", "-m", "calls", "--", "sh", "-c", script]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        output, said = process.communicate(timeout=60)
    assert (process.returncode, output) == (9, "asked\n")
    assert "exit code 9" in said


def test_run_says_when_a_program_becomes_another() -> None:
    done = weft("run", "-m", "calls", "--", "sh", "-c", "exec sleep 0.5")
    assert done.returncode == 0
    assert re.search(r"^note: sh has become \S+/sleep, which is not measured$", done.stderr, re.M)


@pytest.mark.parametrize("words", [["run", "-m", "calls", "--", "true"], ["attach", "1"]])
def test_bytes_are_not_for_terminals(words: list[str]) -> None:
    master, terminal = pty.openpty()
    command = [*WEFT, words[0], "-m", "calls", "--format", "parquet", *words[1:]]
    done = subprocess.run(command, stdout=terminal, stderr=terminal, timeout=60)
    os.close(terminal)
    said = os.read(master, 4096).decode()
    os.close(master)
    assert done.returncode == InvalidArgument.exit_code
    assert "parquet is not for terminals" in said
    assert "write it to a file: -o out.parquet" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-m", "call"], "there is no metric call\n.*did you mean calls?"),
        (
            ["-m", "calls@/Code/libc.so.6/mallok"],
            "no function matches /Code/libc.so.6/mallok\n.*did you mean `malloc`",
        ),
        (
            ["-m", "calls@/Code/libx.so.9/malloc"],
            r"no function matches /Code/libx.so.9/malloc\n.* has loaded .*libc\.so\.6",
        ),
        (["-m", "calls@mallok"], "the program has no function mallok\n.*\n.*did you mean malloc"),
        (["-e", "entry mallok { n++ }"], "it has no function mallok\n.*did you mean `malloc`"),
        (
            ["-e", "entry malloc { bytes += }"],
            r"-e:1:25: .*\n +1 \| entry malloc \{ bytes \+= \}\n +\| {25}\^\n",
        ),
        (
            ["-m", "exceptions"],
            "finds nothing to measure in this program\n.*no function __cxa_throw",
        ),
        (
            ["-m", "exceptions@/Thread/echo"],
            "exceptions@/Thread/echo finds nothing to measure in this program\n",
        ),
        (
            ["--weaver", "clone", "-m", "calls@/Code/libc.so.6/malloc", "-m", "live_bytes"],
            "error: live_bytes: the snippet calls a function of the program\n",
        ),
        (["-m", "page_faults@/Thread/echo"], "page_faults is known .*\n.*\n.*leave the focus out"),
        (["-m", "calls", "--budget", "much"], "'much' is no budget"),
        (["-m", "calls", "-o", "/nowhere/out"], "cannot write /nowhere/out"),
        (["--for", "3"], "nothing is to be measured"),
    ],
)
def test_what_is_asked_wrongly_is_not_done(words: list[str], message: str) -> None:
    done = weft("run", *words, "--", "echo", "done")
    code = BadFile.exit_code if "-o" in words else InvalidArgument.exit_code
    assert (done.returncode, done.stdout) == (code, "")
    assert re.search(message, done.stderr), done.stderr
    assert done.stderr.startswith("error: ")


# weft attach


@contextmanager
def resting(counts: Path) -> Iterator[Lockstep]:
    with lockstep(counts, 2) as program:
        program.batch(1)
        yield program
        assert leaves_nothing(program.pid)


def test_attach_writes_a_document(counts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    wanted = ["-m", TINY, "-e", "entry normal { times++ }", "--interval", "0.1", "--for", "2"]
    with (
        resting(counts) as program,
        attached(program.pid, *wanted, "--format", "json", "-o", out) as (process, _),
    ):
        truth = program.batch(300)
        output, said = process.communicate(timeout=60)
        assert (process.returncode, output, said) == (0, "", "")
        document = json.loads(out.read_text())
        assert document["target"]["pid"] == program.pid
        assert document["target"]["command"] == [str(counts), "2"]
        assert document["target"]["exit_code"] is None
        assert total(document, "calls", "/Code/counts/tiny") == truth["tiny"]
        assert total(document, "times") == truth["normal"]
        samples = document["series"][0]["samples"]
        assert len(samples) > 5
        assert samples == sorted(samples)


@pytest.mark.parametrize("interval", [0.1, 0.05])
def test_the_interval_is_kept(counts: Path, interval: float) -> None:
    options = ["--interval", str(interval), "--for", "1", "--format", "json"]
    with resting(counts) as program:
        done = weft("attach", str(program.pid), "-m", TINY, *options)
        (series,) = json.loads(done.stdout)["series"]
        # A busy machine may make it fewer. One more comes at the end.
        assert 2 <= len(series["samples"]) <= 1 / interval + 1


def test_attach_ends_at_ctrl_c(counts: Path) -> None:
    with resting(counts) as program, attached(program.pid, "-m", TINY) as (process, _):
        assert process.stdout is not None
        first = process.stdout.readline()
        assert re.match(r"time=0\.\d metric=calls focus=/Code/counts/tiny total=0 ", first)
        truth = program.batch(100)
        process.send_signal(signal.SIGINT)
        output, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (0, "")
        assert re.search(rf"^calls +/Code/counts/tiny +{truth['tiny']:,}  calls ", output, re.M)
        assert leaves_nothing(program.pid)
        # It works on.
        assert program.batch(100) == truth


def test_attach_serves_prometheus_meanwhile(counts: Path) -> None:
    with resting(counts) as program, attached(program.pid, "-m", TINY) as (process, url):
        truth = program.batch(100)

        def page() -> str:
            with urllib.request.urlopen(url, timeout=10) as answer:
                text: str = answer.read().decode()
                return text

        found = re.search(r"^weft_calls_total\{.*/tiny.*\} ([\d.]+)$", page(), re.MULTILINE)
        assert found and float(found[1]) == truth["tiny"]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 0


def test_attach_to_a_program_that_ends(counts: Path) -> None:
    with lockstep(counts, 2) as program, attached(program.pid, "-m", TINY) as (process, _):
        program.batch(50)
        truth = program.end()
        output, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    assert re.search(rf"^counts  pid {program.pid}  .*  ended$", output, re.MULTILINE), output
    assert re.search(rf"^calls +/Code/counts/tiny +{truth['tiny']:,}  calls ", output, re.MULTILINE)


def test_attach_to_nobody() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    done = weft("attach", str(process.pid), "-m", "calls")
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")


def test_attach_leaves_a_program_that_it_was_asked_wrongly_of(counts: Path) -> None:
    with resting(counts) as program:
        done = weft("attach", str(program.pid), "-m", "calls@/Code/counts/tinny")
        assert done.returncode == 2
        assert "did you mean `tiny`?" in done.stderr
        assert leaves_nothing(program.pid)
