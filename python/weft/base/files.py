"""Files that weft writes: complete under their name, or not there at all.

A file is written beside the one that it replaces and renamed when it is complete. So a command
that fails, is interrupted or is killed leaves an existing file as it was.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from weft.errors import BadFile

__all__ = ["FULL", "MOST_TEXT", "Draft", "cache_folder", "cannot_write", "check", "read"]

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
"""Failures of a disk, whatever writes to it."""

MOST_TEXT = 16 << 20
"""The most bytes of what people write."""

_NOT_BESIDE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV, errno.ETXTBSY)
"""Why a file cannot be replaced that may still be written to: its folder is not the user's, or it
is a mount point."""
_LONGEST = 200
"""How much of a file's name its draft has: names end at 255 bytes."""
_LINKS = 40
"""How many links the kernel follows."""


def cache_folder(kind: str) -> Path:
    """Return where the user's cache has what is of a kind."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return folder / "weft" / kind


def cannot_write(name: str, error: OSError) -> BadFile:
    """Return the error that says why a file or stream cannot be written."""
    advice = ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "make room there, or write to another place"
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        advice = "choose a file in a folder that you may write to"
    return BadFile(f"cannot write {name}", error.strerror or str(error), advice)


class _Place:
    """Where a path leads."""

    def __init__(self, path: Path) -> None:
        self.descriptor = _own_descriptor(path)
        self.status: os.stat_result | None = None
        with suppress(FileNotFoundError):
            # The kernel follows the links here: it refuses those that others leave in /tmp.
            self.status = path.stat()
        self.path = path.resolve()
        if self.status is not None and stat.S_ISDIR(self.status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    @property
    def is_special(self) -> bool:
        """Whether it is a device, a pipe or a socket: there is nothing to replace."""
        return self.status is not None and not stat.S_ISREG(self.status.st_mode)

    def beside(self, is_private: bool) -> tuple[int, Path]:
        """Create a file beside it, of the same owner and mode: its descriptor and its path."""
        start = os.fsdecode(os.fsencode(self.path.name)[:_LONGEST])
        path = self.path.with_name(f"{start}.{os.urandom(4).hex()}.part")
        mode = 0o600 if is_private or self.status else 0o666
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        if self.status is not None:
            with suppress(OSError):
                os.fchown(descriptor, self.status.st_uid, self.status.st_gid)
            if not is_private:
                os.fchmod(descriptor, stat.S_IMODE(self.status.st_mode) & 0o777)
        return descriptor, path

    def may_be_written(self) -> bool:
        """Whether a file that exists may be written to where it is."""
        return self.status is not None and os.access(self.path, os.W_OK)


def _own_descriptor(path: Path) -> int | None:
    """Return the descriptor that a path like ``/dev/stdout`` or ``/dev/fd/3`` stands for.

    It is written to as it is: opened once more, a file would be written from its beginning.
    """
    for _ in range(_LINKS):
        if not path.is_symlink():
            break
        if path.name.isdecimal() and path.parent.resolve() == Path(f"/proc/{os.getpid()}/fd"):
            return int(path.name)
        path = path.parent / path.readlink()
    return None


def check(path: str | os.PathLike[str]) -> None:
    """Find out whether a file can be written, before anything is done for it."""
    try:
        place = _Place(Path(path))
        if place.descriptor is not None:
            os.fstat(place.descriptor)
        elif place.is_special:
            # Not opened: the reader of a pipe would see its end.
            if not os.access(place.path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        else:
            Draft(path).discard()
    except OSError as error:
        raise cannot_write(os.fspath(path), error) from error


def read(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """Read a file of at most so many bytes; of a device, which may never end, :data:`MOST_TEXT`.

    Raises :class:`OSError`, also if it is larger.
    """
    with Path(path).open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            most = MOST_TEXT
        content = file.read(-1 if most is None else most + 1)
    if most is not None and len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", os.fspath(path))
    return content


class Draft:
    """A file that takes its name when it is complete.

    As a context manager it gives the file to write to; when the block has failed, what was there
    before is there still. A device, a pipe and weft's own standard output are written to directly.
    """

    def __init__(self, path: str | os.PathLike[str], *, is_private: bool = False) -> None:
        self._path = Path(path)
        self._beside: Path | None = None
        self._is_direct = False
        self.file: BinaryIO
        """What to write to."""
        try:
            self._open(is_private)
        except OSError as error:
            raise cannot_write(str(self._path), error) from error

    def _open(self, is_private: bool) -> None:
        self._place = place = _Place(self._path)
        if place.descriptor is not None or place.is_special:
            self._is_direct = True
            if place.descriptor is not None:
                descriptor = os.dup(place.descriptor)
            else:
                descriptor = os.open(place.path, os.O_WRONLY | os.O_CLOEXEC)
            self.file = os.fdopen(descriptor, "wb")
            return
        try:
            descriptor, self._beside = place.beside(is_private)
        except OSError as error:
            if error.errno not in _NOT_BESIDE or not place.may_be_written():
                raise
            from tempfile import TemporaryFile

            self.file = TemporaryFile()  # noqa: SIM115
            return
        self.file = os.fdopen(descriptor, "w+b")

    def complete(self) -> None:
        """Give the file its name: nothing more is to be written."""
        try:
            self.file.flush()
            if not self._is_direct:
                self._replace()
            self.file.close()
        except OSError as error:
            self.discard()
            if isinstance(error, BrokenPipeError):
                raise
            raise cannot_write(str(self._path), error) from error

    def discard(self) -> None:
        """Remove it; what was there before stays."""
        with suppress(OSError):
            self.file.close()
        if self._beside is not None:
            with suppress(OSError):
                self._beside.unlink()
            self._beside = None

    def _replace(self) -> None:
        if self._beside is not None:
            try:
                self._beside.replace(self._place.path)
                self._beside = None
                return
            except OSError as error:
                if error.errno not in _NOT_BESIDE or not self._place.may_be_written():
                    raise
        self.file.seek(0)
        with self._place.path.open("r+b") as target:
            from shutil import copyfileobj

            copyfileobj(self.file, target)
            target.truncate()
        self.discard()

    def __enter__(self) -> BinaryIO:
        return self.file

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.complete()
            return
        self.discard()
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise cannot_write(str(self._path), error) from error
