"""Random snippets at random instructions of real programs measure what they say, by both weavers.

In the long form (``WEFT_CASES=1000000``) there are all programs, else a few.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import need
from tests.probing import IS_LONG
from tests.toolchain import rust_example

SEED = 7
FEW = 5
PROGRAMS = [
    "true",
    "echo one two three",
    "expr 17 * 23 + 4",
    "seq 40",
    "factor 123456789 97",
    "printf %d-%s 12 x",
    "basename /usr/share/doc",
    "date -u -d @86400",
    "head -n 3 {text}",
    "tail -n 3 {text}",
    "wc {text}",
    "cut -c 2-4 {text}",
    "nl {text}",
    "uniq -c {text}",
    "od -c {text}",
    "base64 {text}",
    "md5sum {text}",
    "sed s/a/b/ {text}",
    "awk 1 {text}",
    "sqlite3 :memory: 'select 1'",
]


@pytest.fixture(scope="module")
def oracle() -> Path:
    """The program that steps through another one."""
    need("cargo", "setarch")
    return rust_example("weft-host", "stepped")


def chosen() -> list[str]:
    return PROGRAMS if IS_LONG else PROGRAMS[:FEW]


@pytest.mark.parametrize("program", chosen())
@pytest.mark.watchdog(180)
def test_snippets_measure_what_they_say(program: str, oracle: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("".join(f"line {number} of a text\n" for number in range(30)))
    name, *words = shlex.split(program.format(text=text))
    need(name)
    command = [str(shutil.which(name)), *words]
    helper = ["setarch", "-R", sys.executable, "-m", "tests.stepped", str(oracle), str(SEED)]
    done = subprocess.run([*helper, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for weaver, found in json.loads(done.stdout).items():
        assert not found["wrong"], weaver
        # Enough of them are at instructions that are executed, and not where chance has its part.
        assert found["reached"] > 5, found
