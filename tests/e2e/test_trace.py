"""Traces of real programs, through the tools that read them."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import weft.trace
from tests.e2e.harness import Background, eventually, need, status, threads
from weft.errors import BadFile, InvalidArgument
from weft.export.trace import parquet as trace_parquet
from weft.export.trace import perfetto
from weft.tools.cachesim import Level, simulate
from weft.tools.heatmap import heat_map, to_html, to_png
from weft.tools.query import ask

Build = Callable[[str], Path]

SOURCE = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define N 64
double a[N][N], b[N][N], c[N][N];
char big[1 << 20];
__attribute__((noinline)) void by_rows(void) {
    for (int i = 0; i < N; i++) for (int j = 0; j < N; j++) c[i][j] = a[i][j] + b[i][j];
}
__attribute__((noinline)) void by_lines(void) {
    for (int i = 0; i < 1 << 20; i += 64) big[i] = 1;
}
int main(void) {
    by_rows();
    by_lines();
    return write(1, "x", 1) != 1;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("cc")
    folder = tmp_path_factory.mktemp("traced")
    source = folder / "memory.c"
    source.write_text(SOURCE)
    built = folder / "memory"
    options = ["-O1", "-g", "-static-pie", "-fno-tree-vectorize"]
    subprocess.run(["cc", *options, "-o", built, source], check=True)
    return built


@pytest.fixture(scope="module")
def traced(program: Path) -> Path:
    """A trace of it."""
    file = program.with_suffix(".weft-trace")
    done = weft_command("trace", "-o", file, "--", program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "x", "")
    return file


def weft_command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weft", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_access_of_a_known_loop_is_there(traced: Path) -> None:
    trace = weft.trace.open(traced)
    columns, rows = ask(
        trace,
        """SELECT kind, count(*), count(DISTINCT address), max(size), min(size) FROM accesses
        JOIN code USING (block) WHERE function = 'by_rows' GROUP BY kind ORDER BY kind""",
    )
    assert columns[0] == "kind"
    loads, stores = (next(row for row in rows if row[0] == kind) for kind in ("load", "store"))
    # The return address, too, is loaded; the call that stores it is the caller's.
    assert loads == ("load", 2 * 64 * 64 + 1, 2 * 64 * 64 + 1, 8, 8)
    assert stores == ("store", 64 * 64, 64 * 64, 8, 8)
    _, rows = ask(
        trace,
        """SELECT min(address), max(address), count(*) FROM accesses JOIN code USING (block)
        WHERE function = 'by_lines' AND kind = 'store'""",
    )
    ((first, last, count),) = rows
    assert (last - first, count) == ((1 << 20) - 64, 1 << 14)


def test_what_a_program_starts_is_part_of_its_trace(program: Path, tmp_path: Path) -> None:
    """A process may become another program, and others may be started beside it."""
    file = tmp_path / "programs.weft-trace"
    script = f"{program} & {program}; wait; exec {program}"
    done = weft_command("trace", "-o", file, "--", "sh", "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "xxx", "")
    trace = weft.trace.open(file)
    _, rows = ask(
        trace,
        """SELECT program, module, kind, count(*), count(DISTINCT thread) FROM accesses
        JOIN code USING (block) WHERE function = 'by_rows' GROUP BY ALL ORDER BY ALL""",
    )
    # 64 times 64: two loads and a store; and the return address.
    kinds = [("load", 2 * 64 * 64 + 1, 1), ("store", 64 * 64, 1)]
    assert rows == [(number, str(program), *kind) for number in (1, 2, 3) for kind in kinds]
    assert len(trace.threads) == 3
    out = tmp_path / "programs.perfetto"
    with out.open("wb") as written:
        assert perfetto.write(trace, written) > 100


def test_a_table_can_be_read_again_and_by_thread(traced: Path) -> None:
    trace = weft.trace.open(traced)
    (total,) = trace.threads
    table = trace.accesses()
    first = [batch.num_rows for batch in table.batches(10_000)]
    assert len(first) > 3
    assert sum(first) == sum(batch.num_rows for batch in table) <= total.accesses
    assert sum(batch.num_rows for batch in trace.accesses([total.thread])) == sum(first)
    assert not list(trace.accesses([1]))
    assert trace.accesses([1]).reader().read_all().num_rows == 0
    names = ["thread", "sequence", "block", "ip", "kind", "size", "address"]
    assert table.schema.names == names
    numbers = [
        row for batch in table.batches(10_000) for row in batch.column("sequence").to_pylist()
    ]
    assert numbers == list(range(sum(first)))


def test_a_crash_is_the_last_that_a_trace_tells(build: Build, tmp_path: Path) -> None:
    file = tmp_path / "crash.weft-trace"
    code, lost = weft.trace.record([build("clone_crash")], file)
    assert (code, lost) == (128 + signal.SIGSEGV, [])
    trace = weft.trace.open(file)
    query = "SELECT kind, size, address FROM accesses ORDER BY sequence DESC LIMIT 1"
    assert ask(trace, query)[1] == [("store", 4, 0x10)]
    query = "SELECT value FROM events WHERE kind = 'signal'"
    assert ask(trace, query)[1] == [(signal.SIGSEGV,)]


def test_branches_calls_and_system_calls(traced: Path) -> None:
    trace = weft.trace.open(traced)
    _, rows = ask(
        trace,
        """SELECT sum(taken::int), count(*) FROM branches JOIN code USING (block)
        WHERE function = 'by_lines' AND kind = 'conditional'""",
    )
    ((taken, count),) = rows
    assert (taken, count) == ((1 << 14) - 1, 1 << 14)
    calls = [row for batch in trace.calls() for row in batch.to_pylist()]
    called = [trace.place(row["target"])[1] for row in calls if row["kind"] == "call"]
    assert [name for name in called if name.startswith("by_")] == ["by_rows", "by_lines"]
    assert all(a["time"] <= b["time"] for a, b in pairwise(calls))
    system_calls = [row for batch in trace.system_calls() for row in batch.to_pylist()]
    (written,) = [row for row in system_calls if row["number"] == 1]
    assert (written["a0"], written["a2"], written["result"]) == (1, 1, 1)
    assert system_calls[-1]["number"] == 231
    assert system_calls[-1]["result"] is None
    kinds = [row["kind"] for batch in trace.events() for row in batch.to_pylist()]
    assert kinds == ["thread"]


def test_caches_miss_what_they_must(traced: Path) -> None:
    trace = weft.trace.open(traced)
    found = simulate(trace, [Level.parse("32K,8"), Level.parse("4M,16")])
    by_name = {row.function: row for row in found.functions}
    # Each of its lines once, and the few that are on the stack.
    lines = by_name["by_lines"]
    assert lines.missed[0] in range(1 << 14, (1 << 14) + 3)
    assert lines.missed[1] in range(1 << 14, (1 << 14) + 3)
    rows = by_name["by_rows"]
    assert rows.missed[0] in range(3 * 512, 3 * 512 + 6)
    # An access may miss more than one line.
    assert 0 <= found.levels[0].missed - found.levels[1].asked < 100
    assert found.levels[1].missed <= found.levels[1].asked
    tiny = simulate(trace, [Level(64, 1)])
    assert tiny.levels[0].missed > found.levels[0].missed
    with pytest.raises(InvalidArgument, match="multiple"):
        simulate(trace, [Level(100, 3)])
    with pytest.raises(InvalidArgument, match="no cache"):
        Level.parse("big")


def pixels(picture: bytes) -> tuple[int, int, bytes]:
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, size = 8, b"", (0, 0)
    while at < len(picture):
        (length,) = struct.unpack_from(">I", picture, at)
        kind = picture[at + 4 : at + 8]
        content = picture[at + 8 : at + 8 + length]
        (check,) = struct.unpack_from(">I", picture, at + 8 + length)
        assert check == zlib.crc32(kind + content)
        if kind == b"IHDR":
            size = struct.unpack_from(">II", content)
        elif kind == b"IDAT":
            data += content
        at += length + 12
    return *size, zlib.decompress(data)


def test_a_heat_map_shows_the_sweep_over_memory(traced: Path) -> None:
    heat = heat_map(weft.trace.open(traced), width=100, height=1000)
    # The array's pages are touched 64 times each, one after the other.
    swept = [row for row in heat.counts if sum(row) == 64]
    assert len(swept) >= 250
    firsts = [next(at for at, count in enumerate(row) if count) for row in swept[-200:]]
    assert firsts == sorted(firsts)
    assert sum(map(sum, heat.counts)) == heat.accesses
    width, height, data = pixels(to_png(heat))
    assert (width, height) == (100, len(heat.rows))
    assert len(data) == height * (width * 3 + 1)
    page = to_html(heat, "what <it> touches")
    assert "what &lt;it&gt; touches" in page
    assert f"{heat.rows[0][0]}" in page


def test_parquet_has_all_rows(traced: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    trace = weft.trace.open(traced)
    file = tmp_path / "accesses.parquet"
    with file.open("wb") as out:
        count = trace_parquet.write(trace, "accesses", out)
    table = parquet.read_table(file)
    assert table.num_rows == count == sum(batch.num_rows for batch in trace.accesses())
    about = json.loads(table.schema.metadata[b"weft"])
    assert about["notes"]["command"] == trace.notes["command"]


def fields(message: bytes) -> list[tuple[int, Any]]:
    """A protobuf message, read without any library."""
    at = 0
    found: list[tuple[int, Any]] = []

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = number()
        if key & 7 == 0:
            found.append((key >> 3, number()))
        else:
            assert key & 7 == 2
            length = number()
            found.append((key >> 3, message[at : at + length]))
            at += length
    return found


def test_perfetto_has_balanced_slices(traced: Path, tmp_path: Path) -> None:
    trace = weft.trace.open(traced)
    file = tmp_path / "timeline.perfetto"
    with file.open("wb") as out:
        count = perfetto.write(trace, out)
    names: dict[int, str] = {}
    stack: list[str] = []
    seen: list[tuple[str, tuple[str, ...]]] = []
    last = begun = 0
    for number, packet in fields(file.read_bytes()):
        assert number == 1
        assert isinstance(packet, bytes)
        parts = dict(fields(packet))
        if 12 in parts:
            ((_, name),) = fields(parts[12])
            entry = dict(fields(name))
            names[entry[1]] = entry[2].decode()
        if 11 in parts:
            event = dict(fields(parts[11]))
            assert parts[8] >= last
            last = parts[8]
            if event[9] == 1:
                begun += 1
                seen.append((names[event[10]], tuple(stack)))
                stack.append(names[event[10]])
            else:
                stack.pop()
    assert not stack
    assert begun == count
    ((_, around),) = [row for row in seen if row[0] == "by_rows"]
    assert around[-1] == "main"
    # The system call, in the function of the same name.
    assert any(name == "write" and "main" in around[:-1] for name, around in seen)


FAMILY = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
static void *named(void *name) {
    pthread_setname_np(pthread_self(), name);
    printf("%s %d %d\n", (char *)name, getpid(), gettid());
    return 0;
}
static void *unnamed(void *none) {
    printf("unnamed %d %d\n", getpid(), gettid());
    return none;
}
static void run(void *(*work)(void *), char *name) {
    pthread_t thread;
    pthread_create(&thread, 0, work, name);
    pthread_join(thread, 0);
}
int main(int count, char **words) {
    if (count == 1) {
        printf("becomes %d %d\n", getpid(), gettid());
        return 0;
    }
    printf("main %d %d\n", getpid(), gettid());
    run(named, "left");
    // The kernel takes 15 bytes.
    prctl(PR_SET_NAME, "renamed main thread");
    run(unnamed, 0);
    run(named, "right");
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        printf("child %d %d\n", getpid(), gettid());
        run(named, "of child");
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, 0, 0);
    char *other[] = {words[1], 0};
    posix_spawn(&child, words[1], 0, 0, other, 0);
    waitpid(child, 0, 0);
    return 0;
}
"""


