"""Every tool of `examples/` runs, and what it prints is true."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

WAITING = r"""
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *other(void *arg) {
    for (;;) {
        pthread_mutex_lock(&lock);
        usleep(20000);
        pthread_mutex_unlock(&lock);
        usleep(1000);
    }
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, other, 0);
    puts("ready"); fflush(stdout);
    other(0);
}
"""
ALLOCATING = r"""
#include <stdlib.h>
#define apart __attribute__((noinline))
apart void *small(void) { void *p = malloc(100); __asm__ volatile(""); return p; }
apart void *large(void) { void *p = malloc(5000); __asm__ volatile(""); return p; }
int main(void) { for (int i = 0; i < 50; i++) { if (!small()) return 7; large(); } }
"""


def compiled(folder: Path, name: str, text: str) -> Path:
    (folder / f"{name}.c").write_text(text)
    flags = ["-O1", "-pthread", "-fno-optimize-sibling-calls"]
    subprocess.run(["gcc", *flags, "-o", folder / name, folder / f"{name}.c"], check=True)
    return folder / name


def run(tool: str, *words: str | Path, code: int = 0) -> str:
    command = [sys.executable, str(EXAMPLES / tool), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_malloc_sites(tmp_path: Path) -> None:
    program = compiled(tmp_path, "allocating", ALLOCATING)
    printed = run("malloc_sites.py", "--", program)
    assert re.search(r"255,000 bytes at 2 call sites \(exact\)", printed)
    assert re.search(r"250,000  large\+0x\w+ \(allocating\)\n +5,000  small\+0x", printed)


def test_fail_every(tmp_path: Path) -> None:
    program = compiled(tmp_path, "allocating", ALLOCATING)
    function = "/Code/libc.so.6/malloc"
    printed = run("fail_every.py", "--function", function, "--every", "9", "--", program, code=7)
    assert "1 of 9 calls failed; the program ended with 7" in printed


def test_slow_calls() -> None:
    function = "/Code/libc.so.6/clock_nanosleep"
    printed = run("slow_calls.py", "--function", function, "--ms", "5", "--", "sleep", "0.1")
    assert re.search(r"thread \d+: +\d{3,}\.\d+ ms  \(0x0, 0x0\)\n1 took longer", printed)


def test_latency_gate() -> None:
    where = ("--function", "/Code/libc.so.6/clock_nanosleep", "--p99-ms")
    assert "1 measured" in run("latency_gate.py", *where, "60000", "--", "sleep", "0.1")
    run("latency_gate.py", *where, "50", "--", "sleep", "0.1", code=1)
    assert "the function was not called" in run(
        "latency_gate.py", *where, "50", "--", "true", code=1
    )


def test_option_finder() -> None:
    printed = run("option_finder.py", "--without", "ls /", "--with", "ls -l /")
    # It reads the time zone to print when files were changed.
    assert "__tzfile_read  (libc.so.6)" in printed


def test_syscall_table(tmp_path: Path) -> None:
    script = "i=0; while [ $i -lt 30 ]; do cd /nowhere 2>/dev/null; i=$((i+1)); done; cd /"
    printed = run("syscall_table.py", "--", "dash", "-c", script)
    row = re.search(r"^ +(\d+) +(\d+) +[\d.]+  chdir$", printed, re.MULTILINE)
    assert row is not None and row.groups() == ("31", "30")


def test_lock_waits(tmp_path: Path) -> None:
    program = compiled(tmp_path, "waiting", WAITING)
    with subprocess.Popen([program], stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        waiting.stdout.readline()
        printed = run("lock_waits.py", "--seconds", "1", str(waiting.pid))
        waiting.kill()
    assert re.search(r"\d\.\d+ s of waiting at 1 call sites", printed)
    assert "other+0x" in printed


def test_memory_course() -> None:
    program = "import time; x = [bytes(1000) for _ in range(100000)]; time.sleep(1)"
    printed = run("memory_course.py", "--interval", "0.02", "--", sys.executable, "-c", program)
    found = re.search(r"the largest of \d+ samples: ([\d,]+) bytes allocated \(exact\)", printed)
    assert found is not None and int(found[1].replace(",", "")) > 100_000_000


def test_instruction_mix() -> None:
    command = [sys.executable, str(EXAMPLES / "instruction_mix.py"), "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.search(r"^mov +[\d,]+ +\d", done.stderr, re.MULTILINE)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert re.search(r"[\d,]+ to [\d,]+ calls a second", capsys.readouterr().out)


def test_every_tool_is_in_the_list_and_is_tested() -> None:
    listed = set(re.findall(r"^\| `([\w.]+)`", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    assert listed == {path.name for path in EXAMPLES.glob("*.*") if path.name != "README.md"}
    tested = Path(__file__).read_text()
    assert {name for name in listed if name.endswith(".py") and f'"{name}"' not in tested} == set()


@pytest.mark.parametrize(
    "words", [["lock_waits.py", "999999999"], ["instruction_mix.py", "/nonexistent"]]
)
def test_what_cannot_be_measured_is_said_in_one_line(words: list[str]) -> None:
    command = [sys.executable, str(EXAMPLES / words[0]), *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"error: .*\n", done.stderr)
