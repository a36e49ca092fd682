"""Small programs, each by several compilers at every level of optimisation."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.patch_against_clone.model import Subject, Work
from tests.toolchain import PROGRAMS
from tests.zoo.inputs import functions

LEVELS = ("-O0", "-O1", "-O2", "-O3", "-Os")
COMPILERS = {".c": ("gcc", "clang-14"), ".cpp": ("g++", "clang++-14")}
ENDED_WELL = 7
"""What the programs that count themselves end with."""

SOURCES: list[tuple[str, tuple[str, ...], int]] = [
    *(
        (f"coverage/{path.name}", (), int(path.name == "jumps.c"))
        for path in sorted((PROGRAMS / "coverage").glob("*.c*"))
    ),
    ("counts.c", ("1", "50"), ENDED_WELL),
    ("counts.cpp", ("1", "50"), ENDED_WELL),
    ("coroutines.c", ("1", "50"), ENDED_WELL),
    ("traces.c", ("1", "50"), ENDED_WELL),
    ("clone/bench/objects.cpp", ("1",), 0),
    ("c_library.c", (), 0),
]
"""Sources, what the programs are given, and how they end."""

MADE = (10, 40, 90, 160)
"""How many functions the programs have that are made by chance."""


def _build(
    source: str, compiler: str, options: tuple[str, ...], words: tuple[str, ...], status: int
) -> Callable[[Path], Work]:
    def prepare(folder: Path) -> Work:
        path = PROGRAMS / source
        if source.isdigit():
            functions("made.c", int(source))(folder)
            path = folder / "made.c"
        flags = (*options, "-g0", "-w", "-pthread")
        command: list[str | Path] = [compiler, *flags, path, "-lm", "-o", "program"]
        subprocess.run(command, cwd=folder, check=True)
        return Work(("./program", *words), statuses=(status,))

    return prepare


def _go(folder: Path, source: str) -> Work:
    environment = {"GOCACHE": str(folder / "cache"), "HOME": str(folder), "PATH": "/usr/bin:/bin"}
    command: list[str | Path] = ["go", "build", "-o", folder / "program", PROGRAMS / source]
    subprocess.run(command, cwd=folder, env=environment, check=True)
    subprocess.run(["rm", "-rf", folder / "cache"], check=True)
    return Work(
        ("./program", "1", "20"),
        environment={"GOMAXPROCS": "1", "GOGC": "off"},
        prefixes=("main.",),
        statuses=(ENDED_WELL,),
    )


def _rust(folder: Path, source: str, level: str, status: int) -> Work:
    command: list[str | Path] = ["rustc", "-C", f"opt-level={level}", "-o", "program"]
    command.append(PROGRAMS / source)
    subprocess.run(command, cwd=folder, check=True)
    return Work(("./program", "1", "20"), statuses=(status,))


def _compiled() -> list[Subject]:
    found = []
    sources = [*SOURCES, *((str(number), (), 0) for number in MADE)]
    for source, words, status in sources:
        for compiler in COMPILERS[Path(source).suffix or ".c"]:
            for level in LEVELS:
                name = Path(source).name if not source.isdigit() else f"made{source}.c"
                is_short = (name, compiler, level) in SHORT
                prepare = _build(source, compiler, (level,), words, status)
                group = f"{compiler.removesuffix('-14')} {level}"
                subject = Subject(f"{name} {group}", group, prepare, (compiler,), is_short)
                found.append(subject)
    return found


SHORT = {
    ("made40.c", "gcc", "-O1"),
    ("parser.c", "clang-14", "-Os"),
    ("classes.cpp", "g++", "-O2"),
}
"""What the short form has."""

COMPILED = [
    *_compiled(),
    *(
        Subject(
            f"{source} {level}",
            "rust",
            partial(_rust, source=source, level=level, status=status),
            ("rustc",),
            # The standard library looks for the stack in /proc/self/maps.
            varies_by_mappings=True,
        )
        for source, status in (("counts.rs", ENDED_WELL), ("debug/walked.rs", 0))
        for level in "0123s"
    ),
    Subject("counts.go", "go", partial(_go, source="counts.go"), ("go",)),
]
