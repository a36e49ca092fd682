"""What `weft top` needs of a target, and a session as the one who gives it."""

from __future__ import annotations

import os
import select
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, TypeAlias

from weft import _native
from weft.base.numbers import percent
from weft.errors import TargetGone
from weft.metrics.metric import Metric
from weft.model.measured import EXACT, Completeness, Shed, TargetFacts
from weft.model.program import Module
from weft.model.values import Histogram
from weft.program.resources import ResourceTree
from weft.session import Session

__all__ = ["CALLERS", "LATENCY", "Reading", "Request", "SessionSource", "Source", "Values"]

CALLERS = "callers"
LATENCY = "latency"

_CALLERS_MDL = """
/// Who calls procedures: how often, by the address that each call returns to.
metric callers {
  units calls;
  base is map[caller] {
    foreach func in $focus.funcs append preInsn func.entry (* callers[$caller]++; *)
  }
}
"""


@dataclass(frozen=True, slots=True)
class Request:
    """A metric of a function, or of each function of a module; perhaps of one thread only."""

    metric: str
    path: str
    """``/Code/MODULE/FUNCTION``, or ``/Code/MODULE/*`` for each function of it."""
    thread: str = ""

    @property
    def is_of_module(self) -> bool:
        """Whether it is about each function of a module."""
        return self.path.endswith("/*")

    @property
    def focus(self) -> str:
        """The focus as metrics have it."""
        return f"{self.path},/Thread/{self.thread}" if self.thread else self.path


Values: TypeAlias = "dict[str, int | float] | Histogram"
"""Numbers by path: of functions, of callers. Or the histogram of a function."""


@dataclass(frozen=True)
class Reading:
    """Everything that is measured, at one moment."""

    time: float
    """Seconds, of a clock that only goes on."""
    values: dict[Request, Values] = field(default_factory=dict)
    threads: tuple[str, ...] = ()
    overhead: float | None = None
    """The share of its time that the target loses, from 0 to 1, where it is known."""
    shed: tuple[Shed, ...] = ()
    """What is not measured all the time, to stay within the budget; of many functions together."""
    partly: dict[tuple[str, str], Shed] = field(default_factory=dict)
    """The same of each function, by the metric and its path."""
    end: str = ""
    """How the target has ended, in words; empty while it runs."""
    completeness: dict[Request, Completeness] = field(default_factory=dict)
    """Whether what is measured is exact; what is not here is."""


class Source(Protocol):
    """A target that can be watched. All that it does may take a while."""

    @property
    def target(self) -> TargetFacts:
        """Whom it is about."""

    @property
    def budget(self) -> float | None:
        """The share of its time that the target may lose, from 0 to 1."""

    def modules(self) -> list[str]:
        """The names of the modules, that of the program itself first."""

    def functions(self, module: str) -> list[str]:
        """The names of a module's functions."""

    def count(self, request: Request) -> int:
        """How many functions it has to be woven into."""

    def begin(self, requests: Sequence[Request]) -> str:
        """Begin to measure, all or nothing. What one should know about it is returned, in words."""

    def end(self, requests: Sequence[Request]) -> None:
        """Measure them no longer."""

    def pace(self, interval: float) -> float:
        """How long to wait before the next reading, which is to be made every so many seconds."""

    def read(self) -> Reading:
        """Read all that is measured now."""

    def close(self) -> None:
        """Leave the target."""


