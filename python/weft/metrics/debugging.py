"""Metrics of a program that is being debugged: what `monitor weft` does."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft import _native
from weft.errors import InvalidArgument
from weft.export.metrics import text
from weft.metrics.catalogue import metric_and_focus
from weft.model.measured import TargetFacts

if TYPE_CHECKING:
    from weft.metrics.metric import Metric
    from weft.session import Session

__all__ = ["DebugOwner"]

_HELP = """\
monitor weft metric METRIC[@FOCUS]    measure: monitor weft metric latency@/Code/server/handle
monitor weft probes                   what is measured, and the values so far
monitor weft detach                   let the program go on without a debugger
monitor weft help                     this
"""


class DebugOwner:
    """What weft does for the debugger, on the thread that holds the program.

    Only that thread can weave, and only while the program stands still. So what weaves is returned,
    to be called then: see :class:`weft._native.DebugOwner`.
    """

    def __init__(
        self,
        measure: Callable[[_native.Target], Session],
        joined: Callable[[], Session] | None = None,
    ) -> None:
        self._session_of = measure
        self._joined = joined
        """The session of a program that is measured already, and goes on to be."""
        self.programs: list[_native.Cloned] = []
        """What was started or taken over, and what was started since: the newest last."""
        self._measured: tuple[_native.Target, Session] | None = None
        """The program that is measured, which may have become another one since."""
        self._facts = TargetFacts(0, "")
        self._began = 0.0
        self._metrics: dict[str, Metric] = {}
        self._waiting: dict[str, str] = {}
        """What is to be measured and is not there yet, and what was said of it."""

    def started(self, target: _native.Cloned) -> Callable[[], None] | None:
        """Take note of a program: what was measured of the one before is measured of this."""
        self.programs.append(target)
        self._begin_anew()
        return self.loaded()

    def _begin_anew(self) -> None:
        self._measured = None
        self._waiting |= dict.fromkeys(self._metrics, "")
        self._metrics.clear()

    def loaded(self) -> Callable[[], None] | None:
        """Look whether what is to be measured has come: the debugger asks for libraries."""
        if self._measured is not None and not self._measured[0].is_current():
            self._begin_anew()
        return self._measure_what_waits if self._waiting else None

    def leaves(self) -> Callable[[], None] | None:
        """Take all probes out: the program is about to go on without a debugger."""
        measured, self._measured = self._measured, None
        return None if measured is None else measured[1].detach

    def monitor(self, words: str) -> tuple[str, bool] | Callable[[], tuple[str, bool]]:
        """Answer ``monitor WORDS``: with what to show, and whether to let the program go."""
        match words.split():
            case [] | ["help"] | ["weft"] | ["weft", "help"]:
                return _HELP, False
            case ["weft", "detach"]:
                return "the program goes on without a debugger\n", True
            case ["weft", "probes"]:
                return self.measured() or "nothing is measured\n", False
            case ["weft", "metric", metric]:
                return lambda: (self._measure(metric), False)
        return f"weft does not know `{words}`\n{_HELP}", False

    def check(self, metric: str) -> None:
        """Raise an error if there is no such metric, wherever it is to be measured."""
        self.session().metrics.definition(metric_and_focus(metric)[0])

    def measure_or_wait(self, metric: str) -> None:
        """Measure a metric as soon as what it is about is there."""
        try:
            self._measure(metric)
        except InvalidArgument as error:
            self._waiting[metric] = str(error)

    def _measure_what_waits(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for metric in waiting:
            self.measure_or_wait(metric)

    def _measure(self, text: str) -> str:
        name, focus = metric_and_focus(text)
        session = self.session()
        metric = session.metric(name, focus, allow_incomplete=True)
        if not self._metrics:
            self._facts = TargetFacts(session.pid, session.program(), session.command())
            self._began = time.monotonic()
        self._metrics[text] = metric
        summary = metric.completeness.summary()
        note = "" if metric.focus == focus else f"note: {focus} is {metric.focus}\n"
        said = f"{text} is incomplete: {summary}" if summary else f"{text} is measured"
        return f"{note}{said}\n"

    def session(self) -> Session:
        """Return the session in which the program is measured."""
        if self._joined is not None:
            return self._joined()
        if self._measured is None:
            target = self.programs[-1].target()
            self._measured = target, self._session_of(target)
        return self._measured[1]

    def measured(self) -> str:
        """Return what is measured, as a table."""
        if not self._metrics and not self._waiting:
            return ""
        table = io.BytesIO()
        if self._metrics:
            seconds = time.monotonic() - self._began
            text.write(table, self._facts, list(self._metrics.values()), seconds)
        waiting = [f"{metric} waits: {why}\n" for metric, why in self._waiting.items()]
        return table.getvalue().decode() + "".join(waiting)
