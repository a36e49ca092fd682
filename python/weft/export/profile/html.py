"""An HTML page with a flame graph."""

from __future__ import annotations

from typing import BinaryIO

from weft.export.profile.weighed import by_function
from weft.export.stacks import html
from weft.tools.profile import Profile


def write(file: BinaryIO, profile: Profile) -> None:
    """Write the page, in which boxes are as wide as the instructions that they cost."""
    html.write(file, by_function(profile))