def test_perfetto_has_threads_under_their_processes(tmp_path: Path) -> None:
    need("cc")
    source, program = tmp_path / "family.c", tmp_path / "family"
    source.write_text(FAMILY)
    subprocess.run(["cc", "-O1", "-pthread", "-o", program, source], check=True)
    other = tmp_path / "a-name-of-more-than-15-bytes"
    other.hardlink_to(program)
    file, out = tmp_path / "family.weft-trace", tmp_path / "family.perfetto"
    done = weft_command("trace", "-o", file, "--", program, other)
    assert (done.returncode, done.stderr) == (0, "")
    told = [line.rsplit(" ", 2) for line in done.stdout.splitlines()]
    ids = {name: (int(pid), int(tid)) for name, pid, tid in told}
    assert len(ids) == 7
    names = {name: name for name in ids} | {
        "main": "renamed main th",
        "unnamed": "renamed main th",
        "child": "renamed main th",
        "becomes": other.name[:15],
    }
    trace = weft.trace.open(file)
    with out.open("wb") as written:
        perfetto.write(trace, written)
    processes: dict[int, tuple[int, str]] = {}
    threads: dict[tuple[int, int], str] = {}
    for _, packet in fields(out.read_bytes()):
        track = dict(fields(dict(fields(packet)).get(60, b"")))
        if 3 in track:
            process = dict(fields(track[3]))
            processes[track[1]] = process[1], process[6].decode()
        if 4 in track:
            thread = dict(fields(track[4]))
            assert processes[track[5]][0] == thread[1]
            threads[thread[1], thread[2]] = thread[5].decode()
    assert sorted(processes.values()) == sorted(
        [
            (ids["main"][0], str(program)),
            (ids["child"][0], str(program)),
            (ids["becomes"][0], other.name),
        ]
    )
    assert threads == {ids[name]: names[name] for name in ids}
    assert {(total.process, total.thread): total.name for total in trace.threads} == threads
    assert {total.process for total in trace.threads if total.program} == {ids["becomes"][0]}


