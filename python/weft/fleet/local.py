"""The machine that a host is on: its processes, who measures which of them, and what measures."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from weft.fleet.claims import Claims
from weft.fleet.machine import Cleaned, Measures, Processes, RequestKey
from weft.fleet.plan import Process

__all__ = ["LOOK", "LocalMachine", "ago", "not_to_be_seen", "ticks"]

LOOK = 1.0
"""How often it is looked at most for processes that have come or gone, in seconds."""
_LOOK_SHARE = 100
"""How much longer to rest than a look takes."""

_T = TypeVar("_T")


class LocalMachine:
    """What all requests of a host share of its machine."""

    def __init__(self, inventory: Processes, weaver: Measures, claims: Claims) -> None:
        """``claims`` is by what several hosts of one machine know of each other."""
        self.inventory = inventory
        self.weaver = weaver
        self.weaving = 0.0
        """How much processor time weaving has taken."""
        self._claims = claims
        self._holders: dict[str, set[RequestKey]] = {}
        """Who needs the locks that this host holds."""
        self._since: dict[str, int] = {}
        """Since when it holds them."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weft-weaver")
        self._looked: tuple[float, list[Process]] = (-LOOK, [])
        self._looking = asyncio.Lock()
        self._rest = 0.0
        """How long to rest between two looks, because of what they take."""

    def open(self, instance: str) -> None:
        """Tell other hosts of this machine of this one, and of the namespace that it is in."""
        self._claims.take(_namespace(self.inventory.netns))
        self._claims.take(_instance(instance))

    def is_there(self, instance: str) -> bool:
        """Whether another host of this machine still is."""
        return self._claims.is_anothers(_instance(instance))

    def close(self) -> None:
        """Let the thread that weaves go, and leave all processes to other hosts."""
        self._thread.shutdown()
        self._claims.close()

    async def weave(self, do: Callable[[], _T]) -> _T:
        """Have the thread that weaves do something."""

        def timed() -> _T:
            began = time.thread_time()
            try:
                return do()
            finally:
                self.weaving += time.thread_time() - began

        return await asyncio.get_running_loop().run_in_executor(self._thread, timed)

    async def clean(self) -> Cleaned:
        """Take out what a weft has left that was killed: this service before it was started."""

        def clean() -> Cleaned:
            return self.weaver.clean({process.pid for process in self.inventory.look()})

        return await self.weave(clean)

    async def look(self, *, oldest: float = LOOK / 2) -> list[Process]:
        """The processes of this machine, as of so many seconds ago at most."""
        async with self._looking:
            loop = asyncio.get_running_loop()
            began = loop.time()
            if began - self._looked[0] > (max(oldest, self._rest) if oldest else 0.0):
                took, found = await asyncio.to_thread(_timed, self.inventory.look)
                self._looked = loop.time(), found
                # On a machine with very many processes it is looked less often; on one that is
                # merely busy it is not.
                self._rest = took * _LOOK_SHARE
            return self._looked[1]

    def is_elsewhere(self, process: Process) -> bool:
        """Whether a process is that of another host on this machine."""
        netns = process.facts["netns"][0]
        is_own = netns in ("", self.inventory.netns)
        return not is_own and self._claims.is_anothers(_namespace(netns))

    def hold(self, lock: str, key: RequestKey) -> bool:
        """Keep other hosts of this machine from a process, if none holds it already."""
        if not self._claims.take(lock):
            return False
        self._holders.setdefault(lock, set()).add(key)
        self._since.setdefault(lock, ticks())
        return True

    def held_since(self, lock: str) -> int:
        """Since when it is measured what a lock is of, by the clock of the kernel."""
        return self._since[lock]

    def let_go(self, lock: str, key: RequestKey) -> None:
        """Leave a process to others, unless there is another request that needs it."""
        holders = self._holders.get(lock, set())
        holders.discard(key)
        if not holders:
            self._holders.pop(lock, None)
            self._since.pop(lock, None)
            self._claims.release(lock)


def _timed(do: Callable[[], _T]) -> tuple[float, _T]:
    """Do something, and say how much processor time it has taken."""
    began = time.thread_time()
    found = do()
    return time.thread_time() - began, found


def _namespace(number: str) -> str:
    return f"netns-{number}"


def _instance(name: str) -> str:
    return f"host-{name}"


def not_to_be_seen() -> str:
    """Why some processes may not be looked at, nor measured."""
    return "not even root may look at it" if os.geteuid() == 0 else "this host has to be root"


def ticks() -> int:
    """Now, by the clock that says when processes were started."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def ago(started: int) -> float:
    """How many seconds ago something was, by that clock."""
    return (ticks() - started) / os.sysconf("SC_CLK_TCK")
