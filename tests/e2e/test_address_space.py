"""Programs whose runtimes reserve addresses of their own run under weft as they do alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import need

PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void *fill(void *numbers) {
    for (int i = 0; i < 1000; i++) ((int *)numbers)[i] = i;
    return numbers;
}
int main(void) {
    int *numbers = malloc(1000 * sizeof *numbers);
    pthread_t thread;
    pthread_create(&thread, NULL, fill, numbers);
    pthread_join(thread, NULL);
    long sum = 0;
    for (int i = 0; i < 1000; i++) sum += numbers[i];
    free(numbers);
    printf("%ld\n", sum);
}
"""
SANITIZERS = [("gcc", "address"), ("gcc", "thread"), ("clang-14", "memory")]


@pytest.mark.parametrize(("compiler", "sanitizer"), SANITIZERS)
@pytest.mark.parametrize("command", ["profile", "trace", "run --weaver clone", "run -m calls"])
def test_a_program_with_a_sanitizer(
    tmp_path: Path, compiler: str, sanitizer: str, command: str
) -> None:
    need(compiler)
    source, program = tmp_path / "sum.c", tmp_path / "sum"
    source.write_text(PROGRAM)
    build: list[str | Path] = [
        compiler,
        "-g",
        f"-fsanitize={sanitizer}",
        source,
        "-o",
        program,
        "-pthread",
    ]
    if subprocess.run(build, check=False, capture_output=True).returncode != 0:
        pytest.skip(f"{compiler} has no library for this sanitizer")
    assert alone(program) == (0, "499500\n")
    assert by_weft(tmp_path, command, program) == (0, "499500\n")


def test_a_heap_of_zgc(tmp_path: Path) -> None:
    need("java")
    java = ("java", "-XX:+UseZGC", "-Xmx64m", "-version")
    assert by_weft(tmp_path, "profile", *java)[0] == alone(*java)[0] == 0


def test_the_cages_of_v8(tmp_path: Path) -> None:
    need("node")
    node = ("node", "-e", "console.log([1, 2, 3].map((n) => n * n).join())")
    assert by_weft(tmp_path, "profile", *node) == alone(*node) == (0, "1,4,9\n")


def alone(*command: str | Path) -> tuple[int, str]:
    """The exit code and the output of a command."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
    )
    return done.returncode, done.stdout


def by_weft(folder: Path, command: str, *program: str | Path) -> tuple[int, str]:
    """The same, run by weft."""
    words = [*command.split(), *(() if command.startswith("run") else ("-o", folder / "result"))]
    return alone(sys.executable, "-m", "weft", *words, "--", *program)
