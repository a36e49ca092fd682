"""How the programs of the zoo are compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.harness import PROGRAMS

C = ("-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")


@dataclass(frozen=True)
class Recipe:
    """A source, and the commands that make a program of it, in which {source} and {out} stand."""

    source: str
    commands: tuple[tuple[str, ...], ...]
    environment: dict[str, str] = field(default_factory=dict)


def _compile(compiler: str, source: str, *flags: str) -> Recipe:
    return Recipe(source, ((compiler, *C, *flags, "{source}", "-o", "{out}"),))


RECIPES = {
    "seccomp": _compile("gcc", "seccomp.c"),
    "thirty_two_bits": Recipe(
        "thirty_two_bits.s",
        (
            ("as", "--32", "{source}", "-o", "{out}.o"),
            ("ld", "-m", "elf_i386", "{out}.o", "-o", "{out}"),
        ),
    ),
}


class Builder:
    """Compiles programs into a folder; a second request finds the first one's result."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def build(self, name: str) -> Path:
        recipe, out = RECIPES[name], self.folder / name
        if out.exists():
            return out
        for command in recipe.commands:
            if not shutil.which(command[0]):
                pytest.skip(f"{command[0]} is not installed")
            filled = [word.format(source=PROGRAMS / recipe.source, out=out) for word in command]
            environment = {**os.environ, **recipe.environment}
            subprocess.run(filled, check=True, env=environment)
        return out
