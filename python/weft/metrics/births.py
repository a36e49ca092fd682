"""Threads that a program starts: whether each has values of its own.

A thread finds its values by the memory that its C library has made for it. When it has ended, the
library gives that memory to the next one, which so goes on with the values that it finds there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from weft.errors import WeftError
from weft.mdl.passes.threads import asks_for_thread, tells_threads_apart
from weft.metrics.owners import own_id
from weft.model.completeness import Missing

if TYPE_CHECKING:
    from weft.control.probes import Probe
    from weft.mdl import ast
    from weft.mdl.plan import Focus
    from weft.metrics.engine import Engine
    from weft.metrics.grouping import By
    from weft.metrics.metric import Metric

__all__ = ["Births", "needs_births"]

_STARTS = "thread_starts"
_WHY = (
    "they have measured nothing, or were given the memory of a thread that had ended, and then "
    "count as that one"
)
_TOLD_APART = "--weaver clone (in Python weaver='clone'), where each has values of its own"
_UNKNOWN = (
    "how many were started is not known; one that was given the memory of a thread that had ended "
    "counts as that one"
)


def needs_births(metric: ast.Metric, focus: Focus, by: By | None) -> bool:
    """Whether it matters to a value which thread has measured what."""
    if metric.base.process:
        # The kernel tells threads apart.
        return False
    is_by_thread = by is not None and (by.key is None or asks_for_thread(by.key))
    return is_by_thread or bool(focus.of("Thread")) or tells_threads_apart(metric)


class Births:
    """Counts the threads that are started from now on."""

    def __init__(self, engine: Engine) -> None:
        self._session = engine.session
        # There each has values of its own, as long as there is room.
        self._advice = "" if engine.in_clone else _TOLD_APART
        self.started: Metric | None = None
        """What counts them, if that is possible."""
        with suppress(WeftError):
            self.started = engine.request(_STARTS, allow_incomplete=True, wait=True)
        # Later than that: who comes in between counts as missing rather than not at all.
        self._counted, self._before = 0, self._living()

    def missing(self, probe: Probe, focus: str) -> list[Missing]:
        """Say what is missing of values by thread, given a probe that has some."""
        # In this order: whoever is counted has its values by then, or has none yet.
        count, seen, living = self._count(), probe.threads(), self._living()
        # The first thread of a process is not started by the library.
        own = {(pid, tid) for pid, tid in seen if pid != tid}
        if {tid for _, tid in own} <= living:
            # None has left its memory to another until now: only who is started later can have it.
            # Of forked children it is not known who lives.
            if count is not None and len({pid for pid, _ in seen}) <= 1:
                self._counted, self._before = count, living
            return []
        if count is None:
            return [Missing("threads", focus, _UNKNOWN, None, self._advice)]
        count -= self._counted + sum(tid not in self._before for _, tid in own)
        return [Missing("threads", focus, _WHY, count, self._advice)] if count > 0 else []

    def _count(self) -> int | None:
        """How many were started, if that is known."""
        started = self.started
        if started is None or started.is_waiting or not started.completeness.is_exact:
            return None
        return round(started.total_now())

    def _living(self) -> set[int]:
        """The ids that the threads of the first process have for themselves."""
        with suppress(WeftError):
            return {own_id(thread.tid) for thread in self._session.threads()}
        return set()
