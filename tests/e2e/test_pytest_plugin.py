"""The plugin of pytest: which test of a small extension executes what, as gcov tells it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import gcov
from tests.e2e.harness import need
from tests.toolchain import PROGRAMS
from weft.export.coverage.json import read
from weft.tools.coverage import Coverage, contexts_at

SOURCE = PROGRAMS / "extension" / "speed.c"
TESTS = """
import _speed


def test_twice():
    assert _speed.twice(4) == 8


def test_clamp_below():
    assert _speed.clamp(-4) == 0


def test_clamp_and_twice():
    assert _speed.clamp(_speed.twice(70)) == 100


def test_python_only():
    assert 1 + 1 == 2
"""
NAMES = ["test_twice", "test_clamp_below", "test_clamp_and_twice", "test_python_only"]
TRUTH = {
    "twice": ["test_twice", "test_clamp_and_twice"],
    "speed_twice": ["test_twice", "test_clamp_and_twice"],
    "clamp": ["test_clamp_below", "test_clamp_and_twice"],
    "speed_clamp": ["test_clamp_below", "test_clamp_and_twice"],
    "unused": [],
    "speed_unused": [],
    "PyInit__speed": [""],
}
"""Which tests execute which function; the module is imported outside of tests."""


def build(folder: Path, *options: str) -> Path:
    """Build the extension into a folder."""
    need("gcc")
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        pytest.skip("the headers of Python are not installed")
    library = folder / f"_speed{sysconfig.get_config_var('EXT_SUFFIX')}"
    shutil.copy(SOURCE, folder / "speed.c")
    command = ["gcc", "-g", "-O0", "-shared", "-fPIC", f"-I{headers}", *options]
    subprocess.run([*command, "speed.c", "-o", str(library)], cwd=folder, check=True)
    return library


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the extension and a file of tests."""
    build(tmp_path)
    (tmp_path / "test_speed.py").write_text(TESTS)
    return tmp_path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Coverage:
    """The coverage of the tests."""
    folder = tmp_path_factory.mktemp("project")
    build(folder)
    (folder / "test_speed.py").write_text(TESTS)
    done = run_pytest(folder, "--weft-cov", "_speed.so", "--weft-cov-report", "cov.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
    assert "native coverage of 4 tests is in cov.json" in done.stdout
    return read(folder / "cov.json")


def run_pytest(
    folder: Path, *arguments: str, prefix: Sequence[str] = (sys.executable,)
) -> subprocess.CompletedProcess[str]:
    command = [*prefix, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {key: value for key, value in os.environ.items() if "PYTEST" not in key}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=environment
    )


def who_executes(coverage: Coverage, where: str) -> list[str]:
    [place] = contexts_at(coverage, where)
    return [context.name.rpartition("::")[2] for context in place.contexts]


def test_functions_have_exactly_the_tests_that_execute_them(recorded: Coverage) -> None:
    found = recorded
    assert found.is_counted and found.flow.lost == ()
    assert {name: sorted(who_executes(found, name)) for name in TRUTH} == {
        name: sorted(tests) for name, tests in TRUTH.items()
    }
    # A test that executes nothing of it is one nevertheless.
    names = [context.name for context in found.contexts]
    assert sorted(names) == sorted(["", *(f"test_speed.py::{name}" for name in NAMES)])
    counts = {one.name: one.count for one in found.modules[0].functions}
    assert (counts["twice"], counts["clamp"], counts["unused"]) == (2, 2, 0)
    # All that was executed was so in one of the contexts.
    [file] = found.modules[0].files
    executed = [context.modules[0].lines.get(file.path, ()) for context in found.contexts]
    lines = {line for one in executed for line in one}
    assert lines == {line for line, count in file.lines.items() if count}


def test_lines_have_the_tests_that_gcov_sees(recorded: Coverage, tmp_path: Path) -> None:
    found, counted = recorded, tmp_path
    build(counted, "--coverage")
    (counted / "test_speed.py").write_text(TESTS)

    def lines(*arguments: str) -> dict[int, int]:
        for file in counted.glob("*.gcda"):
            file.unlink()
        assert run_pytest(counted, "-p", "no:weft", *arguments).returncode == 0
        return gcov.parse(counted, counted / "speed.c")

    imported = lines("--collect-only")
    [file] = found.modules[0].files
    both = imported.keys() & file.lines.keys()
    assert len(both) > 10
    for name in NAMES:
        truth = lines(f"test_speed.py::{name}")
        executed = {line for line in both if truth[line] > imported[line]}
        [context] = [one for one in found.contexts if one.name.endswith(f"::{name}")]
        assert set(context.modules[0].lines.get(file.path, ())) & both == executed, name


def test_a_table_is_printed_and_a_limit_is_held(project: Path) -> None:
    done = run_pytest(project, "--weft-cov", "_speed.so", "--weft-cov-fail-under", "99")
    assert done.returncode == 6
    assert "speed_unused" in done.stdout and "test_speed.py::test_twice" in done.stdout
    assert "coverage is 75.0% of lines (12 of 16), and the limit is 99%" in done.stderr


def test_tests_that_fail_keep_their_exit_code(project: Path) -> None:
    (project / "test_speed.py").write_text(TESTS + "\n\ndef test_fails():\n    assert 0\n")
    done = run_pytest(project, "--weft-cov", "_speed.so", "--weft-cov-fail-under", "99")
    assert done.returncode == 1 and "the limit is 99%" in done.stderr


CRASH = """
import os
import signal

import _speed


def test_before():
    _speed.twice(4)


def test_fork():
    if os.fork() == 0:
        _speed.clamp(-1)
        os._exit(0)
    os.wait()


def test_crash():
    _speed.unused(4)
    os.kill(os.getpid(), signal.SIGSEGV)


def test_never():
    _speed.clamp(400)
"""


def test_a_crash_keeps_its_exit_code_and_what_was_executed(project: Path) -> None:
    (project / "test_speed.py").write_text(CRASH)
    done = run_pytest(project, "--weft-cov", "_speed.so", "--weft-cov-report", "cov.json")
    assert done.returncode == 128 + signal.SIGSEGV
    text = "the tests did not come to their end: it came in test_speed.py::test_crash"
    assert f"note: {text}" in done.stderr
    found = read(project / "cov.json")
    assert found.flow.lost == (text,)
    assert who_executes(found, "twice") == ["test_before"]
    assert who_executes(found, "clamp") == ["test_fork"]
    assert who_executes(found, "unused") == ["test_crash"]
    assert {one.name.rpartition("::")[2]: one.lost for one in found.contexts} == {
        "": (),
        "test_before": (),
        "test_fork": (),
        "test_crash": (text,),
    }


SLOW = """
import time

import _speed


def test_sleeps():
    _speed.clamp(3)
    print("ready", flush=True)
    while True:  # A signal may come before the system call, which `signal.pause` would miss.
        time.sleep(0.01)


def test_never():
    _speed.twice(3)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 2), (signal.SIGTERM, 128 + 15)])
def test_signals_are_for_the_tests(project: Path, number: int, code: int) -> None:
    """Ctrl-C reaches all processes of a terminal, another signal the one that it is sent to."""
    (project / "test_speed.py").write_text(SLOW)
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider"]
    options = ["--weft-cov", "_speed.so", "--weft-cov-report", "cov.json"]
    with subprocess.Popen(
        [*command, *options],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            while "ready" not in (line := process.stdout.readline()):
                assert line
            if number == signal.SIGINT:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            shown = process.stdout.read()
            assert process.wait(60) == code, shown
        finally:
            process.kill()
    found = read(project / "cov.json")
    assert who_executes(found, "clamp") == ["test_sleeps"]
    assert who_executes(found, "twice") == []
    # pytest answers Ctrl-C in order, and comes to its end.
    assert bool(found.flow.lost) == (number == signal.SIGTERM)


def test_programs_that_a_test_starts_belong_to_it(project: Path) -> None:
    (project / "test_speed.py").write_text(
        textwrap.dedent(
            """
            import subprocess, sys

            def test_other_program():
                program = "import _speed; _speed.clamp(3)"
                subprocess.run([sys.executable, "-c", program], check=True)

            def test_nothing():
                pass
            """
        )
    )
    done = run_pytest(project, "--weft-cov", "_speed.so", "--weft-cov-report", "cov.json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = read(project / "cov.json")
    for name in ("PyInit__speed", "clamp"):
        assert who_executes(found, name) == ["test_other_program"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--weft-cov", "_speed.so", "-n", "2"], "--weft-cov cannot be used with pytest-xdist"),
        (["--weft-cov-report", "x.json"], "--weft-cov-report needs --weft-cov"),
        (["--weft-cov", "x", "--weft-cov-report", "x.y"], "its name ends in none of"),
        (["--weft-cov", "x", "--weft-cov-report", "/no/x.json"], "cannot write /no/x.json"),
        (["--weft-cov", "x", "--weft-cov-fail-under", "101"], "not between 0 and 100"),
        (["--weft-cov", "x", "--weft-cov-format", "drcov"], "drcov is not for reading"),
    ],
)
def test_what_cannot_be_is_a_usage_error_before_anything_runs(
    tmp_path: Path, arguments: list[str], told: str
) -> None:
    (tmp_path / "conftest.py").write_text("open('ran', 'w').close()\n")
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass\n")
    done = run_pytest(tmp_path, *arguments)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert told in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_library_that_is_never_executed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text("import _json\n\ndef test_nothing(): pass\n")
    done = run_pytest(tmp_path, "--weft-cov", "_jsn.so")
    assert "1 passed" in done.stdout
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "nothing of _jsn.so was executed" in done.stderr and "_json.c" in done.stderr


WITHOUT_PTRACE = """
import ctypes, os, struct, sys
code = b"".join(
    struct.pack("HBBI", *one)
    for one in [
        (0x20, 0, 0, 0),  # the number of the system call
        (0x15, 0, 1, 101),  # ptrace
        (0x06, 0, 0, 0x00050001),  # EPERM
        (0x06, 0, 0, 0x7FFF0000),
    ]
)
buffer = ctypes.create_string_buffer(code)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(4, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program)) == 0
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def test_where_weft_cannot_work_it_says_why(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): open('ran', 'w').close()\n")
    confined = tmp_path / "confined.py"
    confined.write_text(WITHOUT_PTRACE)
    prefix = [sys.executable, str(confined)]
    assert run_pytest(tmp_path, prefix=prefix).returncode == 0
    (tmp_path / "ran").unlink()
    done = run_pytest(tmp_path, "--weft-cov", "_json.so", prefix=prefix)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "weft cannot record coverage: " in done.stderr, done.stderr
    assert not (tmp_path / "ran").exists()


