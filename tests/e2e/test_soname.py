"""A library goes by the name that programs ask for it by, too, which is a link to its file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weft._native import soname

LIBRARY = 'int f(int i) { __asm__ volatile("nop; nop; nop; nop"); return i + 1; }\n'
PROGRAM = "int f(int i); int main(void) { int n = 0; while (n < 7) n = f(n); return 0; }\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("soname")
    (folder / "sub.c").write_text(LIBRARY)
    (folder / "uses.c").write_text(PROGRAM)
    library, link = folder / "libsub.so.1.2.3", folder / "libsub.so.1"
    shared: list[str | Path] = ["-shared", "-fPIC", "-Wl,-soname,libsub.so.1"]
    shared += ["-o", library, folder / "sub.c"]
    subprocess.run(["gcc", "-O1", "-g", *shared], check=True)
    link.symlink_to(library.name)
    uses: list[str | Path] = [
        folder / "uses.c",
        library,
        f"-Wl,-rpath,{folder}",
        "-o",
        folder / "uses",
    ]
    subprocess.run(["gcc", "-O1", "-g", *uses], check=True)
    return folder / "uses"


def weft(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weft", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def measured(*words: str | Path) -> dict[str, Any]:
    done = weft("run", "--format", "json", *words)
    # What is waited for is said before.
    (total,) = json.loads(done.stderr[done.stderr.index("{") :])["totals"]
    return dict(total)


@pytest.mark.parametrize(
    "words",
    [
        ("-m", "calls@/Code/libsub.so.1/f"),
        ("-m", "calls@/Code/libsub.so.1/f", "--wait"),
        ("-m", "calls@libsub.so.1/f"),
        ("-m", "calls@/Code/libsub.so.1.2.3/f"),
        ("-e", "entry /Code/libsub.so.1/f { count++ }"),
    ],
)
def test_a_focus_names_a_library_by_its_soname(program: Path, words: tuple[str, ...]) -> None:
    total = measured(*words, "--", program)
    assert (total["value"], total["status"], total["remarks"]) == (7, "exact", [])


def test_points_coverage_and_profiles_do(program: Path) -> None:
    points = weft("points", program.parent / "libsub.so.1.2.3", "--module", "libsub.so.1")
    assert "f" in points.stdout.split()
    covered = weft("cov", "--module", "libsub.so.1", "--format", "json", "--", program)
    assert "sub.c" in covered.stdout + covered.stderr
    profiled = weft("profile", "--module", "libsub.so.1", "--", program)
    assert "libsub.so.1.2.3" in profiled.stdout + profiled.stderr


def test_what_is_waited_for_and_never_comes_is_said(program: Path) -> None:
    total = measured("-m", "calls@/Code/libother.so.1/f", "--wait", "--", program)
    assert total["value"] == 0
    assert any("has been loaded" in one for one in total["remarks"])


@pytest.mark.parametrize("text", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 200])
def test_what_is_no_library_has_no_soname(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "file").write_bytes(text)
    assert soname(str(tmp_path / "file")) == ""


def test_a_name_alone_is_no_library_to_wait_for(program: Path) -> None:
    done = weft("run", "-m", "calls@other", "--wait", "--", program)
    assert done.returncode == 2
    assert "say which library to wait for: /Code/LIBRARY/other" in done.stderr
