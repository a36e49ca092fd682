"""Functions of the C library of GNU that have no names where it is stripped, as it mostly is.

They are told by what they do: by a message that only they print, or by who jumps to them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from weft.errors import BadFile
from weft.model.completeness import Missing
from weft.model.program import Function, Module

__all__ = ["freed_twice", "nameless"]

_THREAD_END = "tcache_thread_shutdown"
_ALIGNED = "_mid_memalign"
_IS_GLIBC = "__libc_calloc"

_MESSAGE = "tcache_thread_shutdown(): unaligned tcache chunk detected"
_JUMP = re.compile(r"jmp (?:short )?(0x[0-9a-f]+)")


def nameless(module: Module, name: str) -> list[Function]:
    """The function of a name that a module may have lost; none where that cannot be told."""
    if name not in (_THREAD_END, _ALIGNED) or not module.find(_IS_GLIBC):
        return []
    try:
        found = _ends(module) if name == _THREAD_END else _jumped_to(module)
    except BadFile:
        return []
    return found if len(found) == 1 else []


def _ends(module: Module) -> list[Function]:
    """What frees, at the end of a thread, what the thread has freed and can reuse."""
    offsets = module.symbols.users_of(_MESSAGE)
    indexes = [index for index in module.symbols.containing(offsets) if index is not None]
    return list(module._functions(list(dict.fromkeys(indexes))))


def _jumped_to(module: Module) -> list[Function]:
    """What all functions for aligned memory are made of."""
    found: dict[int, Function] = {}
    for function in module.find("memalign"):
        (code,) = module.disassemble([(function.offset, function.size)])
        jumps = (_JUMP.fullmatch(text) for _, text in code)
        targets = {int(jump[1], 16) for jump in jumps if jump}
        for target in targets:
            inner = module.function_at(target)
            if inner is not None and inner.offset == target != function.offset:
                found[target] = inner
    return list(found.values())


def freed_twice(
    unknown: Collection[str], threads: Callable[[], Iterable[tuple[int, int]]], focus: str
) -> Missing | None:
    """What a metric that needs the ends of threads gets wrong where they are not known.

    ``unknown`` are the names that the program does not have, ``threads`` gives those that
    have measured, each with its process. A process ends with its first thread, others before.
    """
    if _THREAD_END not in unknown or _IS_GLIBC in unknown:
        return None
    if all(pid == tid for pid, tid in threads()):
        return None
    why = (
        "when a thread ends, the C library frees once more what it has kept for it, up to 240 KB, "
        "and this one does not show where"
    )
    return Missing("ends of threads", focus, why, None)
