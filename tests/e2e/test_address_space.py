"""Programs whose runtimes reserve addresses of their own run under weft as they do alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import weft
from tests.clone import outcome
from tests.e2e.harness import need
from weft.errors import WeftError

Build = Callable[[str], Path]

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


OVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static int compare(const void *one, const void *other) {
    return *(const int *)one - *(const int *)other;
}
static void work(void) {
    int numbers[100];
    for (int i = 0; i < 100; i++) numbers[i] = i * 37 % 101;
    qsort(numbers, 100, sizeof *numbers, compare);
    printf("%d %d\n", numbers[0], numbers[99]);
    fflush(stdout);
}
int main(int count, char **words) {
    char *at = (char *)0x7c000000;
    size_t size = 64 << 20;
    work();
    if (strcmp(words[1], "map") == 0) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
        if (mmap(at, size, PROT_READ | PROT_WRITE, flags, -1, 0) != at) return 1;
        for (size_t i = 0; i < size; i += 4096) at[i] = 7;
    } else {
        printf("%d\n", munmap(at, size));
    }
    work();
    fflush(stdout);
    if (fork() == 0) { work(); _exit(3); }
    int status;
    wait(&status);
    printf("%d\n", WEXITSTATUS(status));
    return count;
}
"""


@pytest.mark.parametrize("what", ["map", "unmap"])
def test_a_program_that_does_not_ask_what_is_in_low_memory(tmp_path: Path, what: str) -> None:
    """The clone's tables are there, where the program has nothing."""
    source, program = tmp_path / "over.c", tmp_path / "over"
    source.write_text(OVER)
    subprocess.run(["gcc", "-O1", "-o", program, source], check=True)
    native = alone(program, what)
    assert native[0] == 2
    assert by_weft(tmp_path, "run --weaver clone", program, what) == native


def test_a_heap_of_zgc(tmp_path: Path) -> None:
    need("java")
    java = ("java", "-XX:+UseZGC", "-Xmx64m", "-version")
    assert by_weft(tmp_path, "profile", *java)[0] == alone(*java)[0] == 0


def test_the_cages_of_v8(tmp_path: Path) -> None:
    need("node")
    node = ("node", "-e", "console.log([1, 2, 3].map((n) => n * n).join())")
    assert by_weft(tmp_path, "profile", *node) == alone(*node) == (0, "1,4,9\n")


# --- Programs that reserve all low memory, where the clone's tables have to be -------------------

WORK, FORKED = "12499900000", "44"
"""What the program answers when it works, itself or in a child."""


class Reserving:
    """The program, which does what it is told."""

    def __init__(self, build: Build, folder: Path, kind: str = "plain") -> None:
        command = [str(build("clone_low_reserved")), kind]
        self._errors = folder / "errors"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
            )
        self.pid = self._process.pid
        assert self._answer() == "ready"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def does(self, what: str) -> str:
        """Tell it to do something, and return what it says of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        return self._answer()

    def maps(self) -> str:
        """What it has mapped."""
        return Path(f"/proc/{self.pid}/maps").read_text()

    def end(self) -> tuple[int, str]:
        """End its input: its exit code, and what it has complained of."""
        self._process.communicate(timeout=60)
        return self._process.returncode, self._errors.read_text()

    def __enter__(self) -> Reserving:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.mark.parametrize("kind", ["plain", "noreserve"])
def test_low_memory_is_lent_and_given_back(build: Build, tmp_path: Path, kind: str) -> None:
    with Reserving(build, tmp_path, kind) as program:
        assert program.does("work") == WORK
        assert program.does("fork") == FORKED
        before = program.maps()
        for _ in range(2):
            with weft.attach(program.pid, weaver="clone") as cloned:
                assert program.does("work") == WORK
                assert program.does("fork") == FORKED
                assert cloned.stats().blocks > 0
            assert program.maps() == before
        assert program.does("work") == WORK
        assert program.end() == (0, "")


@pytest.mark.parametrize(
    ("what", "answer"), [("unmap", "0"), ("open", "0"), ("advise", "0"), ("replace", "1")]
)
def test_a_program_that_changes_what_it_has_lent(
    build: Build, tmp_path: Path, what: str, answer: str
) -> None:
    with Reserving(build, tmp_path) as program:
        with weft.attach(program.pid, weaver="clone") as cloned:
            assert program.does("work") == WORK
            assert cloned.session.left_clones == 0
            assert program.does(what) == answer
            assert program.does("work") == WORK
            assert cloned.session.left_clones == 1
        assert "weft-clone" not in program.maps()
        assert program.does("fork") == FORKED
        assert program.end() == (0, "")


def test_hidden_memory_is_not_lent(build: Build, tmp_path: Path) -> None:
    with Reserving(build, tmp_path, "hidden") as program:
        before = program.maps()
        with pytest.raises(WeftError, match="no room for the engine"):
            weft.attach(program.pid, weaver="clone")
        assert program.maps() == before
        assert program.does("work") == WORK
        assert program.end() == (0, "")


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


@pytest.mark.parametrize(
    "words", ["run --weaver clone", "profile -o {}", "cov -o {}", "trace -o {}"]
)
def test_a_program_that_locks_its_memory_does_not_fill_what_weft_reserves(
    build: Callable[[str], Path], words: str, tmp_path: Path
) -> None:
    prefix = words.format(tmp_path / "result").split()
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "weft",
        *prefix,
        "--",
        build("clone_locking"),
    ]
    done = outcome(command)
    result, resident = done.stdout.split()
    assert (done.status, result) == (29, "0")
    assert int(resident) < 2048
