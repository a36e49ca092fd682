"""The modules of a running process.

Nothing is attached to: this needs the permission to read ``/proc/PID/maps`` and memory.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from weft import _native
from weft.errors import WeftError
from weft.model.program import Module

__all__ = ["LastingModules", "Paths", "live_modules"]

VDSO = "[vdso]"
"""The library that the kernel maps into every process; there is no file behind it."""


Paths: TypeAlias = "dict[tuple[str, int], str]"
"""Under which paths modules are known, by their file and where they start."""


def live_modules(
    pid: int, *, use_cache: bool = True, paths: Paths | None = None, may_end: bool = False
) -> list[Module]:
    """Return the modules that a process has mapped code from, in the order of their addresses.

    A file may be renamed, removed or replaced while a process runs it. With ``paths``, which is
    added to, a module keeps the path that it was first seen with. A process that ``may_end`` before
    its modules are read has its files read where weft sees them, if it sees the same.
    """
    root = f"/proc/{pid}/root"
    if may_end := may_end and _has_own_files(pid):
        root = "/"
    modules = []
    for found in _native.modules(pid):
        path, open_path, bias = found["path"], found["open_path"], found["bias"]
        is_program = found["is_program"]
        if paths is not None:
            path = paths.setdefault((found["file"], found["start"]), path)
        if may_end and open_path is not None and Path(path).exists():
            open_path = path
        if open_path is not None:
            modules.append(
                Module(
                    path,
                    open_path=open_path,
                    root=root,
                    bias=bias,
                    is_program=is_program,
                    use_cache=use_cache,
                )
            )
        elif image := _native.module_image(pid, found["start"]):
            # The kernel maps the vDSO as one piece, so its image is a whole file; other images are
            # segments at the places that the loader gave them.
            image_bias = None if path == VDSO else bias
            modules.append(
                Module(
                    path,
                    root=root,
                    bias=bias,
                    image=image,
                    image_bias=image_bias,
                    is_program=is_program,
                    use_cache=use_cache,
                )
            )
    return modules


def _has_own_files(pid: int) -> bool:
    """Whether paths lead a process to the files that they lead weft to."""
    with suppress(OSError):
        spaces = {Path(f"/proc/{one}/ns/mnt").readlink() for one in ("self", pid)}
        return len(spaces) == 1 and Path(f"/proc/{pid}/root").samefile("/")
    return False


class LastingModules:
    """The modules of a process, under the paths that they had when it was first asked for them.

    As long as the process runs, it leads to files that were renamed, removed or replaced since.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._paths: Paths = {}
        self._last: list[Module] = []
        self.now()

    def now(self) -> list[Module]:
        """Return them; when the process has ended, as they were when it was last asked for them."""
        with suppress(WeftError):
            self._last = live_modules(self._pid, paths=self._paths) or self._last
        return self._last
