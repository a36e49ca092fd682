"""What `weft top` needs of a target, and a session as the one who gives it."""

from __future__ import annotations

import os
import select
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeAlias

from weft.errors import TargetGone, WeftError
from weft.metrics.metric import Metric
from weft.metrics.model import Shed, TargetFacts
from weft.model import Module
from weft.probes import Histogram
from weft.resources import ResourceTree
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
    end: str = ""
    """How the target has ended, in words; empty while it runs."""


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

    def begin(self, request: Request) -> str:
        """Begin to measure. What one should know about it is returned, in words."""

    def end(self, request: Request) -> None:
        """Measure it no longer."""

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
        self._session = session
        self.target = TargetFacts(session.pid, session.program(), tuple(command))
        self.budget = budget
        self._is_stopped = bool(command)
        self._process = os.pidfd_open(session.pid)
        self._metrics: dict[Request, Metric] = {}
        self._threads: tuple[str, ...] = ()
        self._callers: dict[str, str] = {}
        self._end = ""
        session.load_metrics(_CALLERS_MDL)
        if budget is not None:
            session.metrics.keep_within(budget)

    @cached_property
    def _modules(self) -> tuple[Module, ...]:
        return self._session.resources().modules

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
        if not request.path.endswith("/*"):
            return 1
        name = request.path.split("/")[2]
        modules = [module for module in self._modules if module.name == name]
        return sum(len(module.symbols.select("*")) for module in modules)

    def begin(self, request: Request) -> str:
        """Begin to measure, and say what could not be woven."""
        by_function = request.path.endswith("/*")
        metric = self._session.metric(request.metric, request.focus, by_function=by_function)
        self._metrics[request] = metric
        refused = metric.refused
        if not refused:
            return ""
        return f"{len(refused)} points could not be woven; the first: {refused[0]}"

    def end(self, request: Request) -> None:
        """Take out what was woven for it."""
        metric = self._metrics.pop(request, None)
        if metric is not None:
            metric.remove()

    def read(self) -> Reading:
        """Read all that is measured. Of a target that has ended, the last values."""
        if self._is_stopped:
            # A program that weft has started waits for what is measured from its beginning on.
            self._session.resume()
            self._is_stopped = False
        if not self._end:
            self._end = self._ended()
        if not self._end:
            tree = ResourceTree(threads=self._session.threads())
            self._threads = tuple(one.path.split("/", 2)[2] for one in tree.match("/Thread/*"))
        return Reading(
            time.monotonic(),
            {request: self._values(request, metric) for request, metric in self._metrics.items()},
            self._threads,
            overhead=self._session.metrics.overhead,
            shed=tuple(metric.shed for metric in self._metrics.values() if metric.shed),
            end=self._end,
        )

    def close(self) -> None:
        """Leave the target as it was."""
        os.close(self._process)
        with suppress(TargetGone):
            self._session.detach()

    def _values(self, request: Request, metric: Metric) -> Values:
        if request.path.endswith("/*"):
            return metric.by_function()
        value = metric.value
        if isinstance(value, dict):
            callers: Counter[str] = Counter()
            for address, count in value.items():
                callers[self._caller(address)] += count
            return dict(callers)
        return value if isinstance(value, Histogram) else {request.path: value}

    def _caller(self, address: str) -> str:
        """The path of the function that a call at an address returns to."""
        if address not in self._callers:
            # A call may be the last instruction of a function: what it returns to is the next one.
            self._callers[address] = self._function_at(int(address) - 1)
        return self._callers[address]

    def _function_at(self, address: int) -> str:
        below = [module for module in self._modules if module.bias <= address]
        for module in sorted(below, key=lambda module: -module.bias):
            try:
                function = module.function_at(address - module.bias)
            except WeftError:  # a module that cannot be read has no names
                continue
            if function is not None:
                return f"/Code/{module.name}/{function.name}"
        return f"{address:#x}"

    def _ended(self) -> str:
        """How the target has ended, if it has."""
        # The state of its first thread would not do: others may go on without it.
        if not select.select([self._process], [], [], 0)[0]:
            return ""
        code = self._session.wait(0) if self.target.command else None
        return "it has ended" if code is None else f"it has ended with code {code}"
