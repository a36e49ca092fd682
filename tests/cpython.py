"""CPython's own test suite, run by an interpreter that waits to be woven first.

    python -m tests.cpython [--long] [TEST ...]

Runs the suite alone, then with a counter in every function of the interpreter and of libc, and
compares what came of each of its tests. By default in the short form that the tests have, too.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

SHORT = ["test_json", "test_re"]
LONG = [
    *SHORT,
    "test_threading",
    "test_signal",
    "test_subprocess",
    "test_socket",
    "test_asyncio",
    "test_zlib",
]

PATIENCE = 1200.0

Outcome: TypeAlias = dict[str, str]
"""What came of each test, by its full name: ok, FAIL, ERROR, skipped and so on."""

ENDED = re.compile(
    r"(?:^|\s)(ok|FAIL|ERROR|expected failure|unexpected success|skipped)(?: ['\"].*)?$"
)

# What uses virtual sockets waits forever where a machine has them but nobody answers.
WAITING = """
import runpy, sys
print("ready", flush=True)
sys.stdin.readline()
sys.argv = ["test", "-v", "-i", "*VSOCK*", *sys.argv[1:]]
runpy.run_module("test", run_name="__main__", alter_sys=True)
"""


def python_with_tests() -> str | None:
    """Return an interpreter that has its test suite, which distributions like to leave out."""
    for python in (getattr(sys, "_base_executable", sys.executable), "/usr/bin/python3"):
        command = [python, "-c", "import test.test_json"]
        if Path(python).exists() and subprocess.run(command, capture_output=True).returncode == 0:
            return str(python)
    return None


def run(
    python: str, names: Sequence[str], folder: Path, before: Callable[[int], object] | None = None
) -> Outcome:
    """Run tests in a folder, after something was done to the interpreter: what came of them."""
    with subprocess.Popen(
        [python, "-c", WAITING, *names],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Some tests print what no encoding has.
        errors="replace",
    ) as process:
        try:
            assert process.stdin and process.stdout
            assert process.stdout.readline() == "ready\n"
            if before:
                before(process.pid)
            output, _ = process.communicate("\n", timeout=PATIENCE)
        finally:
            process.kill()
    outcome = parse(output)
    # 0: all is well; 2: tests have failed; 3: something was left changed. Others are crashes.
    assert outcome and process.returncode in (0, 2, 3), output[-5000:]
    return outcome


def parse(output: str) -> Outcome:
    """Read what unittest prints about each test; what a test prints itself may come between."""
    outcome: Outcome = {}
    name = None
    for line in output.splitlines():
        if begun := re.match(r"(\w+ \([\w.<>]+\)|Doctest: \S+)(?: \.\.\.|$)", line):
            name = begun[1]
        ended = ENDED.search(line)
        if name and ended:
            outcome[name] = ended[1]
            name = None
    return outcome


def differences(alone: Outcome, other: Outcome, how: str = "woven") -> list[str]:
    """Return in words which tests came out differently."""
    return [
        f"{name}: {alone.get(name, 'missing')} alone, {other.get(name, 'missing')} {how}"
        for name in sorted(alone.keys() | other.keys())
        if alone.get(name) != other.get(name)
    ]


def main() -> None:
    # Weft is needed only here: the parsers are tested without it.
    from tests.e2e.test_woven_zoo import weave_all

    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--long", action="store_true", help=f"all of {' '.join(LONG)}")
    arguments.add_argument("tests", nargs="*")
    options = arguments.parse_args()
    python = python_with_tests()
    if not python:
        sys.exit("no interpreter here has its test suite")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.tests or (LONG if options.long else SHORT):
            alone = run(python, [name], Path(folder))
            woven = run(python, [name], Path(folder), lambda pid: print(weave_all(pid)))
            found = differences(alone, woven)
            print(f"{name}: {len(alone)} tests, {len(found)} came out differently")
            if found:
                sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
