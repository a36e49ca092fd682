"""What asks the fleet, for programs with asyncio; ``blocking`` has the same for all others."""

from __future__ import annotations

import getpass
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from weft.base.names import did_you_mean
from weft.base.numbers import printable
from weft.errors import InvalidArgument, NoSuchProcess
from weft.fleet import reading
from weft.fleet.broker import (
    HOSTS_STREAM,
    REQUESTS_STREAM,
    SAMPLES_STREAM,
    Access,
    Broker,
    Denied,
    Lost,
    Stored,
    bucket_subject,
)
from weft.fleet.defining import check_metrics
from weft.fleet.fetching import Fetched, HostFiles, Progress, fetch, list_files
from weft.fleet.guards import Guard
from weft.fleet.measuring import PATIENCE, REST, FleetHost, Measurement, asked, deleted, of_host
from weft.fleet.names import (
    HOSTS,
    REQUESTS,
    checked,
    of_sample,
    request_key,
    sample_subject,
)
from weft.fleet.protocol import LONGEST, Ask, BadDocument, HostRecord, Report, Request
from weft.fleet.results import FleetResult, summed
from weft.fleet.selectors import Selector
from weft.fleet.stages import Stage
from weft.fleet.texts import read as read_texts
from weft.metrics.catalogue import metric_and_focus

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["AsyncFleet", "Running"]

_CONNECT = 5.0


@dataclass(frozen=True)
class Running:
    """A request that the broker has, and what the hosts have told for it until now."""

    request: Request
    age: float
    """How long ago it was made, in seconds."""
    result: FleetResult
    problem: str = ""
    """Why nothing is known of it but its key: it is of another version of the protocol."""


