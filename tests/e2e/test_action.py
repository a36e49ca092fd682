"""The action of GitHub, its scripts run as a runner does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.action import Action, run_scripts
from tests.e2e.harness import need
from tests.toolchain import ROOT
from weft.export.coverage.json import read

SOURCE = """
int used(int x) { return x + 1; }
int unused(int x) { return x + 2; }
int main(void) { return used(-1); }
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    need("gcc")
    (tmp_path / "program.c").write_text(SOURCE)
    subprocess.run(["gcc", "-g", "-o", "program", "program.c"], cwd=tmp_path, check=True)
    return tmp_path


def run(folder: Path, **inputs: str) -> tuple[int, dict[str, str], str]:
    action = Action.read(ROOT / "actions" / "cov" / "action.yml")
    tools = Path(sys.executable).parent
    return run_scripts(
        action,
        folder,
        # Nothing is installed from the network.
        {"package": "", **{name.replace("_", "-"): value for name, value in inputs.items()}},
        {"PATH": f"{tools}:{os.environ['PATH']}"},
    )


def test_reports_are_written(project: Path) -> None:
    code, outputs, summary = run(
        project, command="./program\necho well", module="program\nld-linux*", context="job"
    )
    assert (code, outputs) == (0, {"exit-code": "0", "folder": "weft-coverage"})
    folder = project / "weft-coverage"
    found = read(folder / "coverage.json")
    assert [context.name for context in found.contexts] == ["job"]
    details = {module.name: module.is_detailed for module in found.modules}
    assert details["program"] and details["ld-linux-x86-64.so.2"] and not details["bash"]
    names = {one.get("name") for one in ElementTree.parse(folder / "cobertura.xml").iter("method")}
    assert {"used", "unused", "main"} <= names
    assert "FNDA:0,unused" in (folder / "lcov.info").read_text()
    assert "<html" in (folder / "index.html").read_text()
    results = json.loads((folder / "not-executed.sarif").read_text())["runs"][0]["results"]
    assert "unused was not executed" in {result["message"]["text"] for result in results}
    assert "### Coverage" in summary and "NOT EXECUTED" in summary


@pytest.mark.parametrize(
    ("command", "limit", "code"),
    [
        ("./program", "99", 6),
        ("./program", "50", 0),
        ("./program; false; echo not reached", "50", 1),
        ("./program; exit 7", "99", 7),
    ],
)
def test_the_result_is_that_of_the_command_and_the_limit(
    project: Path, command: str, limit: str, code: int
) -> None:
    assert run(project, command=command, fail_under=limit)[0] == code
    # What there is of reports is there, so that it can be uploaded.
    assert (project / "weft-coverage" / "lcov.info").exists()


def test_an_input_is_never_code_but_the_command(project: Path) -> None:
    nasty = "x'; touch harmed; echo '$(touch harmed)`touch harmed`"
    code, _, _ = run(project, command="./program", context=nasty, module=nasty, output="a b")
    assert code == 0
    assert not (project / "harmed").exists()
    assert read(project / "a b" / "coverage.json").contexts[0].name == nasty