def test_commands(traced: Path, tmp_path: Path) -> None:
    info = json.loads(weft_command("trace", "info", traced, "--format", "json").stdout)
    (about,) = info["threads"]
    assert about["accesses"] > 40_000
    assert (about["process"], about["program"], about["name"]) == (about["thread"], 0, "memory")
    assert "for each access" in weft_command("trace", "info", traced).stdout
    asked = weft_command("trace", "query", traced, "SELECT count(*) AS n FROM blocks")
    assert re.search(r"n\n\d+\n", asked.stdout.replace(" ", ""))
    wrong = weft_command("trace", "query", traced, "SELECT nothing FROM accesses")
    assert wrong.returncode == 2
    assert "DuckDB cannot answer that" in wrong.stderr
    for name in ("heat.png", "heat.html"):
        drawn = weft_command("trace", "heatmap", traced, "-o", tmp_path / name)
        assert drawn.returncode == 0, drawn.stderr
        assert (tmp_path / name).stat().st_size > 500
    exported = weft_command("trace", "export", traced, "-o", tmp_path / "t.perfetto")
    assert "slices" in exported.stderr
    simulated = weft_command("cachesim", traced, "--cache", "32K,8", "--top", "3")
    assert "by_lines" in simulated.stdout


def test_a_running_process_is_traced_for_a_while(
    build: Callable[[str], Path], tmp_path: Path
) -> None:
    program = build("counts")
    with Background([program, "2"]) as running:
        assert running.process.stdin is not None
        running.process.stdin.write(b"go\n")
        running.process.stdin.flush()
        running.wait_for_line(b"going")
        done = weft_command("trace", "-o", tmp_path / "t", str(running.pid), "--for", "0.3")
        assert done.returncode == 0
        assert done.stderr == f"recording process {running.pid} for 0.3 s\n"
        assert "memfd:weft" not in Path(f"/proc/{running.pid}/maps").read_text()
    trace = weft.trace.open(tmp_path / "t")
    assert not trace.is_cut
    assert len(trace.threads) >= 2
    assert {total.process for total in trace.threads} == {running.pid}
    assert {total.name for total in trace.threads} == {program.name[:15]}
    assert sum(total.accesses for total in trace.threads) > 10_000


