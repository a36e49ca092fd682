"""Programs for tests, compiled as they are needed, and the tools that weft is held against."""

from __future__ import annotations

import subprocess
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


def run(*arguments: str | Path) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(
        [str(argument) for argument in arguments], capture_output=True, check=True
    )
    return done.stdout.decode(errors="surrogateescape")


def compile_program(source: str, output: Path, *options: str) -> Path:
    """Compiles a file of ``tests/programs``."""
    compiler = "g++" if source.endswith(".cc") else "gcc"
    run(compiler, *options, PROGRAMS / source, "-o", output)
    return output
