"""Speedscope: a JSON file for the viewer at speedscope.app.

The format is that of https://www.speedscope.app/file-format-schema.json.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

from weft import __version__
from weft.export.metrics.values import readable
from weft.tools.profile import Profile

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write(file: BinaryIO, profile: Profile) -> None:
    """Write the stacks as samples that weigh as many instructions as they cost."""
    stacks = profile.graph.stacks()
    numbers: dict[int, int] = {}
    for stack in stacks:
        for frame in stack.frames:
            numbers.setdefault(frame, len(numbers))
    name = readable(" ".join(profile.command))
    weights = [stack.cost for stack in stacks]
    document = {
        "$schema": _SCHEMA,
        "exporter": f"weft {__version__}",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(profile, frame) for frame in numbers]},
        "profiles": [
            {
                "type": "sampled",
                "name": f"{name}: instructions",
                "unit": "none",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": [[numbers[frame] for frame in stack.frames] for stack in stacks],
                "weights": weights,
            }
        ],
    }
    file.write(json.dumps(document).encode() + b"\n")


def _frame(profile: Profile, frame: int) -> dict[str, Any]:
    found: dict[str, Any] = {"name": readable(profile.frame_name(frame))}
    if frame >= 0:
        function = profile.functions[frame]
        found["file"] = readable(function.file or profile.modules[function.module].path)
        if function.line:
            found["line"] = function.line
    return found
