"""A request that is measured, and what its hosts tell of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from weft.fleet import reading
from weft.fleet.broker import (
    REQUESTS_STREAM,
    SAMPLES_STREAM,
    Broker,
    Denied,
    Lost,
    Stale,
    bucket_subject,
)
from weft.fleet.dividing import divided
from weft.fleet.folding import merged
from weft.fleet.guards import Guard
from weft.fleet.names import (
    REQUESTS,
    request_key,
    sample_subject,
)
from weft.fleet.protocol import HostRecord, Report, Request, State
from weft.fleet.results import FleetResult, summed
from weft.fleet.selectors import Selector
from weft.fleet.stages import Stage

__all__ = ["PATIENCE", "REST", "FleetHost", "Measurement", "asked", "deleted", "of_host"]

REST = 5.0
"""For how long a stage is looked at before the next, in seconds."""
PATIENCE = 15.0
"""For how long the last values of a host are waited for, in seconds."""
_SILENT = 20.0
"""A host that has said nothing for so long, in seconds, is not waited for."""
_RESYNC = 5.0
_RETRY = 0.25
_CONNECT = 5.0
_SOON = 1.0
_REST_SHARE, _LEAST_REST, _MOST_REST = 9, 0.05, 2.0
"""How much longer than reading what was heard has taken it is waited before more is read, and for
how many seconds at least and at most."""


@dataclass(frozen=True)
class FleetHost:
    """A host that is there."""

    record: HostRecord
    silent_for: float
    """How long ago it last said so, in seconds, by the broker's clock."""
    problem: str = ""
    """Why it cannot be asked: it speaks another version of the protocol."""


