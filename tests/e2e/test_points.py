"""``weft points`` on programs large and small, held against binutils and elfutils."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.toolchain import compile_program, run

WEFT = Path(sys.executable).parent / "weft"


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache that no other test sees."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def weft(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(WEFT), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def points(*arguments: str | Path) -> list[dict[str, Any]]:
    """The modules that ``weft points`` lists."""
    listed = json.loads(weft("points", *arguments, "--format", "json").stdout)
    assert listed["schema"] == 1
    for module in listed["modules"]:
        assert {"path", "build_id", "functions"} <= module.keys()
        for function in module["functions"]:
            assert {"name", "offset", "size", "source"} <= function.keys()
    modules: list[dict[str, Any]] = listed["modules"]
    return modules


def functions(*arguments: str | Path) -> list[dict[str, Any]]:
    (module,) = points(*arguments)
    found: list[dict[str, Any]] = module["functions"]
    return found


def large_file(name: str) -> Path:
    """A large program or library that may be installed."""
    if name == "node":
        found = shutil.which("node")
        candidates = [Path(found)] if found else []
    elif name == "libjvm":
        candidates = sorted(Path("/usr/lib/jvm").glob("*/lib/server/libjvm.so"))
    else:
        candidates = sorted(Path("/usr/lib/x86_64-linux-gnu").glob("libLLVM-*.so.1"))
    if not candidates:
        pytest.skip(f"no {name} here")
    return candidates[0].resolve()


def names_at(found: list[dict[str, Any]]) -> set[tuple[int, str]]:
    return {
        (function["offset"], name)
        for function in found
        for name in (function["name"], *function.get("aliases", ()))
    }


def readelf_functions(path: Path) -> set[tuple[int, str]]:
    """What readelf knows of ``.symtab`` and ``.dynsym``: address and name without version."""
    found = set()
    for line in run("readelf", "-sW", path).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[3] in ("FUNC", "IFUNC") and fields[6] != "UND":
            found.add((int(fields[1], 16), fields[7]))
    return found


@pytest.mark.parametrize("name", ["node", "libjvm", "libLLVM"])
def test_large_modules_against_readelf(name: str) -> None:
    path = large_file(name)
    listed = names_at(functions(path))
    missing = {
        (offset, symbol)
        for offset, symbol in readelf_functions(path)
        # readelf adds the version to dynamic symbols.
        if (offset, symbol) not in listed and (offset, symbol.split("@")[0]) not in listed
    }
    assert not missing


@pytest.mark.parametrize("name", ["node", "libjvm", "libLLVM"])
def test_large_modules_against_nm(name: str) -> None:
    path = large_file(name)
    listed = names_at(functions(path))
    exported = set()
    for line in run("nm", "-D", "--defined-only", "--without-symbol-versions", path).splitlines():
        address, kind, symbol = line.split()
        if kind in "TtWwi":
            exported.add((int(address, 16), symbol))
    assert exported
    known = {offset for offset, _ in readelf_functions(path)}
    # nm counts as weak functions what are weak objects.
    assert {entry for entry in exported if entry[0] in known} <= listed


def test_sizes_against_eu_readelf() -> None:
    tool = shutil.which("eu-readelf")
    if tool is None:
        pytest.skip("no elfutils here")
    path = large_file("libjvm")
    sizes = {function["offset"]: function["size"] for function in functions(path)}
    checked = 0
    for line in run(tool, "-s", path).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[3] == "FUNC" and fields[6] != "UNDEF" and int(fields[2]):
            assert sizes[int(fields[1], 16)] >= int(fields[2])
            checked += 1
    assert checked > 10_000


@pytest.mark.parametrize("path", ["/bin/bash", "/usr/bin/sqlite3"])
def test_stripped_programs_against_their_frames(path: str) -> None:
    if not Path(path).exists():
        pytest.skip(f"no {path} here")
    dump = run("readelf", "--debug-dump=frames", path)
    expected = {int(start, 16) for start in re.findall(r"FDE .*pc=([0-9a-f]+)\.\.", dump)}
    found = {function["offset"] for function in functions(path)}
    assert len(expected & found) >= 0.99 * len(expected)


def test_cached_answer_is_the_same() -> None:
    path = large_file("libjvm")
    first = weft("points", path, "--format", "json").stdout
    assert weft("points", path, "--format", "json").stdout == first
    assert weft("points", path, "--format", "json", "--no-cache").stdout == first


def test_lines(tmp_path: Path) -> None:
    program = compile_program("symbols/inlined.c", tmp_path / "inlined", "-g", "-O1")
    (outer,) = functions(program, "--function", "outer", "--lines")
    assert outer["source"].endswith("inlined.c:16")
    (outer,) = functions(program, "--function", "outer")
    assert outer["source"] is None
    assert "inlined.c:16" in weft("points", program, "--function", "outer", "--lines").stdout


def test_filters(tmp_path: Path) -> None:
    program = compile_program("symbols/names.cc", tmp_path / "names")
    found = functions(program, "--function", "zoo::Keeper::*")
    assert found
    assert all(function["demangled"].startswith("zoo::Keeper::") for function in found)
    assert functions(program, "--module", "nam*", "--function", "main")[0]["name"] == "main"
    assert points(program, "--module", "other") == []


def test_text(tmp_path: Path) -> None:
    program = compile_program("symbols/inlined.c", tmp_path / "inlined")
    lines = weft("points", program).stdout.splitlines()
    assert lines[0].startswith(f"{program}  build-id ")
    assert any(line.endswith("  outer") for line in lines)


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A process that is ready."""
    program = compile_program("symbols/sleeper.c", tmp_path / "sleeper", "-rdynamic")
    with subprocess.Popen(
        [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process, program
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0


def test_process(sleeper: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, program = sleeper
    modules = {Path(module["path"]).name: module for module in points(str(process.pid))}
    names = {function["name"] for function in modules["sleeper"]["functions"]}
    assert {"main", "wait_for_end"} <= names
    libc = {function["name"] for function in modules["libc.so.6"]["functions"]}
    assert {"malloc", "getchar"} <= libc
    vdso = modules["[vdso]"]
    assert any("clock_gettime" in function["name"] for function in vdso["functions"])
    assert vdso["build_id"]
    (only,) = points(str(process.pid), "--module", "sleeper")
    assert only["path"] == str(program)


def test_process_whose_program_is_deleted(sleeper: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, program = sleeper
    program.unlink()
    (module,) = points(str(process.pid), "--module", "*sleeper*")
    assert {"main", "wait_for_end"} <= {function["name"] for function in module["functions"]}


def test_process_in_another_mount_namespace(tmp_path: Path) -> None:
    """Its program is at a path that does not exist here."""
    program = compile_program("symbols/sleeper.c", tmp_path / "sleeper", "-rdynamic")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    script = f"mount -t tmpfs none {hidden} && cp {program} {hidden}/inside && exec {hidden}/inside"
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            pytest.skip("mount namespaces cannot be made here")
        assert not (hidden / "inside").exists()
        (module,) = points(str(process.pid), "--module", "inside")
        assert "wait_for_end" in {function["name"] for function in module["functions"]}
        process.stdin.close()
        assert process.wait(10) == 0


def test_module_that_is_only_in_memory(
    sleeper: tuple[subprocess.Popen[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary user cannot reach a deleted library but through the memory of the process."""
    from weft import _native
    from weft.program import live_modules as _live_modules

    process, _program = sleeper
    without_files = [{**module, "open_path": None} for module in _native.modules(process.pid)]
    monkeypatch.setattr(_native, "modules", lambda _pid: without_files)
    modules = _live_modules.live_modules(process.pid, use_cache=False)
    (module,) = (module for module in modules if module.name == "sleeper")
    assert module.image_bias
    assert [function.origin for function in module.find("wait_for_end")] == ["dynsym"]
    (libc,) = (module for module in modules if module.name == "libc.so.6")
    assert libc.find("malloc")


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ("/etc/passwd", 4, "does not begin as an ELF file does"),
        ("/no/such/file", 4, "cannot be opened"),
        ("4194999", 3, "process 4194999 does not exist"),
    ],
)
def test_errors(target: str, code: int, message: str) -> None:
    done = weft("points", target, code=code)
    assert message in done.stderr
    assert done.stdout == ""
