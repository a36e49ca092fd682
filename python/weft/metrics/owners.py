"""The processes and threads that a metric can be narrowed to."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import InvalidArgument, TargetError
from weft.mdl.plan import Focus
from weft.model.completeness import Missing

if TYPE_CHECKING:
    from weft.control.probing import Probing

__all__ = ["ThreadNames", "own_id", "refuse_nobody"]

_NAMELESS = "they had ended before their names could be asked for"
_SHOWN = 4
"""How many threads an error names at most."""


def refuse_nobody(session: Probing, focus: Focus) -> None:
    """Raise an error if a focus names a process, a thread or a machine that cannot be measured.

    Threads of a name may come later, but nobody knows the id of one that is not there.
    """
    if machine := focus.of("Machine"):
        here = platform.node()
        if not fnmatchcase(here, machine[0]):
            what, why = f"/Machine/{machine[0]} is not measured", "the target runs on this machine"
            raise InvalidArgument(what, why, f"/Machine/{here}, or leave it out")
    if (process := focus.of("Process")) and not _is_process(session, process[0]):
        raise InvalidArgument(
            f"/Process/{process[0]} is not measured",
            "a focus has the id that the target, or a child that it has forked since, knows itself",
            f"the target is /Process/{own_id(session.pid)}",
        )
    if (thread := focus.of("Thread")) and not _may_be_thread(session, thread[0]):
        threads = [(own_id(one.tid), one.name) for one in session.threads()]
        some = ", ".join(f"/Thread/{tid} ({name})" for tid, name in threads[:_SHOWN])
        more = f" and {len(threads) - _SHOWN} more" if len(threads) > _SHOWN else ""
        raise InvalidArgument(
            f"there is no thread {thread[0]} in process {session.pid}", "", f"it has {some}{more}"
        )


def _is_process(session: Probing, name: str) -> bool:
    if name == "*":
        return True
    if not name.isdecimal():
        return False
    number = int(name)
    known = {own_id(session.pid), *session._target.probe_processes()}
    return number in known or _is_child(number)


def _may_be_thread(session: Probing, name: str) -> bool:
    if not name.isdecimal():
        return True
    number, threads = int(name), session.threads()
    if any(name == one.name or number == own_id(one.tid) for one in threads):
        return True
    return number in {tid for _, tid in session._target.probe_threads()} or _is_child(number)


def own_id(task: int) -> int:
    """The id that a process, or a thread, has in its own PID namespace: so values are kept."""
    with suppress(OSError):
        for line in Path(f"/proc/{task}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return task


def _is_child(pid: int) -> bool:
    """Whether a process has memory of weft's, as a forked child of a target has."""
    with suppress(OSError):
        has_weft = "/memfd:weft-" in Path(f"/proc/{pid}/maps").read_text()
        return has_weft and own_id(pid) == pid
    return False


class ThreadNames:
    """The names of threads, by their ids."""

    def __init__(self, session: Probing) -> None:
        self._session = session
        self._has_own_ids = own_id(session.pid) != session.pid
        self._names: dict[int, str] = {}

    def note(self, names: Mapping[int, str]) -> None:
        """Take note of the names that threads have now, by the ids they have for themselves."""
        self._names.update(names)

    def are_called(self, tid: int, pattern: str) -> bool:
        """Whether a pattern means a thread, by its id or its name."""
        return pattern == str(tid) or fnmatchcase(self._name(tid), pattern)

    def unknown(self, tids: Iterable[int], pattern: str, focus: str) -> list[Missing]:
        """Say how many threads a pattern may mean, as their names are not known."""
        if pattern.isdigit() or pattern == "*":
            return []
        count = sum(not self._name(tid) for tid in tids)
        return [Missing("threads", focus, _NAMELESS, count)] if count else []

    def shown(self, tid: int) -> str:
        """Return how a thread is named to people."""
        name = self._name(tid)
        return f"{name} ({tid})" if name else str(tid)

    def _name(self, tid: int) -> str:
        if tid not in self._names:
            # Threads that have ended keep the name that they had when they were last seen, if any.
            self._names[tid] = ""
            with suppress(TargetError):
                for thread in self._session.threads():
                    own = own_id(thread.tid) if self._has_own_ids else thread.tid
                    self._names[own] = thread.name
        return self._names[tid]
