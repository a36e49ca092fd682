"""Reads an action of GitHub, and runs those of its steps that are scripts."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_NAME = re.compile(r"inputs\.([\w-]+)|steps\.([\w-]+)\.outputs\.([\w-]+)")


@dataclass
class Action:
    """An action, as its file has it."""

    document: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Action:
        return cls(yaml.safe_load(path.read_text()))

    @property
    def steps(self) -> list[dict[str, Any]]:
        return list(self.document["runs"]["steps"])

    def names(self) -> tuple[set[str], set[tuple[str, str]]]:
        """The inputs and the outputs of steps that expressions use."""
        text = yaml.safe_dump(self.document)
        found = [name for one in EXPRESSION.findall(text) for name in _NAME.findall(one)]
        return {name for name, _, _ in found if name}, {(a, b) for _, a, b in found if a}


def run_scripts(
    action: Action, folder: Path, inputs: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[int, dict[str, str], str]:
    """Run the scripts of an action as a runner does: the exit code, outputs, and the summary."""
    values = {
        f"inputs.{name}": inputs.get(name, one.get("default", ""))
        for name, one in action.document["inputs"].items()
    }
    output, summary = folder / "github-output", folder / "github-summary"
    for file in (output, summary):
        file.write_text("")
    outputs: dict[str, str] = {}
    for step in action.steps:
        if "run" not in step or not _is_wanted(step.get("if"), values):
            continue
        own = {
            name: EXPRESSION.sub(lambda match: values[match[1]], text)
            for name, text in step.get("env", {}).items()
        }
        done = subprocess.run(
            # What GitHub runs for `shell: bash`.
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
            cwd=folder,
            env={
                **os.environ,
                **environment,
                **own,
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(summary),
            },
            check=False,
        )
        for line in output.read_text().splitlines():
            name, _, value = line.partition("=")
            outputs[name] = value
            if "id" in step:
                values[f"steps.{step['id']}.outputs.{name}"] = value
        if done.returncode:
            return done.returncode, outputs, summary.read_text()
    return 0, outputs, summary.read_text()


def _is_wanted(condition: str | None, values: Mapping[str, str]) -> bool:
    """Whether a condition holds: ``NAME == 'TEXT'`` or ``NAME != 'TEXT'``."""
    if condition is None:
        return True
    match = re.fullmatch(r"\$\{\{ ([\w.-]+) (==|!=) '(.*)' \}\}", condition)
    assert match, condition
    return (values[match[1]] == match[3]) == (match[2] == "==")
