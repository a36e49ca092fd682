"""The stacks of programs of the distribution, frame by frame as GDB sees them."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.clone import IS_LONG
from tests.e2e.harness import eventually, need
from weft.model.thread_stacks import ThreadStack
from weft.program.stacks import StackReader

Call: TypeAlias = tuple[int, list[str]]
"""The address of a call, and the functions that are inlined there."""

NGINX = "daemon off; master_process off; error_log error.log; pid nginx.pid;"
COMMANDS: dict[str, list[str]] = {
    "as": ["as", "-o", "/dev/null"],
    "bash": ["bash", "-c", "read line"],
    "bc": ["bc"],
    "cat": ["cat"],
    "dash": ["dash", "-c", "read line"],
    "ed": ["ed"],
    "file": ["file", "-f", "-"],
    "gawk": ["gawk", "{ print }"],
    "git": ["git", "hash-object", "--stdin"],
    "jq": ["jq", "."],
    "lua": ["lua5.4", "-e", "io.read()"],
    "luajit": ["luajit", "-e", "io.read()"],
    "make": ["make", "-f", "-"],
    "mawk": ["mawk", "{ print }"],
    "memcached": ["memcached", "-u", "root", "-s", "memcached.sock"],
    "nginx": ["nginx", "-p", ".", "-c", "nginx.conf", "-g", NGINX],
    "node": ["node", "-e", "setTimeout(() => {}, 600000)"],
    "openssl": ["openssl", "base64"],
    "perl": ["perl", "-e", "<STDIN>"],
    "python": [sys.executable, "-c", "import time; time.sleep(600)"],
    "redis": ["redis-server", "--port", "0", "--unixsocket", "socket"],
    "sleep": ["sleep", "600"],
    "sqlite3": ["sqlite3", ":memory:"],
    "tar": ["tar", "-cf", "/dev/null", "-T", "-"],
    "zstd": ["zstd", "-dc"],
}
FILES = {"nginx": {"nginx.conf": "events {} http { server { listen unix:nginx.sock; } }"}}
SHORT = ["bash", "git", "memcached", "nginx", "node", "python", "redis", "sqlite3"]
"""What every run of the tests has: threads, C++, stripped, with and without debug files.

Left out are programs of which GDB guesses, and lists words of the stack as frames: Go without debug
information (prometheus), static programs without unwind tables (busybox), interpreted Java.
"""


@pytest.mark.watchdog(300)
@pytest.mark.parametrize("name", COMMANDS if IS_LONG else SHORT)
def test_as_gdb_sees_it(name: str, tmp_path: Path) -> None:
    need("gdb")
    need(COMMANDS[name][0])
    for file, text in FILES.get(name, {}).items():
        (tmp_path / file).write_text(text)
    with subprocess.Popen(
        COMMANDS[name],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
    ) as process:
        try:
            reader = StackReader(process.pid)

            def is_same() -> bool:
                """Whether both see the same: a thread may wake up between them."""
                _rest(reader)
                found = {one.tid: _calls(one) for one in reader.read(waits=False).threads}
                return found == _by_gdb(process.pid, tmp_path)

            eventually(is_same, 120)
        finally:
            process.kill()


def _rest(reader: StackReader) -> None:
    """Wait until all threads sleep, and are where they were."""
    last: object = None
    while True:
        time.sleep(0.1)
        threads = reader.read(waits=False).threads
        now = [(one.tid, one.frames) for one in threads]
        if now == last and all(one.state == "S" for one in threads):
            return
        last = now


def _calls(thread: ThreadStack) -> list[Call]:
    frames = groupby(thread.frames, key=lambda frame: frame.address)
    return [
        (address, [frame.function or "?" for frame in run if frame.inlined])
        for address, run in frames
    ]


SCRIPT = """
import gdb
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame, inlined = gdb.newest_frame(), []
    while frame is not None:
        # A function that was left by a jump to another has no call of its own.
        if frame.type() == gdb.INLINE_FRAME:
            inlined.append(frame.name() or "?")
        elif frame.type() != gdb.TAILCALL_FRAME:
            print("STACK", thread.ptid[1], frame.pc(), *inlined, sep="\\t")
            inlined = []
        frame = frame.older()
"""


def _by_gdb(pid: int, folder: Path) -> dict[int, list[Call]]:
    """Return the calls that all threads are in."""
    script = folder / "stacks.py"
    script.write_text(SCRIPT)
    command = ["gdb", "-batch", "-nx", "-ex", "set backtrace past-main on"]
    command += ["-ex", "set backtrace past-entry on", "-p", str(pid), "-x", str(script)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[int, list[Call]] = {}
    for line in printed.splitlines():
        word, *rest = line.split("\t")
        if word == "STACK":
            tid, address, *inlined = rest
            found.setdefault(int(tid), []).append((int(address), inlined))
    return found
