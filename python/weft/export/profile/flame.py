"""An SVG flame graph."""

from __future__ import annotations

from typing import BinaryIO

from weft.export.profile.weighed import by_function
from weft.export.stacks import flame
from weft.tools.profile import Profile


def write(file: BinaryIO, profile: Profile) -> None:
    """Write the picture, in which boxes are as wide as the instructions that they cost."""
    flame.write(file, by_function(profile))