def _pause(pid: int, sign: Path, until: Callable[[], bool]) -> None:
    """Stop a process while a condition is not met, and make a file when it stands still."""
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: all(status(tid)["State"].startswith("T") for tid in threads(pid)))
        sign.touch()
        deadline = time.monotonic() + 60
        while not until():
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.watchdog(120)
def test_what_is_lost_while_weft_is_stopped_is_counted(tmp_path: Path) -> None:
    need("cc")
    source, built = tmp_path / "rounds.c", tmp_path / "rounds"
    source.write_text(ROUNDS)
    subprocess.run(["cc", "-O1", "-static", "-o", built, source], check=True)
    file = tmp_path / "t"
    command = [sys.executable, "-m", "weft", "trace", "-o", file, "--", built, tmp_path]
    with Background([str(word) for word in command]) as weft_itself:
        # It waits for weft for ten seconds, and then goes on without it.
        _pause(weft_itself.pid, tmp_path / "weft is stopped", (tmp_path / "done").exists)
        assert weft_itself.process.wait(60) == 0
    trace = weft.trace.open(file)
    events = [row for batch in trace.events() for row in batch.to_pylist()]
    lost = sum(row["value"] for row in events if row["kind"] == "lost")
    _, ((kept,),) = ask(
        trace,
        """SELECT count(*) FROM accesses JOIN code USING (block)
        WHERE function = 'work' AND kind = 'store'""",
    )
    # A block for each round; and what is around them is in the trace again.
    assert lost > 0
    assert 5_000_000 - 100 <= kept + lost <= 5_000_000 + 5_000
    _, ((ends,),) = ask(trace, "SELECT count(*) FROM system_calls WHERE number = 231")
    assert ends == 1