def test_what_runs_no_tests_is_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass\n")
    done = run_pytest(tmp_path, "--weft-cov", "_speed.so", "--collect-only")
    assert done.returncode == 0 and "test_nothing.py::test_nothing" in done.stdout
    assert "no coverage" not in done.stderr


def test_an_inner_pytest_belongs_to_the_test_that_starts_it(project: Path) -> None:
    """As it may have the option from a configuration that both read."""
    inner = project / "inner"
    inner.mkdir()
    (inner / "test_inner.py").write_text(
        "import _speed\n\ndef test_inner(): assert _speed.twice(2) == 4\n"
    )
    (project / "test_speed.py").write_text(
        textwrap.dedent(
            """
            import subprocess, sys

            def test_outer():
                command = [sys.executable, "-m", "pytest", "inner", "--weft-cov", "_speed.so"]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                assert "recorded by the pytest that has started this one" in done.stdout
            """
        )
    )
    options = ["--weft-cov", "_speed.so", "--weft-cov-report", "cov.json"]
    done = run_pytest(project, "test_speed.py", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    found = read(project / "cov.json")
    assert who_executes(found, "twice") == ["test_outer"]


def test_without_the_option_nothing_of_weft_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n\n"
        "def test_nothing():\n"
        "    loaded = {name for name in sys.modules if name.split('.')[0] == 'weft'}\n"
        "    own = {f'weft.testing{part}' for part in ('', '.channel', '.plugin')}\n"
        "    assert loaded == {'weft', *own}\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout


def test_a_part_of_the_standard_library(tmp_path: Path) -> None:
    """An extension that nobody has built for this, without debug information or with it."""
    (tmp_path / "test_json.py").write_text(
        "import json\n\n"
        "def test_reads():\n    assert json.loads('[1, \"x\"]') == [1, 'x']\n\n"
        "def test_writes():\n    assert json.dumps(['x']) == '[\"x\"]'\n"
    )
    done = run_pytest(tmp_path, "--weft-cov", "_json*.so", "--weft-cov-report", "cov.json")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "cov.json").read_bytes())
    [module] = document["modules"]
    assert Path(module["path"]).name.startswith("_json.")
    executed = {one["name"]: one["modules"][0]["functions"] for one in document["contexts"]}
    reads, writes = (set(executed[f"test_json.py::test_{name}"]) for name in ("reads", "writes"))
    assert reads - writes and writes - reads
