"""What the kernel counts for a process: the metrics that say ``base is counter $process.NAME``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from weft.errors import InvalidArgument
from weft.mdl import ast
from weft.mdl.plan import Focus
from weft.metrics.grouping import By
from weft.metrics.owners import ThreadNames
from weft.metrics.raw import Raw
from weft.metrics.thread_times import ENDED, NAMES, SHORTER, Tasks, ThreadTimes, refuse_uncounted
from weft.model.completeness import Missing

if TYPE_CHECKING:
    from weft.control.probing import Probing

__all__ = [
    "COUNTED",
    "Counter",
    "OfProcess",
    "OfThreads",
    "count",
    "counter",
    "is_by_thread",
    "refuse",
]


Files: TypeAlias = Callable[[str], str]
"""Reads one of the files below ``/proc/PID``."""


def _of_stat(*fields: int) -> Callable[[Files], int]:
    def read(files: Files) -> int:
        text = files("stat")
        # The name of the program may hold anything, parentheses and spaces included.
        words = text[text.rindex(")") + 2 :].split()
        return sum(int(words[number - 3]) for number in fields)

    return read


def _of_lines(file: str, *names: str) -> Callable[[Files], int]:
    """The sum of lines of a file that say ``NAME: NUMBER``."""

    def read(files: Files) -> int:
        found = (line.partition(":") for line in files(file).splitlines())
        return sum(int(value) for name, _, value in found if name in names)

    return read


COUNTED: Mapping[str, Callable[[Files], int]] = {
    "page_faults": _of_stat(10, 12),
    "major_faults": _of_stat(12),
    "context_switches": _of_lines(
        "status", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"
    ),
    "io_bytes": _of_lines("io", "rchar", "wchar"),
}
"""By name. The numbers are those of fields in ``/proc/PID/stat``."""


def is_by_thread(name: str) -> bool:
    """Whether something is counted for each thread by itself."""
    return name in NAMES


def refuse(session: Probing, metric: ast.Metric, focus: Focus, by: By | None) -> None:
    """Raise an error if the kernel does not count what a metric asks for."""
    name = metric.base.process
    if name not in COUNTED and name not in NAMES:
        raise InvalidArgument(
            f"the kernel does not count {name}", f"it counts {', '.join([*COUNTED, *NAMES])}"
        )
    others = [part[0] for part in focus.parts if part[0] != "Thread"]
    if is_by_thread(name) and (others or (by is not None and by.name != "thread")):
        raise InvalidArgument(
            f"{metric.name} is known for the whole process and for its threads only",
            "the kernel counts it, and not by function",
            f"-m {metric.name} --by thread, or -m {metric.name}@/Thread/NAME",
        )
    if is_by_thread(name):
        refuse_uncounted(Tasks(session), metric.name)
    elif focus.parts or by is not None:
        raise InvalidArgument(
            f"{metric.name} is known for the whole process only",
            "the kernel counts it, and not by function or thread",
            f"leave {'the focus' if focus.parts else '--by'} out: -m {metric.name}",
        )


class OfProcess:
    """What is counted for a whole process."""

    def __init__(self, name: str, files: Files, unit: str) -> None:
        self._name = name
        self._files = files
        self._unit = unit
        self._last = 0
        self._is_cut = False

    def read(self) -> int:
        """What was counted so far; what it last was if the process is gone."""
        found = count(self._name, self._files)
        self._is_cut |= found is None
        self._last = self._last if found is None else found
        return self._last

    def lost(self) -> tuple[Missing, ...]:
        """What is not in it."""
        if not self._is_cut:
            return ()
        return (Missing(self._unit or "events", "", ENDED, None, SHORTER),)


class OfThreads:
    """What is counted for each thread, since it was asked for."""

    def __init__(self, times: ThreadTimes, focus: Focus, by: By | None, names: ThreadNames) -> None:
        self._times = times
        self._focus = focus
        self._by = by
        self._names = names
        self._lost: tuple[Missing, ...] = ()

    def read(self) -> Raw:
        """The sum of the threads that the focus asks for, or the value of each."""
        found = self._times.read()
        self._names.note(self._times.names())
        thread = self._focus.of("Thread")
        wanted = None
        if thread is not None:
            found = {tid: ns for tid, ns in found.items() if self._names.are_called(tid, thread[0])}
            wanted = set(found)
        is_one = thread is not None and thread[0].isdecimal()
        self._lost = tuple(self._times.lost(wanted, str(self._focus), is_one=is_one))
        return sum(found.values()) if self._by is None else dict[Any, int](found)

    def lost(self) -> tuple[Missing, ...]:
        """What is not in it."""
        return self._lost


Counter: TypeAlias = "OfProcess | OfThreads"


def counter(
    session: Probing,
    metric: ast.Metric,
    unit: str,
    focus: Focus,
    by: By | None,
    names: ThreadNames,
) -> Counter:
    """Begin to read what the kernel counts for a metric."""
    name = metric.base.process
    if name in NAMES:
        return OfThreads(ThreadTimes(Tasks(session), NAMES[name]), focus, by, names)
    return OfProcess(name, session.proc_file, unit)


def count(name: str, files: Files) -> int | None:
    """Return what the kernel has counted for a process so far; nothing when it is gone."""
    try:
        return COUNTED[name](files)
    except (FileNotFoundError, ProcessLookupError):
        return None
