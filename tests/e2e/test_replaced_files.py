"""What becomes of the files of a program while it is measured is nothing to the program.

A package upgrade removes, renames or replaces the files that programs run. The program goes on with
what it has mapped; so must every measurement, and its end.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import weft
from tests.e2e.harness import code, eventually
from tests.lockstep import lockstep
from tests.probing import COUNTER
from weft.program.live_modules import LastingModules
from weft.tools.profile import profile

Build = Callable[[str], Path]


def _remove(path: Path) -> None:
    path.unlink()


def _rename(path: Path) -> None:
    path.rename(path.with_name("older"))


def _replace(path: Path) -> None:
    """Another program of the same name, as package managers put it there."""
    fresh = path.with_name("fresh")
    shutil.copy("/bin/true", fresh)
    fresh.replace(path)


FATES = pytest.mark.parametrize("fate", [_remove, _rename, _replace])


def own_copy(build: Build, name: str, folder: Path) -> Path:
    """Return a copy of a program, and of the library beside it, to be done away with."""
    built = build(name)
    path = folder / name
    shutil.copy(built, path)
    if (library := built.with_name(built.name + ".so")).exists():
        shutil.copy(library, folder / f"{name}.so")
    return path


def bytes_of_code(pid: int) -> list[str]:
    """Return a hash of every executable mapping, whatever the name of its file."""
    return list(code(pid).values())


def waits_for_enough(pid: int) -> bool:
    """Whether a weft lets time pass, by select: from there Ctrl-C ends the measurement."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] in ("23", "270")


@FATES
def test_probes_outlive_the_file(
    build: Build, tmp_path: Path, fate: Callable[[Path], None]
) -> None:
    path = own_copy(build, "counts", tmp_path)
    with lockstep(path, 2) as program:
        program.batch(1)
        before = bytes_of_code(program.pid)
        with weft.attach(program.pid) as session:
            early = session.insert("/Code/counts/normal", COUNTER)
            metric = session.metric("calls", "/Code/counts/tiny")
            first = program.batch(10)
            fate(path)
            assert session.is_current()
            second = program.batch(10)
            session.metrics.refresh()
            session.refresh()
            # By the name that it was started with, whatever is there now.
            late = session.insert("/Code/counts/switching", COUNTER)
            third = program.batch(10)
            assert early.value() == sum(b["normal"] for b in (first, second, third))
            session.metrics.sample()
            assert metric.value == sum(b["tiny"] for b in (first, second, third))
            assert late.value() == third["switching"]
        assert bytes_of_code(program.pid) == before
        program.batch(10)


@FATES
def test_a_program_whose_file_is_gone_is_attached_to(
    build: Build, tmp_path: Path, fate: Callable[[Path], None]
) -> None:
    path = own_copy(build, "counts", tmp_path)
    with lockstep(path, 1) as program:
        fate(path)
        with weft.attach(program.pid) as session:
            assert session.program() == str(tmp_path / "older" if fate is _rename else path)
            probe = session.insert("/Code/counts/normal", COUNTER)
            assert probe.value() == 0
            assert program.batch(10)["normal"] == probe.value()
        program.batch(1)


@FATES
def test_a_library_is_measured_when_its_file_is_gone(
    build: Build, tmp_path: Path, fate: Callable[[Path], None]
) -> None:
    path = own_copy(build, "plugging", tmp_path)
    library = tmp_path / "plugging.so"
    spare = tmp_path / "spare"
    shutil.copy(library, spare)
    with lockstep(path, 1) as program:
        assert program.say("load") == "loaded"
        before = bytes_of_code(program.pid)
        with weft.attach(program.pid) as session:
            probe = session.insert("/Code/plugging.so/plugged", COUNTER)
            metric = session.metric("calls", "/Code/plugging.so/plugged_leaf")
            first = program.batch(3)
            fate(library)
            assert session.refresh() == []
            late = session.insert("/Code/plugging.so/plugged_leaf", COUNTER)
            assert probe.value() == first["plugged"]
            session.metrics.sample()
            assert metric.value == first["plugged_leaf"]
            assert late.value() == 0
        assert bytes_of_code(program.pid) == before
        # The program opens its library by its name in every round.
        spare.replace(library)
        program.batch(1)


@pytest.mark.parametrize(
    ("weaver", "fate"), [("patch", _remove), ("patch", _replace), ("clone", _rename)]
)
def test_commands_do_not_take_it_for_another_program(
    build: Build, tmp_path: Path, fate: Callable[[Path], None], weaver: str
) -> None:
    path = own_copy(build, "counts", tmp_path)
    output = tmp_path / "out.json"
    with lockstep(path, 1) as program:
        program.batch(1)
        before = bytes_of_code(program.pid)
        command = [sys.executable, "-m", "weft", "attach", str(program.pid), "--weaver", weaver]
        command += ["-m", "calls@/Code/counts/normal", "--format", "json", "-o", str(output)]
        # It says where it can be asked when it has begun.
        command += ["--prometheus", "127.0.0.1:0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert "Prometheus" in process.stderr.readline()
            fate(path)
            counts = program.batch(10)
            eventually(lambda: waits_for_enough(process.pid))
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert "has become" not in said
        document = json.loads(output.read_text())
        assert document["target"]["program"] == str(path)
        assert document["totals"][0]["value"] == counts["normal"]
        assert bytes_of_code(program.pid) == before
        program.batch(10)


@pytest.mark.parametrize("fate", [_rename, _replace])
def test_coverage_has_the_functions(
    build: Build, tmp_path: Path, fate: Callable[[Path], None]
) -> None:
    path = own_copy(build, "counts", tmp_path)
    with lockstep(path, 1) as program:
        program.batch(1)
        command = [sys.executable, "-m", "weft", "cov", str(program.pid), "--format", "json"]
        with subprocess.Popen(
            command, text=True, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stderr is not None
            assert "recording" in process.stderr.readline()
            fate(path)
            program.batch(1)
            eventually(lambda: waits_for_enough(process.pid))
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        functions = {
            function["name"]: function["count"]
            for module in json.loads(said)["modules"]
            for function in module["functions"]
        }
        assert functions["normal"] > 0
        program.batch(10)


@pytest.mark.parametrize("fate", [_remove])
def test_a_profile_has_the_functions(
    build: Build, tmp_path: Path, fate: Callable[[Path], None]
) -> None:
    path = own_copy(build, "counts", tmp_path)
    with lockstep(path, 1) as program:
        program.batch(1)
        with weft.attach(program.pid, weaver="clone", records="counts") as cloned:
            modules = LastingModules(program.pid)
            fate(path)
            assert program.batch(2)["normal"] > 0
            found = profile(cloned.flow(), modules.now())
        assert "normal" in {function.name for function in found.functions}
        program.batch(10)
