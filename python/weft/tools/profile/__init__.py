"""Where the instructions go: exact counts of blocks, lines, functions and calls.

What a function executed itself, and how often it was called from where, is exact. What it cost
with all that it called is attributed by these calls: see :mod:`weft.tools.callgraph`.
"""

from weft.tools.profile.changes import Change, diff
from weft.tools.profile.reader import profile
from weft.tools.profile.result import (
    NOTE,
    CallSite,
    Profile,
    ProfiledBlock,
    ProfiledFunction,
    ProfiledModule,
    SourceLine,
)

__all__ = [
    "NOTE",
    "CallSite",
    "Change",
    "Profile",
    "ProfiledBlock",
    "ProfiledFunction",
    "ProfiledModule",
    "SourceLine",
    "diff",
    "profile",
]
