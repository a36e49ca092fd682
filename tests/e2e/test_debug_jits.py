"""Programs that make their code as they go, under a debugger: it looks, and they go on unharmed."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.harness import eventually, need
from tests.e2e.test_debug_command import words

NODE = """
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
const { existsSync } = require("fs");
let wrong = 0;
while (!existsSync("enough")) {
    const text = JSON.stringify([...new Map([[fib(20), fib(21)], [fib(22), fib(10)]])]);
    if (text !== "[[6765,10946],[17711,55]]") wrong++;
}
console.log(`${wrong} were wrong`);
"""
JAVA = """
public class Busy {
    static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    static int wrong;
    static void work() {
        while (!new java.io.File("enough").exists())
            if (fib(20) + fib(21) != 17711) wrong++;
    }
    public static void main(String[] words) throws Exception {
        Thread other = new Thread(Busy::work);
        other.start();
        work();
        other.join();
        System.out.println(wrong + " were wrong");
    }
}
"""

SWITCH = "python [it.switch() for it in gdb.selected_inferior().threads() if it.name == '{}']"
"""Goes to the thread that executes what was made; another would wait in its step."""


def child_of(pid: int, name: str) -> int:
    """Return the program that a debugger has started, once it is that."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if Path(f"/proc/{child}/comm").read_text().strip() == name:
                return int(child)
        time.sleep(0.05)
    raise TimeoutError(name)


def works(pid: int, thread: str) -> bool:
    """Say whether a process has a thread of a name that has worked for a second."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it may have ended
            name, numbers = (task / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
            if name == thread and int(numbers.split()[11]) >= os.sysconf("SC_CLK_TCK"):
                return True
    return False


def has_looked(output: Path, times: int) -> bool:
    return output.read_text().count("looked\n") == times


@pytest.mark.watchdog(300)
@pytest.mark.parametrize("name", ["node", "java"])
def test_a_program_that_makes_its_code_is_looked_at(name: str, tmp_path: Path) -> None:
    """In the middle of what it has made, by steps and by frames, as often as one likes."""
    need("gdb", name)
    source = tmp_path / {"node": "busy.js", "java": "Busy.java"}[name]
    source.write_text({"node": NODE, "java": JAVA}[name])
    command = [name, str(source)]
    if name == "java":
        need("javac")
        subprocess.run(["javac", "-d", tmp_path, source], check=True)
        command = [name, "-cp", str(tmp_path), "Busy"]
    # Its own signals are none of the debugger's business.
    steps = ["set sysroot /", "handle SIGSEGV nostop noprint pass", "handle SIGINT nopass"]
    steps += ["continue"]
    thread = {"node": "node", "java": "Thread-0"}[name]
    for _ in range(3):
        steps += ["info threads", SWITCH.format(thread)]
        steps += ["backtrace 4", "x/2i $pc", "info registers rip rsp", "stepi 30"]
        steps += ["echo looked\\n", "continue"]
    weft = [sys.executable, "-m", "weft", "debug", "--gdb-args", shlex.join(words(*steps)), "--"]
    output = tmp_path / "output"
    with (
        output.open("w") as file,
        subprocess.Popen(
            [*weft, *command], stdout=file, stderr=subprocess.STDOUT, cwd=tmp_path
        ) as debugger,
    ):
        program = child_of(debugger.pid, name)
        eventually(lambda: works(program, thread))
        for number in range(3):
            eventually(partial(has_looked, output, number))
            time.sleep(0.3)
            # The debugger hears of it, wherever the program is, and nobody else does.
            os.kill(program, signal.SIGINT)
        eventually(partial(has_looked, output, 3))
        (tmp_path / "enough").touch()
        assert debugger.wait(200) == 0
    said = output.read_text()
    assert "0 were wrong\n" in said, said
    assert said.count("looked\n") == 3, said
    assert len(re.findall(r"^#0 ", said, re.MULTILINE)) >= 3, said
    assert "exited normally" in said, said
