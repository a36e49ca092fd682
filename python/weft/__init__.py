"""weft weaves measurement into running native programs, from Python."""

from weft import errors
from weft._native import __version__
from weft.session import Session, attach, run

__all__ = ["Session", "__version__", "attach", "errors", "run"]
