"""What a program inherits from whoever starts it, it has as well when weft starts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import need
from tests.probing import IS_LONG

WEFT = f"{sys.executable} -m weft"
COMMANDS = {
    "run": f"{WEFT} run --",
    "measured": f"{WEFT} run -m calls -o measured --",
    "clone": f"{WEFT} run --weaver clone --",
    "cov": f"{WEFT} cov -o covered --",
}
WAYS = ("run", "clone")
"""There are two ways to start a program, one for each weaver: what is measured on them is for the
long form."""
INHERITED = {
    "niceness": "nice -n 5 {weft} nice",
    "batch": "chrt -b 0 {weft} sh -c 'chrt -p $$ | cut -d: -f2'",
    "idle": "chrt -i 0 {weft} sh -c 'chrt -p $$ | cut -d: -f2'",
    "timer slack": "{weft} cat /proc/self/timerslack_ns",
    "affinity": "taskset -c 0 {weft} sh -c 'taskset -p $$ | cut -d: -f2'",
    "umask": "umask 027; {weft} sh -c umask",
    "USR1 ignored": "trap '' USR1; {weft} sh -c 'kill -USR1 $$; echo alive'",
    "CHLD ignored": (
        "trap '' CHLD; {weft} sed -n 's/SigIgn.*\\(.\\)....$/\\1/p' /proc/self/status; echo $?"
    ),
    "HUP ignored": "trap '' HUP; {weft} sh -c 'kill -HUP $$; echo alive'",
    "TRAP ignored": "trap '' TRAP; {weft} grep SigIgn /proc/self/status",
    "TRAP blocked": "{blocking} {weft} grep SigBlk /proc/self/status",
    "exit code": "{weft} sh -c 'exit 3'; echo $?",
}


BLOCKING = """import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTRAP, signal.SIGUSR1])
os.execvp(sys.argv[1], sys.argv[1:])
"""


def result(text: str, folder: Path, weft: str) -> str:
    """What a shell prints."""
    blocking = folder / "blocking.py"
    blocking.write_text(BLOCKING)
    text = text.format(weft=weft, blocking=f"{sys.executable} {blocking}")
    done = subprocess.run(
        ["bash", "-c", text], cwd=folder, stdout=subprocess.PIPE, text=True, timeout=100
    )
    return done.stdout


@pytest.mark.parametrize("what", INHERITED)
@pytest.mark.parametrize("command", COMMANDS if IS_LONG else WAYS)
def test_a_program_inherits_what_it_would(command: str, what: str, tmp_path: Path) -> None:
    need("bash", "chrt", "taskset")
    text = INHERITED[what]
    alone = result(text, tmp_path, "")
    assert alone
    assert result(text, tmp_path, COMMANDS[command]) == alone
