"""Speedscope: a JSON file for the viewer at speedscope.app."""

from __future__ import annotations

from typing import BinaryIO

from weft.export.profile.weighed import by_function
from weft.export.stacks import speedscope
from weft.tools.profile import Profile


def write(file: BinaryIO, profile: Profile) -> None:
    """Write the stacks as samples that weigh as many instructions as they cost."""
    speedscope.write(file, by_function(profile))
