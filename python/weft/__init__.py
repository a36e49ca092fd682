"""weft weaves measurement into running native programs, from Python."""

from weft import errors
from weft._native import __version__

__all__ = ["__version__", "errors"]
