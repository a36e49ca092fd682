"""The modules of a running process.

Nothing is attached to: this needs the permission to read ``/proc/PID/maps`` and memory.
"""

from __future__ import annotations

from weft import _native
from weft.model import Module

__all__ = ["live_modules"]

VDSO = "[vdso]"
"""The library that the kernel maps into every process; there is no file behind it."""


def live_modules(pid: int, *, use_cache: bool = True) -> list[Module]:
    """Return the modules that a process has mapped code from, in the order of their addresses."""
    root = f"/proc/{pid}/root"
    modules = []
    for found in _native.modules(pid):
        path, open_path, bias = found["path"], found["open_path"], found["bias"]
        if open_path is not None:
            modules.append(
                Module(path, open_path=open_path, root=root, bias=bias, use_cache=use_cache)
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
                    use_cache=use_cache,
                )
            )
    return modules
