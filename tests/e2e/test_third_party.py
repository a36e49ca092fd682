"""Tools that are not weft's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "instruction_mix.py"
PROGRAM = ["--", "/bin/echo", "hello"]


def run(command: list[str | Path], path: Path | None = None) -> subprocess.CompletedProcess[str]:
    paths = [str(path)] if path else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, str(ROOT / "python")])}
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder in which a package is installed that adds a command."""
    (tmp_path / "instruction_mix.py").write_text(EXAMPLE.read_text())
    about = tmp_path / "mix-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mix\nVersion: 1.0\n")
    entries = "instruction-mix = instruction_mix:command\nbroken = nowhere:command\n"
    (about / "entry_points.txt").write_text(f"[weft.commands]\n{entries}")
    return tmp_path


def test_the_example_counts_instructions() -> None:
    done = run([EXAMPLE, *PROGRAM])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "hello\n"
    kinds, last = done.stderr.splitlines()[1:-1], done.stderr.splitlines()[-1]
    assert kinds[0].split()[0] == "mov"
    assert int(last.split()[0].replace(",", "")) > 50_000


def test_a_package_adds_a_command(installed: Path) -> None:
    weft: list[str | Path] = ["-m", "weft"]
    assert "instruction-mix" in run([*weft, "--help"], installed).stdout
    done = run([*weft, "instruction-mix", *PROGRAM], installed)
    assert done.stdout == "hello\n", done.stderr
    assert "mov" in done.stderr


def test_a_command_that_cannot_be_loaded_says_so(installed: Path) -> None:
    done = run(["-m", "weft", "broken"], installed)
    assert done.returncode == 1
    assert "the command broken cannot be loaded" in done.stderr
    assert "Traceback" not in done.stderr
