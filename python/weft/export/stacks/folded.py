"""Folded stacks: a line for each stack of calls, which flame graph tools read."""

from __future__ import annotations

from collections import Counter
from typing import BinaryIO

from weft.model.weighed import WeighedStack, WeighedStacks


def write(file: BinaryIO, stacks: WeighedStacks) -> None:
    """Write the stacks, the outermost function first, each with its weight.

    What one must know of the weights stands above them. The format has no comments, but its readers
    leave out what does not end with a number.
    """
    stacks = stacks.positive()
    weights: Counter[str] = Counter()
    for stack in stacks.stacks:
        weights[_folded(stack)] += stack.weight
    notes = [f"# ({_one_line(note)})\n" for note in stacks.notes]
    lines = sorted(f"{names} {weight}\n" for names, weight in weights.items())
    file.write("".join([*notes, *lines]).encode(errors="replace"))


def _folded(stack: WeighedStack) -> str:
    return ";".join(_one_line(frame.function.name.replace(";", ":")) for frame in stack.frames)


def _one_line(text: str) -> str:
    """A text without what ends a line, or a name, in this format."""
    return " ".join(text.split())
