"""Libraries that only some exporters need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weft.errors import WeftError


@contextmanager
def needed(extra: str, purpose: str) -> Iterator[None]:
    """Say how to install the extra when what is imported inside is not there."""
    try:
        yield
    except ImportError as error:
        raise WeftError(
            f"{purpose} needs a library that is not installed",
            str(error),
            f"pip install 'weft[{extra}]'",
        ) from error