class SessionSource:
    """A session that can be watched.

    ``command`` is what the session has started, and holds before its first instruction.
    """

    def __init__(
        self, session: Session, command: Sequence[str] = (), budget: float | None = None
    ) -> None:
        self.session = session
        words = tuple(command) or session.command()
        self.target = TargetFacts(session.pid, session.program(), words)
        self.budget = budget
        self._is_started = self._is_stopped = bool(command)
        try:
            self._process = _native.pidfd_open(session.pid)
        except ProcessLookupError:
            raise TargetGone(f"process {session.pid} has ended") from None
        self._metrics: dict[Request, list[Metric]] = {}
        """More than one where each function of a module is measured."""
        self._threads: tuple[str, ...] = ()
        self._end = ""
        session.load_metrics(_CALLERS_MDL)
        if budget is not None:
            session.metrics.keep_within(budget, counts_process=True)

    @cached_property
    def _modules(self) -> tuple[Module, ...]:
        return self.session.resources().modules

    def modules(self) -> list[str]:
        """The names of the modules, that of the program itself first."""
        return list(dict.fromkeys(module.name for module in self._modules))

    def functions(self, module: str) -> list[str]:
        """The names of a module's functions, in the order of the alphabet."""
        names = {
            function.name
            for found in self._modules
            if found.name == module
            for function in found.functions()
            if function.kind == "function"
        }
        return sorted(names, key=str.casefold)

    def count(self, request: Request) -> int:
        """How many functions there are in what is to be measured."""
        if not request.is_of_module:
            return 1
        name = request.path.split("/")[2]
        modules = [module for module in self._modules if module.name == name]
        return sum(len(module.symbols.select("*")) for module in modules)

    def begin(self, requests: Sequence[Request]) -> str:
        """Begin to measure, and say what could not be woven."""
        engine = self.session.metrics
        whole = [request for request in requests if request.is_of_module]
        single = [request for request in requests if not request.is_of_module]
        begun: dict[Request, list[Metric]] = {}
        try:
            for request in whole:
                begun[request] = engine.request_parts(request.metric, request.focus)
            wanted = [(engine.definition(request.metric), request.focus) for request in single]
            if wanted:
                made = engine.request_all(wanted, allow_incomplete=True)
                begun |= {request: [metric] for request, metric in zip(single, made, strict=True)}
        except BaseException:
            engine.remove([metric for metrics in begun.values() for metric in metrics])
            raise
        self._metrics |= begun
        refused = [
            text for metrics in begun.values() for metric in metrics for text in metric.refused
        ]
        if not refused:
            return ""
        return f"{len(refused)} points could not be woven; the first: {refused[0]}"

    def end(self, requests: Sequence[Request]) -> None:
        """Take out what was woven for them."""
        gone = [self._metrics.pop(request, []) for request in requests]
        self.session.metrics.remove([metric for metrics in gone for metric in metrics])

    def pace(self, interval: float) -> float:
        """How long to wait before the next reading: longer where reading and drawing cost much."""
        return self.session.metrics.pace(interval)

    def read(self) -> Reading:
        """Read all that is measured. Of a target that has ended, the last values."""
        if self._is_stopped:
            # A program that weft has started waits for what is measured from its beginning on.
            self.session.resume()
            self._is_stopped = False
        if not self._end:
            self._end = self._ended()
        if not self._end:
            tree = ResourceTree(threads=self.session.threads())
            self._threads = tuple(one.path.split("/", 2)[2] for one in tree.match("/Thread/*"))
        partly = self._partly()
        return Reading(
            time.monotonic(),
            {request: self._values(request, found) for request, found in self._metrics.items()},
            self._threads,
            overhead=self.session.metrics.overhead,
            shed=_together(partly),
            partly=partly,
            end=self._end,
            completeness={request: _worst(metrics) for request, metrics in self._metrics.items()},
        )

    def close(self) -> None:
        """Leave the target as it was."""
        os.close(self._process)
        with suppress(TargetGone):
            self.session.detach()

    def _partly(self) -> dict[tuple[str, str], Shed]:
        partly: dict[tuple[str, str], Shed] = {}
        for request, metrics in self._metrics.items():
            for metric in metrics:
                shed = metric.shed
                # What is still to be tried has no sampling.
                if shed is None or metric.sampling is None:
                    continue
                paths = metric.functions if request.is_of_module else [request.path]
                partly |= {(request.metric, path): shed for path in paths}
        return partly

    def _values(self, request: Request, metrics: Sequence[Metric]) -> Values:
        if request.is_of_module:
            return {
                path: value for metric in metrics for path, value in metric.by_function().items()
            }
        [metric] = metrics
        value = metric.value
        shed = metric.shed
        if shed is not None and shed.share == 0 and not value:
            return {}  # it was never measured
        if isinstance(value, dict):
            callers: Counter[str] = Counter()
            for address, count in metric.by_key().items():
                assert isinstance(address, int)
                callers[self.session.metrics.symbols.caller_path(address)] += count
            return dict(callers)
        return value if isinstance(value, Histogram) else {request.path: value}

    def _ended(self) -> str:
        """How the target has ended, if it has."""
        # The state of its first thread would not do: others may go on without it.
        if not select.select([self._process], [], [], 0)[0]:
            return ""
        code = self.session.wait(0) if self._is_started else None
        return "it has ended" if code is None else f"it has ended with code {code}"


def _worst(metrics: Iterable[Metric]) -> Completeness:
    """What is missing of metrics, beside what is not measured to stay within the budget."""
    missing = [one for metric in metrics if not metric.shed for one in metric.completeness.missing]
    return Completeness(missing=tuple(missing)) if missing else EXACT


def _together(partly: Mapping[tuple[str, str], Shed]) -> tuple[Shed, ...]:
    """What is done to functions, in few lines: those with the same metric and fate together."""
    groups: dict[tuple[str, str], list[tuple[str, Shed]]] = {}
    for (metric, path), shed in partly.items():
        groups.setdefault((metric, shed.how), []).append((path, shed))
    notes = []
    for (metric, how), found in groups.items():
        first = found[0][1]
        if len(found) == 1:
            notes.append(replace(first, focus=found[0][0]))
            continue
        share = sum(shed.share for _, shed in found) / len(found)
        module = "/".join(found[0][0].split("/")[:3])
        text = f"{len(found)} functions are estimates"
        cost = sum(shed.cost or 0.0 for _, shed in found)
        if how == "removed":
            text = f"{len(found)} functions not within the budget: cost about {percent(cost)}"
        notes.append(
            replace(first, metric=metric, focus=module, share=share, effect=text, cost=cost)
        )
    return tuple(notes)
