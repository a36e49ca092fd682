"""The service of one machine: it measures what requests want, as far as its policy allows it."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft import _native
from weft.errors import InvalidArgument, WeftError
from weft.fleet.audit import Audit
from weft.fleet.broker import (
    HOSTS_STREAM,
    REQUESTS_STREAM,
    Access,
    Broker,
    Lost,
    Stale,
    Stored,
    bucket_subject,
)
from weft.fleet.claims import Claims
from weft.fleet.inventory import Inventory, programs
from weft.fleet.local import LocalMachine, not_to_be_seen
from weft.fleet.machine import Measures, Processes, RequestKey
from weft.fleet.names import HOSTS, REQUESTS, host_key, of_request, request_key
from weft.fleet.plan import Identity
from weft.fleet.protocol import (
    MOST_BYTES,
    BadDocument,
    FileRequest,
    HostRecord,
    OtherVersion,
    Request,
    wanted,
)
from weft.fleet.selectors import Selector
from weft.fleet.sending import Sending
from weft.fleet.service import HostOptions
from weft.fleet.serving import Serving
from weft.fleet.sinks import Sinks
from weft.fleet.tasks import cancelled
from weft.fleet.texts import Reader
from weft.fleet.weaving import Weaver

__all__ = ["Host"]

_HEARTBEAT = 5.0
"""How often a host says that it is there, in seconds."""
_RESYNC = 10.0
"""How often it is looked whether something was missed."""
_LEAVING = 10.0
"""For how long it is tried to publish the last values when the service is to end."""
_RETRY = 0.5
_SOON = 0.25
_MOST_SERVED = 64
"""How many requests are served at a time, whoever asks."""
_MOST_AT_ONCE = 1000
"""How many requests are looked at at a time, most of them to be refused."""
_MOST_REMEMBERED = 200_000
_MOST_NAMED = 20
"""How many processes are named in a line."""
_STALE = 60.0
"""For how long after its end a request is still answered, in seconds: front ends wait for less, if
they are not told to be more patient; then they say that this host is silent."""
_HEALTH = 2.0
"""How often it is looked how the machine is, in seconds: the kernel does not know more."""
_LOAD_WINDOW = 10.0
"""Over how many seconds it is looked what all of it costs the machine."""


class Host:
    """The service; :meth:`run` it."""

    def __init__(
        self,
        access: Access,
        options: HostOptions,
        audit: Audit,
        say: Callable[[str], None] = lambda text: None,
        processes: Processes | None = None,
        weaver: Measures | None = None,
        sinks: Sinks | None = None,
    ) -> None:
        """Without ``processes`` and ``weaver``, it is that of the machine that it runs on.

        ``sinks`` are told what is measured, beside the broker.
        """
        self.options = options
        self.audit = audit
        self.say = say
        self.broker = Broker(access, say)
        self.machine = LocalMachine(
            processes or Inventory(options.name, options.labels, options.only),
            weaver or Weaver(),
            Claims(options.claims),
        )
        self.sinks = sinks
        self.reader = Reader()
        self.epoch = 0
        """Which start this is: the broker counts them."""
        self._instance = f"{_machine()}-{secrets.token_hex(8)}"
        self._revision = 0
        self._servings: dict[RequestKey, Serving | Sending] = {}
        self._tasks: dict[RequestKey, asyncio.Task[None]] = {}
        self._over: OrderedDict[RequestKey, None] = OrderedDict()
        """The requests that need nothing more; the newest are remembered."""
        self._hinted: OrderedDict[str, None] = OrderedDict()
        self._woken = asyncio.Event()
        self._seen = -1

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop; then everything is taken out of all processes."""
        self.machine.open(self._instance)
        try:
            if await _first(stop.wait(), self._begin()) == 1:
                self.say(f"{self.options.name} is ready")
                await self._say_hidden()
                await _first(
                    stop.wait(),
                    self._follow(),
                    self._stay_registered(),
                    self._watch_load(),
                    self._watch_health(),
                )
        finally:
            await self._leave()

    async def _begin(self) -> None:
        """Be there, however long it takes until there is a broker."""
        await self.broker.connect(None)
        await self.broker.listen(bucket_subject(REQUESTS, ">"), self._hear)
        await self._check_name()
        await self._register()
        found = await self.machine.clean()
        for pid in found.cleaned:
            self.say(f"removed what a killed weft had left in process {pid}")
        if found.left:
            some = ", ".join(map(str, found.left[:_MOST_NAMED]))
            more = f" and {rest} more" if (rest := len(found.left) - _MOST_NAMED) > 0 else ""
            self.say(
                f"a killed weft has left probes in processes that are not for this host, or cannot "
                f"be attached to now: {some}{more}; a weft that attaches to them removes these"
            )

    async def _leave(self) -> None:
        """Read everything for the last time, publish it, and go."""
        for serving in self._servings.values():
            serving.stop("the host's service was stopped", complete=False)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks.values(), timeout=_LEAVING)
            await cancelled(*late, again=_LEAVING)
        await self.machine.weave(self.machine.weaver.close)
        if self._revision:
            with suppress(WeftError):
                key = bucket_subject(HOSTS, host_key(self.options.name))
                stored = await self.broker.last(HOSTS_STREAM, key)
                if stored is not None and stored.revision == self._revision:
                    await self.broker.delete(key)
        await self.broker.close()
        self.machine.close()

    async def _say_hidden(self) -> None:
        """Say what this host is not allowed to look at: its requests will be incomplete."""
        if hidden := sum(one.is_hidden for one in await self.machine.look()):
            many = "1 process" if hidden == 1 else f"{hidden} processes"
            self.say(f"{many} of others may not be looked at, nor measured: {not_to_be_seen()}")

    async def _check_name(self) -> None:
        """Leave the name to a host that has it and is there: it has come first."""
        subject = bucket_subject(HOSTS, host_key(self.options.name))
        loop = asyncio.get_running_loop()
        first, end = 0, loop.time() + 2 * _HEARTBEAT
        while loop.time() < end:
            try:
                stored = await self.broker.last(HOSTS_STREAM, subject)
            except Lost:
                await asyncio.sleep(_RETRY)
                continue
            other = "" if stored is None else _instance_of(stored)
            if stored is None or other == self._instance:
                return
            if other.startswith(f"{_machine()}-"):
                # One that was killed is not waited for.
                if self.machine.is_there(other):
                    raise self._name_is_taken("it is on this machine")
                return
            # Of another machine it is seen by what it says next.
            first = first or stored.revision
            if stored.revision != first:
                raise self._name_is_taken("it is on another machine")
            await asyncio.sleep(_RETRY)

    def _name_is_taken(self, why: str) -> InvalidArgument:
        return InvalidArgument(
            f"another host is called {self.options.name}",
            why,
            "give each host a name of its own: --name",
        )

    async def _register(self) -> None:
        """Say that this host is there. The number under which the broker stores that is the epoch.

        It is higher than that of any host of this name before.
        """
        subject, failure = bucket_subject(HOSTS, host_key(self.options.name)), ""
        while True:
            try:
                replaces = await self.broker.revision(HOSTS_STREAM, subject)
                self._revision = await self.broker.store(subject, await self._record(), replaces)
            except Stale:
                continue
            except Lost as error:
                if str(error) != failure:
                    self.say(f"cannot register: {error}")
                failure = str(error)
                await asyncio.sleep(_RETRY)
            else:
                self.epoch = self.epoch or self._revision
                return

    async def _record(self) -> bytes:
        there = await self.machine.look(oldest=_HEARTBEAT)
        record = HostRecord(
            self.options.name,
            self._instance,
            _native.__version__,
            self.options.labels,
            programs(there),
            files=self.options.offer is not None,
        )
        while len(data := record.encode()) > MOST_BYTES // 2:
            record = replace(record, programs=record.programs[: len(record.programs) // 2])
        return data

    async def _stay_registered(self) -> None:
        subject = bucket_subject(HOSTS, host_key(self.options.name))
        while True:
            await asyncio.sleep(_HEARTBEAT)
            try:
                self._revision = await self.broker.store(
                    subject, await self._record(), self._revision
                )
            except Stale:
                await self._see_other(subject)
            except Lost:
                continue

    async def _see_other(self, subject: str) -> None:
        """Find out who has registered under this name meanwhile."""
        try:
            stored = await self.broker.last(HOSTS_STREAM, subject)
            if stored is not None:
                if _instance_of(stored) != self._instance:
                    raise self._name_is_taken("it has registered after this one")
                # It was stored, although no answer came.
                self._revision = stored.revision
                return
        except Lost:
            return
        await self._register()

    # What is wanted.

    def _hear(self, subject: str, data: bytes) -> None:
        """Take note that something has changed; what, the broker says."""
        del data
        if len(self._hinted) < _MOST_REMEMBERED:
            self._hinted[subject] = None
        self._woken.set()

    async def _follow(self) -> None:
        """See requests that come and go."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            try:
                if loop.time() >= due or self.broker.came_back.is_set():
                    self.broker.came_back.clear()
                    await self._read_all()
                    due = loop.time() + _RESYNC
                while self._hinted:
                    subject, _ = self._hinted.popitem(last=False)
                    try:
                        stored = await self.broker.last(REQUESTS_STREAM, subject, even_gone=True)
                    except Lost:
                        self._hinted[subject] = None
                        raise
                    self._consider(subject, stored)
                    if stored is not None and stored.revision == self._seen + 1:
                        # Nothing else has happened, so not all has to be read again.
                        self._seen = stored.revision
                    else:
                        # The hint may have come before the broker had stored what it is about.
                        due = min(due, loop.time() + _SOON)
            except Lost:
                due = loop.time()
                await asyncio.sleep(_RETRY)
                continue
            self._woken.clear()
            if self._hinted or self.broker.came_back.is_set():
                continue
            waits = [
                asyncio.ensure_future(one.wait()) for one in (self._woken, self.broker.came_back)
            ]
            try:
                await asyncio.wait(
                    waits,
                    timeout=max(due - loop.time(), 0.0),
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                for one in waits:
                    one.cancel()

    async def _read_all(self) -> None:
        """Read all requests, if anything has happened to them that was not seen."""
        last = await self.broker.newest(REQUESTS_STREAM)
        if last == self._seen:
            return
        everything = await self.broker.all(REQUESTS_STREAM, bucket_subject(REQUESTS, ">"))
        for stored in everything:
            self._consider(stored.subject, stored)
        there = {stored.subject for stored in everything}
        # Its numbers only grow, unless what it had stored is gone.
        why = "the broker has lost the request, which ends before its time"
        lost = why if last < self._seen else ""
        for key, serving in self._servings.items():
            if bucket_subject(REQUESTS, request_key(*key)) not in there:
                serving.stop(lost, complete=not lost)
        self._seen = last

    def _consider(self, subject: str, stored: Stored | None) -> None:
        """Look at a request that is new, has changed, or is gone."""
        key = of_request(subject.removeprefix(bucket_subject(REQUESTS, "")))
        if key is None:
            return
        if stored is None or stored.is_gone:
            if key in self._servings:
                self._servings[key].stop()
            return
        if key in self._servings or key in self._over:
            return
        if len(self._servings) >= _MOST_AT_ONCE:
            # When all are read again, some of these will have been refused.
            self._seen = -1
            return
        try:
            request = wanted(stored.data)
            if (request.requester, request.id) != key:
                raise BadDocument(
                    "a request from the broker cannot be used",
                    f"it says that it is of {request.requester}",
                )
        except BadDocument as error:
            self.audit.note("refused", key[0], "a request", request=key[1], why=error.why)
            self._finish(key)
            return
        if not request.is_for(self.options.name):
            return
        if self.broker.clock > stored.time + request.seconds + _STALE:
            # Whoever has made it is no more, or it would have been removed.
            self._finish(key)
            return
        if isinstance(request, FileRequest):
            self._servings[key] = sending = self._sending(request, stored)
            refusal = sending.refusal(self.running(key[0]), is_full=self.is_full)
            running = sending.run(refusal)
        elif self._may_match(request):
            self._servings[key] = serving = Serving(self, key, request, stored)
            running = serving.run()
        else:
            return
        task = self._tasks[key] = asyncio.create_task(running)
        task.add_done_callback(lambda done: self._forget(key, done))

    def _sending(self, request: FileRequest, stored: Stored) -> Sending:
        options, place = self.options, (self.options.name, self.epoch)
        return Sending(
            self.broker, self.audit, options.policy, options.offer, request, stored, place
        )

    def _may_match(self, request: Request) -> bool:
        """Whether any process of this host may be meant; if not, it need not even answer."""
        try:
            return Selector.parse(request.where).may_match(self.machine.inventory.of_host)
        except InvalidArgument:
            # That it makes no sense is an answer.
            return True

    def _forget(self, key: RequestKey, task: asyncio.Task[None]) -> None:
        self._servings.pop(key, None)
        self._tasks.pop(key, None)
        self._finish(key)
        if self.sinks is not None:
            self.sinks.end(key)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.say(f"request {key[1]} of {key[0]} has failed: {error!r}")

    def _finish(self, key: RequestKey) -> None:
        self._over[key] = None
        while len(self._over) > _MOST_REMEMBERED:
            self._over.popitem(last=False)

    def running(self, requester: str) -> int:
        """How many requests of somebody are served."""
        return sum(one.is_served for key, one in self._servings.items() if key[0] == requester)

    def measured(self, requester: str) -> set[Identity]:
        """The processes that are measured for somebody."""
        return {
            identity
            for key, one in self._servings.items()
            if key[0] == requester
            for identity in one.measured
        }

    @property
    def is_full(self) -> bool:
        """Whether no more requests can be served."""
        return sum(one.is_served for one in self._servings.values()) >= _MOST_SERVED

    # What it costs.

    async def _watch_load(self) -> None:
        """Give up the newest request whenever all of them cost the machine too much."""
        processors = os.cpu_count() or 1
        while True:
            own, began = time.process_time() - self.machine.weaving, time.monotonic()
            await self.machine.weave(self.machine.weaver.load)
            await asyncio.sleep(_LOAD_WINDOW)
            lost = await self.machine.weave(self.machine.weaver.load)
            used = time.process_time() - self.machine.weaving - own + lost
            share = used / (time.monotonic() - began) / processors
            served = [one for one in self._servings.values() if one.is_served and one.measured]
            if served and share > self.options.policy.machine:
                text = f"all requests take {100 * share:.2g}% of the machine"
                served[-1].shed(f"{text}, and {100 * self.options.policy.machine:.2g}% are allowed")

    async def _watch_health(self) -> None:
        """Give up everything when the machine is under more pressure than it may be."""
        while True:
            await asyncio.sleep(_HEALTH)
            if trouble := self.options.policy.health.trouble():
                for one in self._servings.values():
                    if one.is_served:
                        one.shed(trouble)


async def _first(*several: Coroutine[Any, Any, object]) -> int:
    """Do several things until one of them ends, and say which; an error of any is raised."""
    tasks = [asyncio.create_task(one) for one in several]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await cancelled(*others)
    for task in done:
        task.result()
    return min(tasks.index(task) for task in done)


def _machine() -> str:
    """What tells a run of this machine from all others."""
    return Path("/proc/sys/kernel/random/boot_id").read_text()[:13].replace("-", "")


def _instance_of(stored: Stored) -> str:
    """Which start of a host has registered; empty if that cannot be read."""
    with suppress(OtherVersion, BadDocument):
        return HostRecord.decode(stored.data).instance
    return ""
