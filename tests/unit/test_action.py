"""The action of GitHub is what GitHub takes."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.action import EXPRESSION, Action
from tests.toolchain import ROOT

PATH = ROOT / "actions" / "cov" / "action.yml"


@pytest.fixture
def action() -> Action:
    return Action.read(PATH)


def test_it_has_what_an_action_has_and_nothing_else(action: Action) -> None:
    """As GitHub's metadata syntax for actions says."""
    known = {"name", "description", "author", "branding", "inputs", "outputs", "runs"}
    assert {"name", "description", "runs"} <= action.document.keys() <= known
    assert action.document["runs"].keys() == {"using", "steps"}
    assert action.document["runs"]["using"] == "composite"
    for name, one in action.document["inputs"].items():
        assert re.fullmatch(r"[a-z_][a-z0-9_-]*", name)
        assert {"description"} < one.keys() <= {"description", "required", "default"}
        # A number or a truth value would become a text in a way of its own.
        assert all(isinstance(one[key], str) for key in ("description", "default") if key in one)
        assert one.get("required", False) is not ("default" in one)
    for one in action.document["outputs"].values():
        assert one.keys() == {"description", "value"}


def test_every_step_is_a_script_or_an_action(action: Action) -> None:
    for step in action.steps:
        assert ("run" in step) is not ("uses" in step)
        known = {"name", "id", "if", "env"} | (
            {"run", "shell"} if "run" in step else {"uses", "with"}
        )
        assert step.keys() <= known
        if "run" in step:
            assert step["shell"] == "bash"
        else:
            assert re.fullmatch(r"[\w-]+/[\w/-]+@v\d+", step["uses"])


def test_what_is_used_is_there_and_what_is_there_is_used(action: Action) -> None:
    inputs, outputs = action.names()
    assert inputs == action.document["inputs"].keys()
    steps = {step["id"]: step["run"] for step in action.steps if "id" in step}
    assert outputs
    for step, output in outputs:
        assert f"{output}=" in steps[step]


def test_scripts_are_well_formed_and_no_input_is_part_of_one(action: Action) -> None:
    for step in action.steps:
        if "run" in step:
            assert not EXPRESSION.search(step["run"])
            done = subprocess.run(
                ["bash", "-n", "-c", step["run"]], capture_output=True, check=False
            )
            assert done.returncode == 0, done.stderr
            names = set(re.findall(r"\$\{?([A-Z_]+)", step["run"]))
            given = {"GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", *step.get("env", {})}
            assert names <= given