class AsyncFleet:
    """The hosts that a broker knows, for programs with asyncio.

    ```python
    async with weft.AsyncFleet("nats://127.0.0.1") as fleet:
        result = await fleet.run("calls@processCommand", where="exe=redis-server", seconds=10)
        print(result.totals[0].value)
    ```
    """

    def __init__(
        self,
        url: str,
        *,
        credentials: str | Path | None = None,
        authority: str | Path | None = None,
        requester: str | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        access = Access(
            url,
            None if credentials is None else Path(credentials),
            None if authority is None else Path(authority),
        )
        self.requester = checked(requester or _requester(url), "a requester")
        self._broker = Broker(access, say)
        self.is_restricted = False
        """Whether :meth:`status` has last left out the requests of others."""

    async def __aenter__(self) -> Self:
        await self._broker.connect(_CONNECT)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._broker.close()

    async def hosts(self, where: str = "*") -> list[FleetHost]:
        """The hosts that are there, by their names; and what they run, as far as it is meant.

        What a host tells of its programs says nothing of single processes, such as their ids.
        """
        selector = Selector.parse(where)
        stored = await self._broker.all(HOSTS_STREAM, bucket_subject(HOSTS, ">"))
        now = self._now(stored)
        found = []
        for one in stored:
            read = reading.host(one)
            if read is not None and (meant := _meant(read[0], selector)):
                found.append(FleetHost(meant, now - one.time, read[1]))
        return sorted(found, key=lambda one: one.record.host)

    def _now(self, stored: Iterable[Stored]) -> float:
        """The time by the broker's clock, of which hosts and requests have their times.

        It is not that of the newest: a dead host that is alone is the newest for ever.
        """
        return max([self._broker.clock, *(one.time for one in stored)])

    def request(
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
    ) -> Request:
        """Return a request; what makes no sense raises an error."""
        asks = tuple(Ask(*metric_and_focus(name)) for name in _each(metrics))
        request = Request(
            id=secrets.token_hex(6),
            requester=self.requester,
            metrics=asks,
            where=where,
            seconds=float(seconds),
            interval=float(interval),
            budget=budget,
            texts=_each(texts),
            probes=_each(probes),
            by=by or "",
        )
        Selector.parse(where)
        try:
            request = Request.decode(request.encode())
        except (BadDocument, ValueError) as error:
            why = error.why if isinstance(error, BadDocument) else str(error)
            raise InvalidArgument("this cannot be asked of a fleet", why) from None
        check_metrics(request, read_texts(request))
        return request

    async def start(
        self,
        request: Request,
        *,
        patience: float = PATIENCE,
        first: str = "all",
        rest: float = REST,
        guards: str | Iterable[str] = (),
    ) -> Measurement:
        """Have the fleet begin to measure: see :meth:`run`."""
        for name, number in (("patience", patience), ("rest", rest)):
            if not 0 <= number <= LONGEST:  # nor is NaN
                why = f"it is a number of seconds, from 0 to {LONGEST:g}"
                raise InvalidArgument(f"{name} cannot be {number}", why)
        keys = [*asked(request), *((one.name, "") for one in read_texts(request).metrics)]
        measurement = Measurement(
            self._broker,
            request,
            patience,
            Stage.parse(first),
            rest,
            [Guard.parse(one, keys) for one in _each(guards)],
        )
        await measurement.start(await self.hosts())
        return measurement

    async def run(
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
        """Measure metrics in all processes that are meant, and return what they come to.

        ``where`` says which processes; ``budget`` is what part of its time each may lose. With
        ``by`` each value is divided as well, by ``process`` or as :meth:`weft.Session.metric` does.

        ``patience`` is for how many seconds the last values of hosts are waited for that do not
        answer; then they are marked as missing.

        ``first`` are stages, ``"1 then 10% then all"``: so many hosts are asked first, and more
        ``rest`` seconds after they have begun, unless one of them has refused or shed it.

        ``guards`` are comparisons, ``"latency.p99@processCommand < 2ms"``: when the values of any
        host are not so, the request ends on all of them.
        """
        request = self.request(
            metrics,
            where=where,
            seconds=seconds,
            interval=interval,
            budget=budget,
            probes=probes,
            texts=texts,
            by=by,
        )
        running = await self.start(
            request, patience=patience, first=first, rest=rest, guards=guards
        )
        return await running.result()

    async def status(self) -> list[Running]:
        """The requests that the broker has, the newest first.

        Who may not read the answers to others sees only requests of one's own, and
        ``is_restricted`` says so.
        """
        requests = await self._broker.all(REQUESTS_STREAM, bucket_subject(REQUESTS, ">"))
        self.is_restricted = False
        try:
            samples = await self._broker.all(SAMPLES_STREAM, sample_subject("*", "*"))
        except Denied:
            self.is_restricted = True
            own = bucket_subject(REQUESTS, request_key(self.requester, ""))
            requests = [one for one in requests if one.subject.startswith(own)]
            samples = await self._broker.all(SAMPLES_STREAM, sample_subject(self.requester, "*"))
        now = self._now([*requests, *samples])
        reports: dict[tuple[str, str], list[Report]] = {}
        others: dict[tuple[str, str], dict[str, str]] = {}
        for one in samples:
            if (place := of_sample(one.subject)) is not None:
                key = place[:2]
                if report := reading.report(one.subject, one.data, others.setdefault(key, {})):
                    reports.setdefault(key, []).append(report)
        found = []
        for one in sorted(requests, key=lambda one: -one.time):
            if (read := reading.request(one)) is not None:
                request, problem = read
                key = request.requester, request.id
                its = reports.get(key, [])
                is_over = bool(its) and all(report.final for report in its)
                result = summed(
                    request.id,
                    its,
                    {},
                    asked(request),
                    is_over=is_over,
                    by=request.by,
                    others=others.get(key, {}),
                )
                found.append(Running(request, now - one.time, result, problem))
        return found

    async def files(self, where: str = "*", *, patience: float = PATIENCE) -> list[HostFiles]:
        """The files that hosts offer, by the names of the hosts."""
        with suppress(Lost):  # hosts that may not make it need somebody who may
            await self._broker.prepare_files()
        records = [one.record for one in await self.hosts(where) if not one.problem]
        return await list_files(self._broker, self.requester, records, patience)

    async def fetch(
        self,
        host: str,
        name: str,
        path: str | Path,
        *,
        patience: float = PATIENCE,
        progress: Progress = lambda doing, done, size: None,
    ) -> Fetched:
        """Have a host send a file that it offers, and write it to a path, for its owner only.

        There it is only when all of it has arrived, and is what the host has read; what was there
        before stays otherwise. ``patience`` is for how many seconds nothing may be heard.
        """
        records = {one.record.host: one for one in await self.hosts()}
        if host not in records:
            why = did_you_mean(host, records, "it has not registered: weft fleet ps")
            raise NoSuchProcess(f"there is no host {printable(host)}", advice=why)
        if problem := records[host].problem:
            raise NoSuchProcess(f"cannot fetch files of {host}", problem)
        return await fetch(
            self._broker,
            self.requester,
            records[host].record,
            name,
            Path(path),
            patience,
            progress,
        )

    async def stop(self, request: str) -> str:
        """End a request of one's own before its time, by its id or the beginning of that.

        Return its whole id.
        """
        own = [
            one.request for one in await self.status() if one.request.requester == self.requester
        ]
        meant = [one for one in own if one.id == request]
        if request and not meant:
            meant = [one for one in own if one.id.startswith(request)]
        if len(meant) != 1:
            many = (
                f"{len(meant)} begin like this" if meant else f"{self.requester} has none like it"
            )
            raise InvalidArgument(
                f"there is no request {request!r}", many, "list the requests: weft fleet status"
            )
        await deleted(self._broker, meant[0])
        return meant[0].id


def _meant(record: HostRecord, selector: Selector) -> HostRecord | None:
    """A host with those of its programs that may be meant; nothing if it is not itself."""
    if not selector.may_match(of_host(record)):
        return None
    programs = (
        one
        for one in record.programs
        if selector.may_match(
            {
                **of_host(record),
                "exe": (one.name, one.exe.rpartition("/")[2], one.exe),
                "build_id": (one.build_id,),
                "user": (one.user,),
                "cgroup": (one.cgroup,),
                "container": (one.container,),
            }
        )
    )
    return replace(record, programs=tuple(programs))


def _each(texts: str | Iterable[str]) -> tuple[str, ...]:
    """A text that is given alone is not its characters."""
    return (texts,) if isinstance(texts, str) else tuple(texts)


def _requester(url: str) -> str:
    """In whose name one asks if nothing is said: the user of the broker, or of this machine."""
    with suppress(ValueError):
        if name := urlsplit(url).username:
            return name
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
