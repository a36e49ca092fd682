"""The typed face of the compiled core."""

import os
from collections.abc import Sequence
from typing import Literal, TypeAlias

__version__: str

# --- symbols: the functions of a module -----------------------------------------------------------

_FunctionKind: TypeAlias = Literal["function", "ifunc", "plt"]

_FunctionRow: TypeAlias = tuple[str, str | None, int, int, _FunctionKind, str, str, str, list[str]]
"""name, demangled, offset, size, kind, binding, visibility, origin, aliases."""

_FrameRow: TypeAlias = tuple[str | None, str | None, int | None, int | None, bool]
"""function, file, line, column, inlined."""

class ModuleSymbols:
    """The functions of one module, sorted by offset and numbered from 0.

    An offset is an address as the file states it: adding the load bias gives the address in a
    process. Calls work on many functions at once and let other Python threads run meanwhile.
    """

    @staticmethod
    def open(
        path: str | os.PathLike[str],
        *,
        open_path: str | os.PathLike[str] | None = None,
        root: str | os.PathLike[str] | None = None,
        use_cache: bool = True,
    ) -> ModuleSymbols:
        """Reads a file, or what the cache knows about it.

        ``path`` is what the program that has loaded it calls it; ``open_path`` is what to open from
        here, and ``root`` where debug files are looked for, when the program lives in another mount
        namespace (``/proc/PID/root``). Raises :class:`weft.errors.BadFile`.
        """

    @staticmethod
    def from_image(
        path: str | os.PathLike[str],
        data: bytes,
        *,
        bias: int | None = None,
        root: str | os.PathLike[str] | None = None,
        use_cache: bool = True,
    ) -> ModuleSymbols:
        """Reads bytes that have been read before: a file's, or with ``bias`` a module's segments
        as the loader has placed them in memory, beginning with the lowest."""

    @property
    def path(self) -> str: ...
    @property
    def build_id(self) -> str | None:
        """In hexadecimal digits."""

    @property
    def problems(self) -> list[str]:
        """What could not be read, in words; what could be read is there all the same."""

    @property
    def from_cache(self) -> bool: ...
    def __len__(self) -> int: ...
    def select(self, names: str = "*") -> list[int]:
        """The functions one of whose names (the linker's, demangled, an alias) matches."""

    def find(self, name: str) -> list[int]:
        """The functions of exactly this name; a demangled name may lack its parameters."""

    def containing(self, offsets: Sequence[int]) -> list[int | None]:
        """The functions that contain offsets; debug information is not read."""

    def at(self, offset: int) -> tuple[int | None, list[_FrameRow]]:
        """The function that contains an offset, and the source lines there, innermost first."""

    def rows(self, indexes: Sequence[int]) -> list[_FunctionRow]:
        """What is known about functions."""

    def sources(self, indexes: Sequence[int]) -> list[tuple[str, int] | None]:
        """The source file and line (0 when not known) of functions, from the debug information."""

    def source_files(self) -> list[str]:
        """All source files that functions are written in."""

    def in_source(self, file: int) -> list[int]:
        """The functions of one source file, by its place in :meth:`source_files`."""

    def json(self, indexes: Sequence[int], *, lines: bool = False) -> bytes:
        """Functions as JSON objects separated by commas; ``lines`` fills in their ``source``."""

# --- end of symbols -------------------------------------------------------------------------------
