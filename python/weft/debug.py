"""Programs under a debugger of your own, while they run from a clone of their code.

weft is the server that GDB, LLDB or an editor connects to. What they see is the program as if weft
were not there. :meth:`weft.Cloned.debugged` stops one that is being measured.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from weft import _native
from weft.clone import Cloned
from weft.control.clone import Records
from weft.control.debugged import Address, Debugged, Ending, Visited, visit
from weft.metrics.debugging import DebugOwner
from weft.session import Session

__all__ = ["Address", "Debugged", "Ending", "Visited", "attach", "launch", "visit"]


def launch(
    command: Sequence[str | os.PathLike[str]],
    *,
    environment: list[tuple[str, str]] | None = None,
    directory: str | None = None,
    is_apart: bool = False,
    cache_size: int | None = None,
    records: Records = "nothing",
) -> Debugged:
    """Start a program, which stands before its first instruction.

    Its addresses are the same each time, as debuggers have it. With ``is_apart`` it is a job of its
    own that has the terminal while it runs, as in GDB: for a debugger in the same terminal.
    ``records`` says what is recorded of what it executes, as for :func:`weft.run`: the first time
    that it runs.
    """
    words = [os.fspath(word) for word in command]
    options = (is_apart, cache_size, records)
    owner = DebugOwner(Session.of_clone)
    target = _native.Debugger.launch(words, environment, directory, *options, owner)
    cloned = Cloned(owner.programs[0], command=words, records=records)
    return Debugged(target, owner, cloned, is_attached=False)


def attach(pid: int, *, cache_size: int | None = None, records: Records = "nothing") -> Debugged:
    """Take over a running process, which stands still."""
    owner = DebugOwner(Session.of_clone)
    target = _native.Debugger.attach(pid, cache_size, records, owner)
    cloned = Cloned(owner.programs[0], records=records)
    return Debugged(target, owner, cloned, is_attached=True)
