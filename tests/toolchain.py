"""Programs for tests, compiled as they are needed, and the tools that weft is held against."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parent.parent


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


def rust_example(package: str, name: str) -> Path:
    """An example of one of the crates, built."""
    # One package alone has fewer features of what it depends on than all of them: almost everything
    # would be compiled once more.
    command = ["cargo", "build", "--locked", "--workspace", "--message-format", "json"]
    done = subprocess.run(
        [*command, "--example", name],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    [program] = [
        message["executable"]
        for message in messages
        if message.get("executable") and f"#{package}@" in message["package_id"]
    ]
    return Path(program)
