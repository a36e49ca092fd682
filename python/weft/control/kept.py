"""Clones that are kept in files, so that what is executed again need not be translated again."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from weft import _native
from weft.base.files import cache_folder
from weft.errors import InvalidArgument, WeftError

__all__ = ["SYSTEM", "KeptClone", "KeptClones", "kept_clones", "open_folder"]

_FOLDER = "WEFT_CLONES"
_LIMIT = "WEFT_CLONES_LIMIT"
_OFF = "off"
_DEFAULT_LIMIT = 1 << 30
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
SYSTEM = Path("/var/cache/weft/clones")
"""The folder that root prepares for all users."""


@dataclass(frozen=True)
class KeptClone:
    """What was translated of one file, kept for the next time that it is executed."""

    path: Path
    """The file that it is kept in."""
    original: Path
    """The program or library that it is the clone of."""
    size: int
    """How much of the disk it takes, in bytes."""
    used: float
    """When it was made, or last used: seconds since 1970, exact to the hour."""
    blocks: int
    """How many blocks of code it has."""
    code: int
    """How many bytes of clone those are."""
    is_whole: bool
    """Whether it is what was written: what is damaged, or of another version, is not used."""


class KeptClones:
    """A folder of clones that are kept in files.

    Only its owner may be able to write to it: what is in it is executed. It is used by
    :func:`weft.run` with the clone weaver, unless that is told otherwise.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        limit: int = _DEFAULT_LIMIT,
        *,
        is_for_all: bool = False,
    ) -> None:
        """Open a folder, or make it.

        ``limit`` is how many bytes may be kept; beyond it, that goes which was not used for the
        longest time. ``is_for_all`` makes a folder that others may read.
        """
        self.native = _native.CloneFolder.open(Path(path), limit, SYSTEM, is_for_all)

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.native.path

    def entries(self) -> list[KeptClone]:
        """Return what is kept, that first which was not used for the longest time."""
        return [
            KeptClone(path, original, size, used, blocks, code, is_whole)
            for path, size, used, blocks, code, is_whole, original in self.native.entries()
        ]

    def clear(self) -> tuple[int, int]:
        """Delete everything, and return how many files that were, and how many bytes.

        Programs that run from what is deleted go on.
        """
        return self.native.clear()

    def prepare(self, path: str | os.PathLike[str]) -> int:
        """Translate a program or library before it is executed; return how many blocks it has.

        What cannot be found without executing it is translated when it is executed, as ever.
        """
        return self.native.prepare(Path(path))


def kept_clones() -> KeptClones:
    """Open the folder where clones are kept unless told otherwise, for who wants to look at it."""
    path = _default_folder()
    if path is None:
        raise InvalidArgument(
            "clones are not kept", f"{_FOLDER} is {_OFF}", "unset it, or have it name a folder"
        )
    return KeptClones(path, _limit())


def _default_folder() -> Path | None:
    """Return where clones are kept unless told otherwise; nothing if they are not."""
    wanted = os.environ.get(_FOLDER, "")
    if wanted.lower() == _OFF:
        return None
    if wanted:
        if not Path(wanted).is_absolute():
            raise InvalidArgument(
                f"{_FOLDER} is {wanted!r}",
                "it has to be a whole path, or 'off'",
            )
        return Path(wanted)
    try:
        return cache_folder("clones")
    except RuntimeError:  # there is no home
        return None


def _limit() -> int:
    """Return how many bytes may be kept."""
    text = os.environ.get(_LIMIT, "")
    if not text:
        return _DEFAULT_LIMIT
    match = re.fullmatch(r"(\d{1,12})([KMG]?)", text.strip().upper())
    if match is None:
        raise InvalidArgument(f"{_LIMIT} is {text!r}", "that is no size", "write 512M, or 2G")
    return int(match[1]) * _FACTORS[match[2]]


def open_folder() -> KeptClones | None:
    """Open the folder where clones are kept unless told otherwise; nothing if they are not kept.

    Without one, everything is translated when it is executed. So a folder that cannot be used is
    an error only where somebody has named it.
    """
    path = _default_folder()
    if path is None:
        return None
    try:
        return KeptClones(path, _limit())
    except WeftError:
        if os.environ.get(_FOLDER):
            raise
        return None
