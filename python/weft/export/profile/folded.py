"""Folded stacks: a line for each stack of calls, which flame graph tools read."""

from __future__ import annotations

from typing import BinaryIO

from weft.tools.profile import Profile


def write(file: BinaryIO, profile: Profile) -> None:
    """Write the stacks, the outermost function first, each with its instructions."""
    lines = []
    for stack in profile.graph.stacks():
        names = ";".join(_name(profile.frame_name(frame)) for frame in stack.frames)
        lines.append(f"{names} {stack.cost}\n")
    file.write("".join(sorted(lines)).encode(errors="replace"))


def _name(name: str) -> str:
    """A name without what ends a name, or a line, in this format."""
    return " ".join(name.replace(";", ":").split())