class Measurement:
    """A request that is measured; made by :meth:`AsyncFleet.start`."""

    def __init__(
        self,
        broker: Broker,
        request: Request,
        patience: float,
        stages: Sequence[Stage] = (),
        rest: float = REST,
        guards: Sequence[Guard] = (),
    ) -> None:
        self.request = request
        self.halted = ""
        """Why it has ended before its time, by itself; empty if it has not."""
        self._stages = [*stages]
        self._guards = guards
        self._violated: dict[str, str] = {}
        """The hosts whose values are not as the guards say, each with what is wrong."""
        self._rest = rest
        self._revision = 0
        self._all: dict[str, HostRecord] = {}
        """All hosts that may be meant, those of later stages included."""
        self._broker = broker
        self._patience = patience
        self._subject = sample_subject(request.requester, request.id)
        self._reports: dict[tuple[str, int], Report] = {}
        self._expected: dict[str, HostRecord] = {}
        self._silent: set[str] = set()
        """Those of them that are not waited for."""
        self._others: dict[str, str] = {}
        """The hosts that speak another version of the protocol, each with what is said of that."""
        self._heard = asyncio.Event()
        self._unread: dict[str, bytes] = {}
        """What was heard and not read yet, by subject."""
        self._valued: set[str] = set()
        """The subjects of which values were read."""
        self._due = 0.0
        """When more of these may be read at the earliest."""
        self._due_first = 0.0
        """The same of others."""
        self._alarm: asyncio.TimerHandle | None = None
        self._known: dict[str, bytes] = {}
        """What was read last, by subject."""
        self._deadline = 0.0
        self._is_stopped = False
        self._follower: asyncio.Task[None] | None = None

    async def start(self, hosts: Sequence[FleetHost]) -> None:
        """Make the request."""
        selector = Selector.parse(self.request.where)
        for one in hosts:
            record = one.record
            if selector.may_match(of_host(record)) and self.request.is_for(record.host):
                if one.problem:
                    self._others[record.host] = one.problem
                    continue
                self._all[record.host] = record
                if one.silent_for > _SILENT:
                    self._silent.add(record.host)
        await self._broker.listen(self._subject, self._hear)
        await self._widen()
        self._follower = asyncio.create_task(self._follow())

    async def _widen(self) -> None:
        """Ask the hosts of the next stage; of the last, all."""
        if self._stages:
            # Those that answer come first: one finds out most from them.
            names = sorted(self._all, key=lambda name: (name in self._silent, name))
            some = self._stages.pop(0).of(names)
            self.request = replace(self.request, hosts=tuple(some))
            self._expected = {name: self._all[name] for name in some}
        else:
            self.request = replace(self.request, hosts=None)
            self._expected = self._all
        await self._store()
        self._deadline = asyncio.get_running_loop().time() + self.request.seconds

    async def _go_through_stages(self) -> None:
        """Widen the request from stage to stage, as long as nothing speaks against it."""
        loop = asyncio.get_running_loop()
        while self._stages or self.request.hosts is not None:
            end = loop.time() + self._patience
            while loop.time() < end and not self._have_begun() and not self._objection():
                await self._hint(end)
            end = loop.time() + self._rest
            while loop.time() < end and not self._objection():
                await self._hint(end)
            if self._deadline <= loop.time():
                asked = f"{len(self._expected)} of {len(self._all)} hosts"
                self.halted = f"it was over when {asked} had been asked"
                return
            why = self._objection()
            if not why and not self._have_begun():
                why = "not all of its hosts have begun to measure"
            if why:
                await self._halt(why)
                return
            await self._widen()

    async def _halt(self, why: str) -> None:
        self.halted = f"it was stopped at {len(self._expected)} of {len(self._all)} hosts: {why}"
        await self.stop()

    async def _hint(self, end: float) -> None:
        """Wait until something is heard, or for a moment."""
        if not await self._listen(min(end - asyncio.get_running_loop().time(), _SOON)):
            with suppress(Lost):
                await self._read()

    def _have_begun(self) -> bool:
        newest = self._newest()
        begun = ("measuring", "idle", "done")
        return all(name in newest and newest[name].state in begun for name in self._expected)

    def _objection(self) -> str:
        """What speaks against more hosts: that one of those until now could not take it."""
        if self._violated:
            return self._violation()
        for name, report in sorted(self._newest().items()):
            if report.state in ("shed", "refused"):
                return f"{name} has {report.state} it: {'; '.join(report.notes[:1])}"
            if not report.complete:
                return f"{name}: {'; '.join(report.notes[:1])}"
        return ""

    def _violation(self) -> str:
        """Which host was first to violate a guard, and which one."""
        return "".join([f"{name}: {why}" for name, why in self._violated.items()][:1])

    async def _store(self) -> None:
        subject = bucket_subject(REQUESTS, request_key(self.request.requester, self.request.id))
        data = self.request.encode()
        loop = asyncio.get_running_loop()
        end = loop.time() + _CONNECT
        while True:
            try:
                self._revision = await self._broker.store(subject, data, self._revision)
            except Stale:
                # It was stored before, although no answer came: nobody else knows its id.
                for one in await self._broker.all(REQUESTS_STREAM, subject):
                    self._revision = one.revision
                    if one.data == data:
                        return
            except Lost as error:
                if loop.time() > end or isinstance(error, Denied):
                    raise
                await asyncio.sleep(_RETRY)
            else:
                return

    def now(self) -> FleetResult:
        """What is known until now."""
        return self._summed(is_over=False)

    def states(self) -> dict[str, State]:
        """What each host does that has answered, without its values: that takes much less."""
        return {name: report.state for name, report in self._newest().items()}

    async def updates(self, interval: float = 1.0) -> AsyncIterator[FleetResult]:
        """What is known, now and then, as long as it is measured."""
        while not self.is_over:
            yield self.now()
            await self.wait(interval)

    async def wait(self, seconds: float) -> bool:
        """Let time pass, and say whether it is over."""
        assert self._follower is not None
        await asyncio.wait([self._follower], timeout=seconds)
        return self.is_over

    @property
    def is_over(self) -> bool:
        """Whether all has been told that will be."""
        return self._follower is not None and self._follower.done()

    async def stop(self) -> None:
        """End it before its time; the values until then are its result."""
        self._deadline = min(self._deadline, asyncio.get_running_loop().time())
        self._is_stopped = True
        with suppress(Lost):  # it is tried again
            await deleted(self._broker, self.request)
        self._heard.set()

    async def result(self) -> FleetResult:
        """Wait until it is over, and return what it came to."""
        assert self._follower is not None
        await asyncio.shield(self._follower)
        return self._summed(is_over=True)

    def _summed(self, *, is_over: bool) -> FleetResult:
        return summed(
            self.request.id,
            self._reports.values(),
            self._expected,
            asked(self.request),
            is_over=is_over,
            unasked=self._all.keys() - self._expected.keys(),
            others=self._others,
            violated=self._violated,
            halted=self.halted,
            by=self.request.by,
        )

    def _hear(self, subject: str, data: bytes) -> None:
        """Keep what has come until it is read: only the last of a start of a host needs to be."""
        self._unread[subject] = data
        self._wake(self._due if subject in self._valued else self._due_first)

    def _wake(self, at: float) -> None:
        if self._alarm is None or at < self._alarm.when():
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = asyncio.get_running_loop().call_at(at, self._heard.set)

    async def _listen(self, seconds: float) -> bool:
        """Wait until something is heard, but no longer than that, and read it; say whether it was.

        First values are read soon. Of others that come faster than they can be read, only the last
        are.
        """
        loop = asyncio.get_running_loop()
        try:
            await asyncio.wait_for(self._heard.wait(), max(seconds, 0.0))
        except asyncio.TimeoutError:
            return False
        self._heard.clear()
        self._alarm = None
        began, unread = loop.time(), self._unread
        is_due = began >= self._due
        self._unread = {} if is_due else {key: unread[key] for key in unread.keys() & self._valued}
        self._see([(key, data) for key, data in unread.items() if key not in self._unread])
        now = loop.time()
        self._due_first = now + _LEAST_REST
        if is_due:
            rest = min(_REST_SHARE * (now - began), _MOST_REST) if now < self._deadline else 0.0
            self._due = now + max(rest, _LEAST_REST)
        elif self._unread:
            self._wake(self._due)
        return True

    def _see(self, documents: Iterable[tuple[str, bytes]]) -> None:
        fresh: dict[tuple[str, int], Report] = {}
        for subject, data in documents:
            # When all is read again, most of it is known.
            if self._known.get(subject) == data:
                continue
            if (report := reading.report(subject, data, self._others)) is not None:
                self._known[subject] = data
                if report.state != "weaving":
                    self._valued.add(subject)
                fresh[report.host, report.epoch] = report
        self._reports = merged(self._reports, fresh)
        if self._guards:
            for report in fresh.values():
                wholes = [each.whole for each in divided(report.series, self.request.by)]
                why = next(filter(None, (guard.violation(wholes) for guard in self._guards)), "")
                if why:
                    self._violated.setdefault(report.host, why)

    async def _read(self) -> None:
        """Read what the broker has stored."""
        stored = await self._broker.all(SAMPLES_STREAM, self._subject)
        self._see((one.subject, one.data) for one in stored)

    async def _follow(self) -> None:
        """Wait until all hosts have told their last values, or for as long as one is patient."""
        loop = asyncio.get_running_loop()
        read = 0.0
        if self._stages or self.request.hosts is not None:
            await self._go_through_stages()
        while True:
            if self._violated and not self.halted:
                await self._halt(self._violation())
            now = loop.time()
            is_late = now >= self._deadline
            # Without any host that has answered one may come until the time is over.
            is_done = (is_late or self._reports) and not self._open_hosts(without_silent=is_late)
            if is_done or now >= self._deadline + self._patience:
                break
            if now >= read or self._broker.came_back.is_set():
                self._broker.came_back.clear()
                with suppress(Lost):
                    if self._is_stopped:
                        # The broker may have been away, or it was stored again by somebody.
                        await deleted(self._broker, self.request)
                    await self._read()
                read = loop.time() + (_RESYNC if not is_late else _SOON)
                continue
            due = [read, self._deadline, self._deadline + self._patience]
            left = [one - loop.time() for one in due if one > now]
            await self._listen(max(min(left, default=_RETRY), _RETRY))
        end = loop.time() + self._patience
        while loop.time() < end:
            try:
                await self._read()
                await deleted(self._broker, self.request)
            except Lost:
                await asyncio.sleep(_RETRY)
            else:
                break

    def _newest(self) -> dict[str, Report]:
        """The newest start of each host."""
        newest: dict[str, Report] = {}
        for (host, epoch), report in self._reports.items():
            if host not in newest or newest[host].epoch < epoch:
                newest[host] = report
        return newest

    def _open_hosts(self, *, without_silent: bool) -> set[str]:
        """The hosts of which more is to come."""
        newest = self._newest()
        # Of one that speaks another version no end can be seen.
        names = {*self._expected, *newest} - self._others.keys()
        if without_silent:
            names -= self._silent - newest.keys()
        return {name for name in names if name not in newest or not newest[name].final}


def of_host(record: HostRecord) -> dict[str, tuple[str, ...]]:
    """What selectors may ask of a host."""
    labels = {f"label.{name}": (value,) for name, value in record.labels.items()}
    return {"host": (record.host,), **labels}


def asked(request: Request) -> list[tuple[str, str]]:
    """The metrics that are asked for by name, each with its focus."""
    return [(one.metric, one.focus) for one in request.metrics]


async def deleted(broker: Broker, request: Request) -> None:
    """End a request: hosts that see that it is gone measure it no more."""
    await broker.delete(bucket_subject(REQUESTS, request_key(request.requester, request.id)))
