"""The processes and threads that a metric can be narrowed to."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import InvalidArgument
from weft.mdl.lower import Focus

if TYPE_CHECKING:
    from weft.session import Session

__all__ = ["refuse_nobody"]


def refuse_nobody(session: Session, focus: Focus) -> None:
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
            "a focus has the id of the target, or of a child that it has forked since",
            f"the target is /Process/{session.pid}",
        )
    if (thread := focus.of("Thread")) and not _may_be_thread(session, thread[0]):
        threads = session.threads()
        some = ", ".join(f"/Thread/{one.tid} ({one.name})" for one in threads[:4])
        more = f" and {len(threads) - 4} more" if len(threads) > 4 else ""
        raise InvalidArgument(
            f"there is no thread {thread[0]} in process {session.pid}", "", f"it has {some}{more}"
        )


def _is_process(session: Session, name: str) -> bool:
    if not name.isdecimal():
        return False
    ids = {session.pid, *_own_ids(Path(f"/proc/{session.pid}"))}
    ids.update(session._target.probe_processes())
    return int(name) in ids or _has_weft(name)


def _may_be_thread(session: Session, name: str) -> bool:
    if not name.isdecimal():
        return True
    number, threads = int(name), session.threads()
    if any(name == one.name or number == one.tid for one in threads):
        return True
    if number in {tid for _, tid in session._target.probe_threads()} or _has_weft(name):
        return True
    tasks = Path(f"/proc/{session.pid}/task")
    return any(number in _own_ids(tasks / str(one.tid)) for one in threads)


def _own_ids(task: Path) -> Iterator[int]:
    """The ids that a process, or a thread, has in its own PID namespace and those around it."""
    with suppress(OSError):
        for line in (task / "status").read_text().splitlines():
            if line.startswith("NSpid:"):
                yield from map(int, line.split()[1:])


def _has_weft(task: str) -> bool:
    """Whether a process has memory of weft's, as a forked child of a target has."""
    with suppress(OSError):
        return "/memfd:weft-" in Path(f"/proc/{task}/maps").read_text()
    return False
