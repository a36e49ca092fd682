"""pprof: what ``go tool pprof`` and many services read."""

from __future__ import annotations

from typing import BinaryIO

from weft.export.profile.weighed import by_line
from weft.export.stacks import pprof
from weft.tools.profile import Profile


def write(file: BinaryIO, profile: Profile) -> None:
    """Write the stacks with their source lines; the unit is one instruction."""
    pprof.write(file, by_line(profile))
