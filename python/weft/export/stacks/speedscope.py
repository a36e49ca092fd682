"""Speedscope: a JSON file for the viewer at speedscope.app.

The format is that of https://www.speedscope.app/file-format-schema.json.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

from weft import __version__
from weft.base.numbers import readable
from weft.model.weighed import WeighedFunction, WeighedStacks

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_UNITS = {"bytes": "bytes", "ns": "nanoseconds"}


def write(file: BinaryIO, stacks: WeighedStacks) -> None:
    """Write the stacks as samples with their weights."""
    stacks = stacks.positive()
    numbers: dict[WeighedFunction, int] = {}
    for stack in stacks.stacks:
        for frame in stack.frames:
            numbers.setdefault(frame.function, len(numbers))
    name = readable(stacks.title)
    # There is no other place for what one must know.
    notes = "".join(f"; {note}" for note in stacks.notes)
    doubt = "" if stacks.status == "exact" else f" ({stacks.status})"
    document = {
        "$schema": _SCHEMA,
        "exporter": f"weft {__version__}",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(function) for function in numbers]},
        "profiles": [
            {
                "type": "sampled",
                "name": readable(f"{name}: {stacks.kind}{doubt}{notes}"),
                "unit": _UNITS.get(stacks.unit, "none"),
                "startValue": 0,
                "endValue": stacks.total,
                "samples": [
                    [numbers[frame.function] for frame in stack.frames] for stack in stacks.stacks
                ],
                "weights": [stack.weight for stack in stacks.stacks],
            }
        ],
    }
    file.write(json.dumps(document).encode() + b"\n")


def _frame(function: WeighedFunction) -> dict[str, Any]:
    found: dict[str, Any] = {"name": readable(function.name)}
    if function.module is not None:
        found["file"] = readable(function.file or function.module.path)
        if function.line:
            found["line"] = function.line
    return found
