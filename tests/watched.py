"""A target to watch that is made of plain data: what `weft top` shows, without a process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.measurements import LATENCY, SHED, TARGET
from weft.errors import WeftError
from weft.model.measured import Shed, TargetFacts
from weft.ui import source
from weft.ui.source import Reading, Request, Values

PER_SECOND = {
    "processCommand": (84_210, 0.412),
    "call": (84_210, 0.377),
    "dictFind": (252_630, 0.041),
    "lookupKey": (84_212, 0.062),
    "addReply": (84_260, 0.022),
    "readQueryFromClient": (5_263, 0.733),
    "aeProcessEvents": (5_270, 0.997),
    "writeToClient": (5_263, 0.184),
    "getCommand": (42_105, 0.131),
    "setCommand": (42_105, 0.166),
    "sdsnewlen": (168_420, 0.037),
    "zmalloc": (210_525, 0.059),
    "serverCron": (10, 0.001),
    "clientsCron": (10, 0.0004),
    "freeClient": (0, 0.0),
}
"""Calls a second, and seconds in a second."""

CALLERS = {
    "/Code/redis-server/lookupKey": 168_420,
    "/Code/redis-server/setGenericCommand": 84_210,
    "0x7f31c0de": 3,
}


@dataclass
class GivenSource:
    """Has grown by the same each second; some seconds pass with each reading."""

    target: TargetFacts = TARGET
    budget: float | None = None
    overhead: float | None = None
    shed: tuple[Shed, ...] = ()
    partly: dict[tuple[str, str], Shed] = field(default_factory=dict)
    functions_of: Mapping[str, list[str]] = field(
        default_factory=lambda: {
            "redis-server": sorted(PER_SECOND),
            "libc.so.6": ["free", "malloc", "memcpy"],
            "libm.so.6": ["cos", "sin"],
        }
    )
    threads: tuple[str, ...] = ("redis-server", "bio_aof", "io_thd_1")
    end_text: str = ""
    errors: dict[str, WeftError] = field(default_factory=dict)
    """What measuring a metric fails with."""
    note: str = ""
    second: int = 0
    step: int = 1
    begun: set[Request] = field(default_factory=set)
    is_closed: bool = False
    used_by: set[str] = field(default_factory=set)
    """The threads that have asked for anything."""

    def modules(self) -> list[str]:
        self._note_thread()
        return list(self.functions_of)

    def functions(self, module: str) -> list[str]:
        self._note_thread()
        return self.functions_of[module]

    def count(self, request: Request) -> int:
        self._note_thread()
        return len(self.functions_of[request.path.split("/")[2]])

    def begin(self, requests: Sequence[Request]) -> str:
        self._note_thread()
        for request in requests:
            if request.metric in self.errors:
                raise self.errors[request.metric]
        self.begun.update(requests)
        return self.note

    def end(self, requests: Sequence[Request]) -> None:
        self._note_thread()
        self.begun.difference_update(requests)

    def pace(self, interval: float) -> float:
        self._note_thread()
        return interval

    def read(self) -> Reading:
        self._note_thread()
        self.second += self.step
        return Reading(
            float(self.second),
            {request: self._values(request, self.second) for request in self.begun},
            self.threads,
            self.overhead,
            self.shed,
            self.partly,
            self.end_text,
        )

    def close(self) -> None:
        self._note_thread()
        self.is_closed = True

    def _note_thread(self) -> None:
        self.used_by.add(threading.current_thread().name)

    def _values(self, request: Request, seconds: int) -> Values:
        if request.metric == source.LATENCY:
            return LATENCY
        if request.metric == source.CALLERS:
            return {path: count * seconds for path, count in CALLERS.items()}
        module = request.path.split("/")[2]
        share = 0.25 if request.thread else 1
        values: dict[str, int | float] = {}
        for number, name in enumerate(self.functions_of[module]):
            if request.path not in (f"/Code/{module}/*", f"/Code/{module}/{name}"):
                continue
            calls, busy = PER_SECOND.get(name, (100 * (number + 1), 0.001))
            each = {"calls": calls * share, "inclusive_time": busy * share, "blocks": calls * 7}
            values[f"/Code/{module}/{name}"] = each[request.metric] * seconds
        return values


def under_load() -> GivenSource:
    """A server that is watched with a budget, some of which was shed."""
    return GivenSource(budget=0.02, overhead=0.013, shed=(SHED,))
