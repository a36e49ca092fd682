"""How long the command takes before it begins with its work, and what it loads for that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft.errors import TargetError

WEFT = Path(sys.executable).with_name("weft")

LIMIT = 8.0
"""How many times as long as Python's own start. At rest that takes 8.5 ms where this was written,
so it stands for 60 ms. What slows this machine down slows both down."""
ROUNDS = 10

HEAVY = {
    *("_hashlib", "difflib", "email", "importlib.metadata", "json", "lark", "rich", "socket"),
    *("subprocess", "tempfile", "textual", "traceback", "weft.mdl", "weft.metrics", "weft.ui"),
}
"""What no command needs to begin."""


def loaded(words: list[str]) -> set[str]:
    """The modules that are loaded after a command."""
    script = (
        "import sys; from weft.cli import main; main(sys.argv[1:], standalone_mode=False);"
        "print(*sys.modules, file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)
    return set(result.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("words", [["--help"], ["attach", "--help"], ["run", "--help"]])
def test_help_loads_neither_the_core_nor_what_is_heavy(words: list[str]) -> None:
    modules = loaded(words)
    assert "weft.cli" in modules
    heavy = HEAVY | {"weft._native", "weft.session", "weft.model.program"}
    assert modules & heavy == set()


def test_starting_a_program_loads_nothing_that_is_heavy() -> None:
    script = (
        "import sys; from weft.cli import run, attach; import weft; weft.run, weft.attach;"
        "weft.Session; print(*sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    modules = set(result.stdout.split())
    assert "weft.session" in modules
    assert modules & HEAVY == set()


def test_a_program_in_a_clone_loads_nothing_that_measures() -> None:
    modules = loaded(["run", "--weaver", "clone", "--", "true"])
    assert "weft.clone" in modules
    measuring = {"weft.session", "weft.control.probing", "weft.control.probes"}
    assert modules & (measuring | HEAVY - {"socket"}) == set()


def test_a_metric_of_the_library_is_measured_without_the_parser(tmp_path: Path) -> None:
    script = (
        "import sys; from weft.metrics.engine import Engine;"
        "from weft.metrics.catalogue import library_files, shipped;"
        "[shipped(file) for file in library_files()]; print(*sys.modules)"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    for is_kept in (False, True):
        result = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment
        )
        modules = set(result.stdout.split())
        assert "weft.mdl.lower" in modules, result.stderr
        assert ("lark" not in modules) == is_kept


def processor_time(command: list[str], environment: dict[str, str]) -> float:
    """The processor time that a command takes, in milliseconds: waiting for others is not in it."""
    nothing = os.open(os.devnull, os.O_RDWR)
    to_nothing = [(os.POSIX_SPAWN_DUP2, nothing, number) for number in (0, 1, 2)]
    pid = os.posix_spawn(command[0], command, environment, file_actions=to_nothing)
    os.close(nothing)
    _, status, usage = os.wait4(pid, 0)
    assert os.waitstatus_to_exitcode(status) in (0, TargetError.exit_code), command
    return 1000 * (usage.ru_utime + usage.ru_stime)


@pytest.mark.alone
@pytest.mark.parametrize(
    "words", ["--help", "attach --help", "attach 4194304", "run --help", "run -- /not/there"]
)
def test_weft_starts_in_a_few_times_what_python_takes(words: str, tmp_path: Path) -> None:
    """As installed: with compiled modules. Both are measured in turns, and the best is taken.

    A process or a program that is not there is what a command fails at when it begins.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    commands = [[sys.executable, "-c", "pass"], [str(WEFT), *words.split()]]
    for command in commands:
        processor_time(command, environment)
    rounds = [[processor_time(one, environment) for one in commands] for _ in range(ROUNDS)]
    python, weft = map(min, zip(*rounds, strict=True))
    assert weft - python < LIMIT * python, f"{weft:.1f} ms, of which Python {python:.1f} ms"