ROUNDS = r"""
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
volatile int table[1024];
__attribute__((noinline)) void work(void) {
    for (int i = 0; i < 5000000; i++) table[i & 1023] = i;
}
int main(int count, char **words) {
    if (count < 2 || chdir(words[1])) return 1;
    puts("ready");
    fflush(stdout);
    while (access("weft is stopped", F_OK)) usleep(10000);
    work();
    close(creat("done", 0600));
    return 0;
}
"""


def test_what_cannot_be_recorded_is_said_first(tmp_path: Path) -> None:
    file = tmp_path / "no" / "such" / "folder"
    done = weft_command("trace", "-o", file, "--", "touch", tmp_path / "ran")
    assert done.returncode == 4
    assert "cannot write" in done.stderr
    assert not (tmp_path / "ran").exists()
    missing = weft_command("trace", "-o", tmp_path / "t", "--", "/no/such/program")
    assert missing.returncode == 3
    ended = weft_command("trace", "-o", tmp_path / "t", "--", "sh", "-c", "kill -9 $$")
    assert ended.returncode == 137
    assert weft.trace.open(tmp_path / "t").threads


def test_what_is_no_trace_is_refused(traced: Path, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="No such file"):
        weft.trace.open(tmp_path / "nothing")
    wrong = tmp_path / "wrong"
    wrong.write_bytes(b"not a trace, whatever it is")
    with pytest.raises(BadFile, match="does not begin"):
        weft.trace.open(wrong)
    whole = traced.read_bytes()
    wrong.write_bytes(whole[:8] + b"\x63\0\0\0" + whole[12:])
    with pytest.raises(BadFile, match="version 99"):
        weft.trace.open(wrong)
    wrong.write_bytes(whole[:-1])
    assert weft.trace.open(wrong).is_cut
    said = weft_command("trace", "info", wrong)
    assert "the end" in said.stderr
    assert said.returncode == 0
