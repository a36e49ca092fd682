"""What a target may be too busy for just now: it runs on for a moment, and it is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from weft.errors import Timeout

__all__ = ["patiently"]

_Result = TypeVar("_Result")

_RETRIES, _REST = 3, 0.1
"""How often to try again, each of which takes seconds, and how many seconds later."""


def patiently(attempt: Callable[[], _Result]) -> _Result:
    """Do something for which all threads of the target have to come to rest."""
    for _ in range(_RETRIES):
        try:
            return attempt()
        except Timeout:
            # It stood still for seconds, and may be less busy when it has run on.
            time.sleep(_REST)
    return attempt()
