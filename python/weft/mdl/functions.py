"""What code can call that is part of the language, and how many arguments each takes."""

__all__ = ["FUNCTIONS"]

FUNCTIONS = {
    **dict.fromkeys(["min", "max", "udiv", "urem", "shr", "ult", "ule", "ugt", "uge"], (2,)),
    **dict.fromkeys(["load8", "load16", "load32", "load64", "loads8", "loads16", "loads32"], (1,)),
    "str": (1, 2),
    "stack": (0, 1),
}
"""The same in MDL, in one-liners and in snippets."""
