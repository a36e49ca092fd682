"""Random code and real programs, alone and as clones: the same state after each block.

``WEFT_CASES`` says how many blocks there are; a million is the long form.
"""

from __future__ import annotations

import difflib
import os
import shlex
from pathlib import Path

import pytest

from tests.clone import SMALL_CACHE, cloned, outcome
from tests.e2e.harness import need
from tests.toolchain import rust_example

BLOCKS = int(os.environ.get("WEFT_CASES", "20000"))
SEED = 5
PATIENCE = 120.0 + BLOCKS / 1000
ROOT = Path(__file__).parent.parent.parent
ENDLESS = "endless"


@pytest.fixture(scope="module")
def random_blocks() -> Path:
    """The program that makes and runs blocks."""
    return rust_example("weft-code", "random_blocks")


@pytest.fixture(scope="module")
def lockstep() -> Path:
    """The program that runs another one twice, in step."""
    return rust_example("weft-host", "lockstep")


@pytest.fixture(scope="module")
def forms(random_blocks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The encodings that this processor knows."""
    path = tmp_path_factory.mktemp("blocks") / "forms"
    found = outcome([random_blocks, "forms"])
    assert found.status == 0, found.stderr
    path.write_text(found.stdout)
    return path


@pytest.mark.parametrize(("options", "share"), [((), 1), (SMALL_CACHE, 4)], ids=["usual", "small"])
@pytest.mark.watchdog(3 * PATIENCE)
def test_every_block_leaves_the_same_state(
    random_blocks: Path, forms: Path, options: tuple[str, ...], share: int
) -> None:
    def blocks(what: str, number: int, *prefix: str) -> str:
        command: list[str | Path] = [*prefix, random_blocks, what, forms, str(SEED), str(number)]
        done = outcome(command, PATIENCE)
        assert done.status == 0, done
        print(done.stderr)
        return done.stdout

    prefix = cloned(*options)
    count = BLOCKS // share
    alone = blocks("run", count).splitlines()
    as_clone = blocks("run", count, *prefix).splitlines()
    assert len(alone) == len(as_clone) == count
    pairs = enumerate(zip(alone, as_clone, strict=True))
    different = [number for number, pair in pairs if len({*pair, ENDLESS}) == 3]
    if different:
        first = different[0]
        one, other = blocks("show", first).splitlines(), blocks("show", first, *prefix).splitlines()
        code = [line for line in one if line.startswith("3000")]
        found = difflib.unified_diff(one, other, "alone", "clone", n=0, lineterm="")
        pytest.fail("\n".join([f"{len(different)}: {different[:20]}", *code, *found]))


PROGRAMS = """\
true
echo hello
seq 20
cat TEXT
sort -n TEXT
wc TEXT
head -5 TEXT
cut -c1-3 TEXT
uniq -c TEXT
nl TEXT
tac TEXT
od -c TEXT
base64 TEXT
md5sum TEXT
sha256sum TEXT
cksum TEXT
factor 1234567890
date -u -d @0
printf '%s-%d' one 2
ls -l TEXT
sed -n s/1/one/p TEXT
find TEXT -size +0
gzip -c TEXT
bzip2 -c TEXT
sqlite3 :memory: 'SELECT sum(value) FROM generate_series(1, 100)'
perl -e 'print 6 * 7'
lua5.4 -e 'print(6 * 7)'
"""
FEW = 3
"""So many of them in the short form."""


def in_step() -> list[str]:
    lines = PROGRAMS.splitlines()
    return lines if BLOCKS >= 1_000_000 else lines[:FEW]


@pytest.mark.parametrize("command", in_step())
@pytest.mark.watchdog(700)
def test_programs_go_in_step(lockstep: Path, command: str, tmp_path: Path) -> None:
    program, *arguments = shlex.split(command)
    need(program)
    text = tmp_path / "text"
    text.write_text("".join(f"{number * 7919 % 100}\n" for number in range(60)))
    arguments = [str(text) if word == "TEXT" else word for word in arguments]
    done = outcome([lockstep, program, *arguments], 600.0)
    assert done.status == 0, done.stdout
    assert "the same: exit status: 0" in done.stdout
