"""Threads that a program starts: whether each has values of its own.

A thread finds its values by the memory that its C library has made for it. When it has ended, the
library gives that memory to the next one, which so goes on with the values that it finds there.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from weft.errors import WeftError
from weft.mdl.passes.threads import asks_for_thread, tells_threads_apart
from weft.metrics.owners import own_id
from weft.model.completeness import Missing

if TYPE_CHECKING:
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
        self._before = self._living()

    def missing(self, seen: Collection[tuple[int, int]], focus: str) -> list[Missing]:
        """Say what is missing of values by thread, given the threads that have any.

        Each comes with its process, whose first thread is not started by the library.
        """
        own = {(pid, tid) for pid, tid in seen if pid != tid}
        started = self.started
        found = Missing("threads", focus, _UNKNOWN, None, self._advice)
        if started is not None and not started.is_waiting and started.completeness.is_exact:
            count = round(started.total_now()) - sum(tid not in self._before for _, tid in own)
            if count <= 0:
                return []
            found = Missing("threads", focus, _WHY, count, self._advice)
        # Where all still run, none has left its memory to another.
        return [found] if own and not {tid for _, tid in own} <= self._living() else []

    def _living(self) -> set[int]:
        """The ids that the threads of the first process have for themselves."""
        with suppress(WeftError):
            return {own_id(thread.tid) for thread in self._session.threads()}
        return set()
