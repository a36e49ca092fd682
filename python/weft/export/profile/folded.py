"""Folded stacks: a line for each stack of calls."""

from __future__ import annotations

from typing import BinaryIO

from weft.export.profile.weighed import by_function
from weft.export.stacks import folded
from weft.tools.profile import Profile


def write(file: BinaryIO, profile: Profile) -> None:
    """Write the stacks, each with its instructions."""
    folded.write(file, by_function(profile))
