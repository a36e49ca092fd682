"""Code that can be executed but not read: what the clone cannot follow is said."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clone import cases, outcome

Build = Callable[[str], Path]

HERE = {"vsyscall", "keys_in_a_handler"}
"""Cases that stay in their clone; so do all that the program has a fault in."""

CASES = cases("execute_only.c")
STAYING = [case for case in CASES if case in HERE or case.startswith("fault_")]
LEAVING = [case for case in CASES if case not in STAYING]

pytestmark = pytest.mark.skipif(
    " ospke " not in Path("/proc/cpuinfo").read_text(), reason="the processor has no keys"
)


def weft_run(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weft", *map(str, words)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)


def counted(program: Path, case: str, folder: Path) -> tuple[dict[str, Any], str]:
    """The metric of what a case calls before and after, and what weft says."""
    alone = outcome([program, case])
    assert alone.status == 0 and f"{case}: well" in alone.stdout, alone.stderr
    options = ["-m", f"calls@/Code/{program.name}/counted", "--format", "json", "-o", "out.json"]
    done = weft_run(folder, "run", "--weaver", "clone", *options, "--", program, case)
    assert (done.returncode, done.stdout) == (0, alone.stdout), done.stderr
    [metric] = json.loads((folder / "out.json").read_text())["totals"]
    return metric, done.stderr


@pytest.mark.parametrize("case", LEAVING)
def test_a_program_leaves_and_its_values_are_incomplete(
    build: Build, case: str, tmp_path: Path
) -> None:
    metric, said = counted(build("clone_execute_only"), case, tmp_path)
    assert (metric["value"], metric["status"]) == (10, "incomplete")
    assert "has left its clone: the clone engine cannot read the code at 0x" in said


@pytest.mark.parametrize("case", STAYING)
def test_a_program_stays_and_its_values_are_exact(build: Build, case: str, tmp_path: Path) -> None:
    if "vsyscall" in case and " --xp " not in Path("/proc/self/maps").read_text():
        pytest.skip("the kernel has no such page")
    metric, said = counted(build("clone_execute_only"), case, tmp_path)
    assert (metric["value"], metric["status"]) == (20, "exact")
    assert "left its clone" not in said


@pytest.mark.parametrize("tool", ["profile", "cov"])
def test_tools_say_so(build: Build, tool: str, tmp_path: Path) -> None:
    done = weft_run(tmp_path, tool, "--", build("clone_execute_only"), "by_mprotect")
    assert done.returncode == 0 and "by_mprotect: well\n" in done.stdout
    assert "the clone engine cannot read the code at 0x" in done.stderr
    assert "missing in part: it has left its clone" in done.stderr
