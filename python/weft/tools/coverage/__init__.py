"""Coverage: which functions, lines and branches of a program were executed, and which were not.

Everything is told from the machine code that was executed and the debug information. A line counts
as gcov counts it: how often control came to it from another line, or went round in a loop on it.
"""

from weft.tools.coverage.changes import Change, diff
from weft.tools.coverage.contexts import Place, contexts_at, in_context
from weft.tools.coverage.covering import cover
from weft.tools.coverage.limit import check_limit, figure
from weft.tools.coverage.merging import functions_only, merge
from weft.tools.coverage.parts import (
    Branch,
    Context,
    Executed,
    FileCoverage,
    FunctionCoverage,
    ModuleCoverage,
    Share,
)
from weft.tools.coverage.result import Coverage

__all__ = [
    "Branch",
    "Change",
    "Context",
    "Coverage",
    "Executed",
    "FileCoverage",
    "FunctionCoverage",
    "ModuleCoverage",
    "Place",
    "Share",
    "check_limit",
    "contexts_at",
    "cover",
    "diff",
    "figure",
    "functions_only",
    "in_context",
    "merge",
]
