"""The thread of `weft top` that touches the target, beside the event loop that draws.

It is told what is wanted, and tells what came of it in messages.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from textual.message import Message

from weft.errors import WeftError
from weft.ui.source import Reading, Request, Source

__all__ = ["Failed", "Left", "Listed", "Opened", "Read", "Watcher", "Weaving"]

_FIRST = 0.3
"""How long to wait for the first rates, in seconds."""
_SHARE = 0.05
"""How much of a processor weaving may take, if it goes on and on."""
_LONGEST = 4.0
"""How long what is wanted is kept waiting for that, in seconds."""


@dataclass
class Opened(Message):
    """The modules are known."""

    modules: list[str]


@dataclass
class Listed(Message):
    """The functions of a module are known."""

    module: str
    functions: list[str]


@dataclass
class Weaving(Message):
    """Something is being woven, which may take a while; or nothing is any more."""

    request: Request | None
    note: str = ""
    count: int = 1
    """How many functions it is woven into."""


@dataclass
class Read(Message):
    """Everything was read; early when that was for something new."""

    reading: Reading
    is_early: bool = False


@dataclass
class Failed(Message):
    """Something cannot be done, or not be measured."""

    error: WeftError
    request: Request | None = None


class Left(Message):
    """The target was left."""


class Watcher:
    """Weaves and reads what is wanted of a source. Nothing else touches the source.

    ``post`` takes its messages, from another thread than all else is called from.
    """

    def __init__(self, source: Source, interval: float, post: Callable[[Message], object]) -> None:
        self.fault: BaseException | None = None
        """What went wrong in weft itself."""
        self._source = source
        self._interval = interval
        self._post = post
        self._wanted: frozenset[Request] | None = None
        self._to_list: deque[str] = deque()
        self._wake = threading.Event()
        self._is_closing = threading.Event()
        self._is_drawn = threading.Event()
        self._is_drawn.set()
        self._has_missed = False
        self._may_weave = 0.0
        """From when on something may be woven, by the monotonic clock."""

    def want(self, requests: frozenset[Request]) -> None:
        """Request that this is measured, and nothing else."""
        # What is wanted is said after each reading. If that alone brought the next one, there would
        # be one after the other, all of them too early to tell rates.
        if requests != self._wanted:
            self._wanted = requests
            self._wake.set()

    def list_functions(self, module: str) -> None:
        """Request the list of the functions of a module."""
        self._to_list.append(module)
        self._wake.set()

    def go_on(self) -> None:
        """Let the next reading come: the last one was drawn."""
        self._is_drawn.set()
        if self._has_missed:
            # One that was made for something new is not left for the next interval.
            self._has_missed = False
            self._wake.set()

    def leave(self) -> None:
        """Leave the target, and end the thread."""
        self._is_closing.set()
        self._wake.set()

    def run(self) -> None:
        """Watch until the target is to be left, and leave it."""
        try:
            self._watch()
        except BaseException as fault:
            self.fault = fault
        finally:
            try:
                self._source.close()
            except WeftError as error:
                self.fault = self.fault or error
            self._post(Left())

    def _watch(self) -> None:
        try:
            self._post(Opened(self._source.modules()))
        except WeftError as error:
            self._post(Failed(error))
        else:
            # A program that has not begun yet begins when the first reading is made.
            self._wake.wait()
        woven: set[Request] = set()
        is_first, is_early = True, False
        while not self._is_closing.is_set():
            self._wake.clear()
            while self._to_list:
                self._list(self._to_list.popleft())
            self._weave_in_time(woven)
            try:
                reading = self._source.read()
            except WeftError as error:
                self._post(Failed(error))
            else:
                # What is not drawn yet, on a slow line perhaps, is not to pile up.
                self._has_missed = is_early
                if self._is_drawn.is_set():
                    self._has_missed = False
                    self._is_drawn.clear()
                    self._post(Read(reading, is_early))
            # What was just woven changes the pace.
            rest = self._source.pace(self._interval)
            is_early = self._wake.wait(min(_FIRST, rest) if is_first else rest)
            is_first = False

    def _weave_in_time(self, woven: set[Request]) -> None:
        """Weave at once what is wanted after a while, but not for each of many keys in a row."""
        if (self._wanted or frozenset()) == woven:
            return
        # By then something else may be wanted instead.
        if self._is_closing.wait(max(0.0, self._may_weave - time.monotonic())):
            return
        began = time.thread_time()
        self._weave(woven)
        spent = time.thread_time() - began
        self._may_weave = time.monotonic() + min(spent / _SHARE - spent, _LONGEST)

    def _weave(self, woven: set[Request]) -> None:
        """Make what is woven what is wanted."""
        wanted = self._wanted or frozenset()
        for batch in _batches(wanted - woven):
            if self._is_closing.is_set():
                return
            woven.update(batch)
            self._begin(batch)
        # Only now: what is woven for both the old and the new stays woven.
        gone = woven - wanted
        if gone:
            woven -= gone
            try:
                self._source.end(sorted(gone, key=str))
            except WeftError as error:
                self._post(Failed(error))

    def _begin(self, batch: list[Request]) -> None:
        """Begin to measure all of a batch that can be measured."""
        try:
            count = self._source.count(batch[0]) if len(batch) == 1 else len(batch)
            self._post(Weaving(batch[0], count=count))
            note = self._source.begin(batch)
        except WeftError as error:
            if len(batch) == 1:
                self._post(Failed(error, batch[0]))
                return
            # One of them is in the way of the others.
            half = len(batch) // 2
            self._begin(batch[:half])
            self._begin(batch[half:])
        else:
            self._post(Weaving(None, note))

    def _list(self, module: str) -> None:
        try:
            self._post(Listed(module, self._source.functions(module)))
        except WeftError as error:
            self._post(Failed(error))


def _batches(requests: Iterable[Request]) -> list[list[Request]]:
    """What is woven together: all functions with a metric; those of a module for themselves."""
    batches: dict[tuple[str, str], list[Request]] = {}
    for request in sorted(requests, key=lambda one: (not one.is_of_module, one.metric, one.path)):
        key = (request.metric, request.path if request.is_of_module else "")
        batches.setdefault(key, []).append(request)
    return list(batches.values())
