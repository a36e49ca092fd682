"""What asks the fleet, for programs without asyncio: it has a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from weft.errors import InvalidArgument
from weft.fleet.fetching import Fetched, HostFiles, Progress
from weft.fleet.front import AsyncFleet, Running
from weft.fleet.measuring import PATIENCE, REST, FleetHost, Measurement
from weft.fleet.protocol import Request
from weft.fleet.results import FleetResult
from weft.fleet.tasks import cancelled

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Fleet", "FleetMeasurement"]

_AGAIN = 5.0
"""After how many seconds a fetch that was given up is cancelled again: it may have to clean up."""
_T = TypeVar("_T")


class Fleet:
    """The hosts that a broker knows.

    ```python
    with weft.Fleet("nats://127.0.0.1:4222") as fleet:
        result = fleet.run("calls@processCommand", where="exe=redis-server", seconds=10)
        print(result.totals[0].value, result.complete)
    ```

    :class:`weft.AsyncFleet` is the same for programs with asyncio.
    """

    def __init__(
        self,
        url: str,
        *,
        credentials: str | Path | None = None,
        authority: str | Path | None = None,
        requester: str | None = None,
    ) -> None:
        self._fleet = AsyncFleet(
            url, credentials=credentials, authority=authority, requester=requester
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="weft-fleet", daemon=True
        )
        self._thread.start()
        try:
            self._do(self._fleet.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._do(self._fleet.__aexit__())
        finally:
            self._end()

    def _end(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _do(self, what: Coroutine[Any, Any, _T]) -> _T:
        if self._loop is None:
            what.close()
            raise InvalidArgument("there is no connection", advice="use it in a with statement")
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    @property
    def requester(self) -> str:
        """In whose name one asks."""
        return self._fleet.requester

    @property
    def is_restricted(self) -> bool:
        """Whether :meth:`status` has last left out the requests of others."""
        return self._fleet.is_restricted

    def hosts(self, where: str = "*") -> list[FleetHost]:
        """The hosts that are there, by their names; and what they run, as far as it is meant."""
        return self._do(self._fleet.hosts(where))

    def status(self) -> list[Running]:
        """The requests that the broker has, the newest first."""
        return self._do(self._fleet.status())

    def files(self, where: str = "*", *, patience: float = PATIENCE) -> list[HostFiles]:
        """The files that hosts offer, by the names of the hosts."""
        return self._do(self._fleet.files(where, patience=patience))

    def fetch(
        self,
        host: str,
        name: str,
        path: str | Path,
        *,
        patience: float = PATIENCE,
        progress: Progress = lambda doing, done, size: None,
    ) -> Fetched:
        """Have a host send a file that it offers, and write it: see :meth:`AsyncFleet.fetch`."""
        fetching = self._fleet.fetch(host, name, path, patience=patience, progress=progress)
        task = self._do(_begun(fetching))
        try:
            return self._do(_ended(task))
        except BaseException:
            # Who gives up leaves nothing behind, neither here nor with the broker.
            self._do(cancelled(task, again=_AGAIN))
            raise

    def stop(self, request: str) -> str:
        """End a request of one's own before its time: see :meth:`AsyncFleet.stop`."""
        return self._do(self._fleet.stop(request))

    def start(
        self,
        metrics: str | Iterable[str] = (),
        *,
        where: str = "*",
        seconds: float = 10.0,
        interval: float = 1.0,
        budget: float | None = None,
        probes: str | Iterable[str] = (),
        texts: str | Iterable[str] = (),
        by: str | None = None,
        patience: float = PATIENCE,
        first: str = "all",
        rest: float = REST,
        guards: str | Iterable[str] = (),
    ) -> FleetMeasurement:
        """Have the fleet begin to measure: see :meth:`AsyncFleet.run`."""
        request = self._fleet.request(
            metrics,
            where=where,
            seconds=seconds,
            interval=interval,
            budget=budget,
            probes=probes,
            texts=texts,
            by=by,
        )
        running = self._fleet.start(
            request, patience=patience, first=first, rest=rest, guards=guards
        )
        return FleetMeasurement(self, self._do(running))

    def run(
        self,
        metrics: str | Iterable[str] = (),
        *,
        where: str = "*",
        seconds: float = 10.0,
        interval: float = 1.0,
        budget: float | None = None,
        probes: str | Iterable[str] = (),
        texts: str | Iterable[str] = (),
        by: str | None = None,
        patience: float = PATIENCE,
        first: str = "all",
        rest: float = REST,
        guards: str | Iterable[str] = (),
    ) -> FleetResult:
        """Measure metrics in all processes that are meant: see :meth:`AsyncFleet.run`."""
        return self.start(
            metrics,
            where=where,
            seconds=seconds,
            interval=interval,
            budget=budget,
            probes=probes,
            texts=texts,
            by=by,
            patience=patience,
            first=first,
            rest=rest,
            guards=guards,
        ).result()


async def _begun(what: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    return asyncio.ensure_future(what)


async def _ended(task: asyncio.Task[_T]) -> _T:
    return await task


class FleetMeasurement:
    """A request that is measured; made by :meth:`Fleet.start`."""

    def __init__(self, fleet: Fleet, measurement: Measurement) -> None:
        self._fleet = fleet
        self._measurement = measurement

    @property
    def request(self) -> Request:
        """What is measured."""
        return self._measurement.request

    @property
    def is_over(self) -> bool:
        """Whether all has been told that will be."""
        return self._measurement.is_over

    @property
    def halted(self) -> str:
        """Why it has ended before its time, by itself; empty if it has not."""
        return self._measurement.halted

    def now(self) -> FleetResult:
        """What is known until now."""

        async def now() -> FleetResult:
            return self._measurement.now()

        return self._fleet._do(now())

    def wait(self, seconds: float) -> bool:
        """Let time pass, and say whether it is over."""
        return self._fleet._do(self._measurement.wait(seconds))

    def stop(self) -> None:
        """End it before its time; the values until then are its result."""
        self._fleet._do(self._measurement.stop())

    def result(self) -> FleetResult:
        """Wait until it is over, and return what it came to."""
        return self._fleet._do(self._measurement.result())
