"""Which modules and functions are looked at, and their symbols."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from weft import _native
from weft.errors import BadFile
from weft.model.flow import NO_FILE, CodeModule
from weft.model.program import Module

__all__ = ["chooser", "is_startup", "matches", "open_symbols"]

_STARTUP = {
    "__do_global_dtors_aux",
    "__libc_csu_fini",
    "__libc_csu_init",
    "_dl_relocate_static_pie",
    "_fini",
    "_init",
    "_start",
    "deregister_tm_clones",
    "frame_dummy",
    "register_tm_clones",
}


def chooser(
    paths: Iterable[str],
    patterns: Sequence[str],
    program: str | None,
    directory: str | os.PathLike[str] | None = None,
) -> Callable[[str], bool]:
    """Return the function that says whether a module is to be looked at in detail.

    ``paths`` are those of the modules that are known; see :func:`cover`.
    """
    if patterns:
        return lambda path: path != NO_FILE and matches(path, patterns)
    root = Path(directory or Path.cwd()).resolve()
    # What somebody works on is where they are; if nothing is, they want to know of the program.
    is_here = any(root in Path(path).parents for path in paths)
    other = None if is_here else program
    return lambda path: root in Path(path).parents or path == other


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether the path of a module, or a name of it, is like one of the patterns."""
    module = Module(path)
    return any(fnmatchcase(path, one) or module.is_called(one) for one in patterns)


def open_symbols(
    module: CodeModule, root: str | None = None, open_path: str | None = None
) -> _native.ModuleSymbols:
    """Read the functions of a module, if its file is still the one that was executed."""
    if open_path is None and root is not None:
        open_path = f"{root}{module.path}"
    symbols = _native.ModuleSymbols.open(module.path, open_path=open_path, root=root)
    if module.build_id is not None and symbols.build_id != module.build_id:
        raise BadFile(f"{module.path} has changed since it was executed")
    return symbols


def is_startup(name: str) -> bool:
    """Whether a function is one that compilers add to every program, and nobody has written."""
    return name in _STARTUP
