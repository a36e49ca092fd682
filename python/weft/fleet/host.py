"""The service of one machine: it measures what requests want, as far as its policy allows it."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from weft import _native
from weft.errors import BadMetric, InvalidArgument, WeftError
from weft.fleet.audit import Audit, Outcome
from weft.fleet.broker import (
    HOSTS_STREAM,
    REQUESTS_STREAM,
    SAMPLES_STREAM,
    Access,
    Broker,
    Lost,
    Stale,
    Stored,
    bucket_subject,
)
from weft.fleet.claims import Claims
from weft.fleet.dividing import PROCESS, bounded, fitted
from weft.fleet.folding import Series, folded
from weft.fleet.inventory import Inventory, programs
from weft.fleet.machine import Measures, Processes, RequestKey
from weft.fleet.names import HOSTS, REQUESTS, host_key, of_request, request_key, sample_subject
from weft.fleet.offering import Offer
from weft.fleet.plan import Identity, Process, changes
from weft.fleet.policy import Policy
from weft.fleet.protocol import (
    MOST_BYTES,
    BadDocument,
    FileRequest,
    HostRecord,
    OtherVersion,
    Report,
    Request,
    State,
    short_notes,
    wanted,
)
from weft.fleet.selectors import EVERYTHING, Selector
from weft.fleet.sending import Sending
from weft.fleet.sinks import Sinks
from weft.fleet.tasks import cancelled
from weft.fleet.texts import Reader, Snippets, Texts, explain
from weft.fleet.weaving import Weaver, said

__all__ = ["Host", "HostOptions"]

_HEARTBEAT = 5.0
"""How often a host says that it is there, in seconds."""
_RESYNC = 10.0
"""How often it is looked whether something was missed."""
_LOOK = 1.0
"""How often it is looked at most for processes that have come or gone."""
_LOOK_SHARE = 100
"""How much longer to rest than a look takes."""
_LATE = 5.0
"""How long after a request was made measuring may begin without that being said."""
_KEPT = 3600.0
"""For how long it is tried to publish the last values, in seconds."""
_LEAVING = 10.0
"""The same when the service is to end."""
_RETRY = 0.5
_SOON = 0.25
_MOST_SERVED = 64
"""How many requests are served at a time, whoever asks."""
_MOST_AT_ONCE = 1000
"""How many requests are looked at at a time, most of them to be refused."""
_MOST_REMEMBERED = 200_000
_MOST_WEAVING = 60.0
"""How much processor time it may take to begin to measure for a request, in seconds."""
_HEALTH = 2.0
"""How often it is looked how the machine is, in seconds: the kernel does not know more."""
_LOAD_WINDOW = 10.0
"""Over how many seconds it is looked what all of it costs the machine."""

_LONGEST_WHAT = 1000
"""How much of what was asked for is in the audit log."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class HostOptions:
    """What a host is, and what it may do."""

    name: str
    labels: Mapping[str, str]
    policy: Policy
    claims: Path
    """The folder by which several hosts of one machine know of each other."""
    only: Selector = EVERYTHING
    """The processes that there are for this host."""
    offer: Offer | None = None
    """The files that can be fetched."""


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
        self.claims = Claims(options.claims)
        self.inventory = processes or Inventory(options.name, options.labels, options.only)
        self.weaver = weaver or Weaver()
        self.sinks = sinks
        self.reader = Reader()
        self.epoch = 0
        """Which start this is: the broker counts them."""
        self._instance = secrets.token_hex(8)
        self._revision = 0
        self._servings: dict[RequestKey, _Serving | Sending] = {}
        self._tasks: dict[RequestKey, asyncio.Task[None]] = {}
        self._over: OrderedDict[RequestKey, None] = OrderedDict()
        """The requests that need nothing more; the newest are remembered."""
        self._holders: dict[str, set[RequestKey]] = {}
        """Who needs the locks that this host holds."""
        self._since: dict[str, int] = {}
        """Since when it holds them."""
        self._hinted: OrderedDict[str, None] = OrderedDict()
        self._woken = asyncio.Event()
        self._seen = -1
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weft-weaver")
        self._weaving = 0.0
        """How much processor time weaving has taken."""
        self._looked: tuple[float, list[Process]] = (-_LOOK, [])
        self._looking = asyncio.Lock()
        self._rest = 0.0
        """How long to rest between two looks, because of what they take."""

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop; then everything is taken out of all processes."""
        self.claims.take(self._namespace(self.inventory.netns))
        try:
            if await _first(stop.wait(), self._begin()) == 1:
                self.say(f"{self.options.name} is ready")
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
        await self._register()
        await self.weave(self._clean)

    async def _leave(self) -> None:
        """Read everything for the last time, publish it, and go."""
        for serving in self._servings.values():
            serving.stop("the host's service was stopped", complete=False)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks.values(), timeout=_LEAVING)
            await cancelled(*late, again=_LEAVING)
        await self.weave(self.weaver.close)
        self._thread.shutdown()
        if self._revision:
            with suppress(WeftError):
                key = bucket_subject(HOSTS, host_key(self.options.name))
                stored = await self.broker.last(HOSTS_STREAM, key)
                if stored is not None and stored.revision == self._revision:
                    await self.broker.delete(key)
        await self.broker.close()
        self.claims.close()

    async def weave(self, do: Callable[[], _T]) -> _T:
        """Have the thread that weaves do something."""

        def timed() -> _T:
            began = time.thread_time()
            try:
                return do()
            finally:
                self._weaving += time.thread_time() - began

        return await asyncio.get_running_loop().run_in_executor(self._thread, timed)

    def _clean(self) -> None:
        """Take out what a weft has left that was killed: this service before it was started."""
        own = {process.pid for process in self.inventory.look()}
        for pid in self.weaver.clean(own):
            self.say(f"removed what a killed weft had left in process {pid}")

    @staticmethod
    def _namespace(number: str) -> str:
        return f"netns-{number}"

    # What runs here.

    async def look(self, *, oldest: float = _LOOK / 2) -> list[Process]:
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
        return not is_own and self.claims.is_anothers(self._namespace(netns))

    def hold(self, lock: str, key: RequestKey) -> bool:
        """Keep other hosts of this machine from a process, if none holds it already."""
        if not self.claims.take(lock):
            return False
        self._holders.setdefault(lock, set()).add(key)
        self._since.setdefault(lock, _ticks())
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
            self.claims.release(lock)

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
        there = await self.look(oldest=_HEARTBEAT)
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
                try:
                    instance = HostRecord.decode(stored.data).instance
                except OtherVersion:
                    instance = ""
                if instance != self._instance:
                    raise InvalidArgument(
                        f"another host is called {self.options.name}",
                        "it has registered after this one",
                        "give each host a name of its own: --name",
                    )
                # It was stored, although no answer came.
                self._revision = stored.revision
                return
        except (Lost, BadDocument):
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
        for key, serving in self._servings.items():
            if bucket_subject(REQUESTS, request_key(*key)) not in there:
                serving.stop()
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
        if isinstance(request, FileRequest):
            self._servings[key] = sending = self._sending(request, stored)
            refusal = sending.refusal(self.running(key[0]), is_full=self.is_full)
            running = sending.run(refusal)
        elif self._may_match(request):
            self._servings[key] = serving = _Serving(self, key, request, stored)
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
            return Selector.parse(request.where).may_match(self.inventory.of_host)
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
            own, began = time.process_time() - self._weaving, time.monotonic()
            await self.weave(self.weaver.load)
            await asyncio.sleep(_LOAD_WINDOW)
            lost = await self.weave(self.weaver.load)
            used = time.process_time() - self._weaving - own + lost
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


class _Serving:
    """One request that a host serves."""

    def __init__(self, host: Host, key: RequestKey, request: Request, stored: Stored) -> None:
        self.is_served = False
        """Whether it was decided that it is served."""
        self._is_first = False
        """Whether this host has told nothing of it before it was started anew."""
        self._host = host
        self._key = key
        self._request = request
        self._asked = stored.time
        self._subject = sample_subject(*key, host.options.name, host.epoch)
        self._selector: Selector | None = None
        self._texts = Texts("library")
        self._measured: dict[Identity, Process] = {}
        self._locks: dict[Identity, str] = {}
        self._accepted = 0.0
        """When measuring began, by the clock of the event loop."""
        self._ever = 0
        """How many processes were measured."""
        self._settled: dict[Identity, Process] = {}
        self._inherited: dict[Identity, Identity] = {}
        """Those of them that were forked by a process that is measured, and by which."""
        self._ended: list[tuple[Series, ...]] = []
        """What was measured in processes that are no more."""
        self._notes: dict[str, None] = {}
        self._wove = 0.0
        """How much processor time it has taken to begin with its processes."""
        self._reasons: dict[str, None] = {}
        """Those of the notes that say why something is missing from all values."""
        self._complete = True
        self._refused = 0
        self._ending: State | None = None
        self._over = asyncio.Event()
        self._seq = 0
        self._revision: int | None = 0
        """What the broker has of this; nothing if that is not known."""
        self._latest: Report | None = None
        self._newer = asyncio.Event()
        self._series: list[tuple[Series, ...]] = []
        """What was last read of those that are measured."""

    @property
    def measured(self) -> Collection[Identity]:
        """The processes that are measured for it."""
        return self._measured.keys()

    def stop(self, why: str = "", *, complete: bool = True) -> None:
        """End it before its time."""
        self._finish("stopped", why, complete=complete)

    def shed(self, why: str) -> None:
        """End it because the machine cannot take it."""
        if self._ending is None:
            self._audit("shed", why=why)
            self._finish("shed", why, complete=False)

    def _finish(self, state: State, why: str, *, complete: bool) -> None:
        if self._ending is None:
            self._ending = state
            if why:
                self._note(why, complete=complete)
            self._over.set()

    def _note(self, text: str, *, complete: bool = False) -> None:
        self._notes[text] = None
        if not complete:
            self._complete = False
            self._reasons[text] = None

    def _audit(
        self,
        outcome: Outcome,
        process: Process | None = None,
        why: str = "",
        budget: float | None = None,
    ) -> None:
        request = self._request
        asks = [str(one) for one in request.metrics]
        self._host.audit.note(
            outcome,
            request.requester,
            ", ".join([*asks, *request.probes])[:_LONGEST_WHAT],
            request=request.id,
            where=request.where,
            pid=None if process is None else process.pid,
            program="" if process is None else process.facts["exe"][0],
            budget=budget,
            why=why,
        )

    async def run(self) -> None:
        """Do all that there is to do for it."""
        if await self._is_over():
            return
        why = self._refusal()
        if not why:
            # It counts as one of its requester's while its texts wait to be read.
            self.is_served = True
            why = await self._read()
        if why:
            self.is_served = False
            self._audit("refused", why=why)
            self._note(f"refused: {why}")
            await self._publish_last("refused")
            return
        self._audit("allowed")
        publisher = asyncio.create_task(self._keep_publishing())
        try:
            if (remaining := await self._accept()) is not None:
                await self._measure(remaining)
                self._audit("ended", why=self._ending or "")
        finally:
            await cancelled(publisher)
            # What is still measured is so because something has failed, or nobody waits for it.
            await self._end_all()
            self.is_served = False
        if self._seq:
            await self._publish_last(self._ending or "done")

    async def _is_over(self) -> bool:
        """Whether this host has told its last values before it was started anew.

        Then it counts for nothing that its requester may have.
        """
        every = sample_subject(*self._key, self._host.options.name)
        while self._ending is None:
            try:
                newest = await self._host.broker.last(SAMPLES_STREAM, every)
                self._is_first = newest is None or newest.subject == self._subject
                return not self._is_first and newest is not None and _is_final(newest)
            except (Lost, Stale):
                await asyncio.sleep(_RETRY)
        return False

    def _refusal(self) -> str:
        """Why it is not served, before its texts are looked at; empty if nothing is known."""
        request, host = self._request, self._host
        try:
            self._selector = Selector.parse(request.where)
        except InvalidArgument as error:
            return explain(error)
        if request.weaver != "patch":
            return f"a fleet is not measured with the weaver {request.weaver!r}"
        policy = host.options.policy
        need: Snippets = "read" if request.texts or request.probes else "library"
        decision = policy.of_request(request, need, host.running(request.requester))
        if not decision.allowed:
            return decision.why
        if host.is_full:
            return "the host serves as many requests as it can"
        return policy.health.trouble()

    async def _read(self) -> str:
        """Read its texts, and say why it is not served then."""
        request, host = self._request, self._host
        try:
            self._texts = await host.reader.read(request)
        except (BadMetric, InvalidArgument) as error:
            return explain(error)
        others = host.running(request.requester) - 1
        return host.options.policy.of_request(request, self._texts.needs, others).why

    async def _accept(self) -> float | None:
        """Tell the broker that it is served, and how long it is to last; nothing if it is over.

        What the host did for it before it was started anew, is not measured: that is said.
        """
        broker, name = self._host.broker, self._host.options.name
        while self._ending is None:
            try:
                before = []
                if not self._is_first:
                    every = sample_subject(*self._key, name)
                    before = await broker.all(SAMPLES_STREAM, every)
                last = [Report.decode(one.data) for one in before if one.subject != self._subject]
                if any(one.final for one in last):
                    return None
                await self._store(self._report("weaving"))
                stored = await broker.last(SAMPLES_STREAM, self._subject)
            except BadDocument as error:
                self._audit("failed", why=error.why)
                return None
            except (Lost, Stale):
                self._revision = None
                await asyncio.sleep(_RETRY)
                continue
            if stored is None:
                continue
            late = stored.time - self._asked
            if last:
                self._note(
                    "the host's service was started anew: what was not published before is missing"
                )
            elif late > _LATE:
                self._note(f"measuring began {late:.0f} s after it was asked for")
            if late >= self._request.seconds:
                self._note("the request was over when this host saw it")
            return max(self._request.seconds - late, 0.0)
        return 0.0

    async def _measure(self, seconds: float) -> None:
        """Measure until the time is over, or it was stopped."""
        loop = asyncio.get_running_loop()
        self._accepted, ticks = loop.time(), _ticks()
        end, due = self._accepted + seconds, self._accepted
        is_first = True
        while self._ending is None and (now := loop.time()) < end:
            await self._reconcile(None if is_first else ticks)
            is_first = False
            if loop.time() >= due or self._ever == 0:
                await self._sample()
                due = max(due + self._request.interval, loop.time())
            with suppress(asyncio.TimeoutError):
                until = min(due, end, max(now + _LOOK, loop.time() + _LOOK / 10))
                await asyncio.wait_for(self._over.wait(), max(until - loop.time(), 0.0))
        # Processes that have come since the last look were not measured.
        await self._reconcile(ticks, may_begin=False)
        await self._end_all()
        self._finish("done", "", complete=True)

    async def _reconcile(self, since: int | None, *, may_begin: bool = True) -> None:
        """Begin to measure what has come, and keep what was measured in what has gone.

        ``since`` is when measuring began, by the clock of the kernel; nothing if it does so now.
        """
        assert self._selector is not None
        there = await self._host.look(oldest=0.0 if since is None or not may_begin else _LOOK / 2)
        plan = changes(self._selector, there, self._measured.keys(), self._settled.keys())
        for identity in plan.end:
            await self._end(identity)
        for process in plan.begin:
            if self._ending is not None and may_begin:
                return
            await self._begin(process, since, may_begin=may_begin)
        alive = {process.identity for process in there}
        self._settled = {key: one for key, one in self._settled.items() if key in alive}
        self._inherited = {key: one for key, one in self._inherited.items() if key in alive}

    async def _begin(self, process: Process, since: int | None, *, may_begin: bool) -> None:
        host, request = self._host, self._request
        name = process.name
        if host.is_elsewhere(process) or self._is_inherited(process):
            self._settled[process.identity] = process
            return
        others = host.measured(request.requester) - {process.identity}
        decision = host.options.policy.of_process(request, self._texts.needs, process, len(others))
        if decision.rule is None:
            self._settle(process, "refused", f"{name} is not measured: {decision.why}")
            return
        try:
            lock = host.inventory.lock_name(process)
        except OSError:  # it has ended
            return
        if not host.hold(lock, self._key):
            # Another host of this machine measures it, for as long as it lives.
            return
        if not may_begin:
            host.let_go(lock, self._key)
            self._settle(process, "failed", f"{name} was not measured before the time was over")
            return
        share = min(decision.rule.budget, request.budget or 1.0)
        try:
            took = await host.weave(lambda: self._woven(process, share))
        except WeftError as error:
            host.let_go(lock, self._key)
            self._settle(process, "failed", f"{name} is not measured: {said(error)}")
            return
        if took is None:
            host.let_go(lock, self._key)
            return
        self._wove += took
        self._measured[process.identity] = process
        self._locks[process.identity] = lock
        self._ever += 1
        self._audit("allowed", process, budget=share)
        if since is not None:
            if process.started >= since:
                text = f"{name} was seen {_ago(process.started):.1f} s after it had started"
            else:
                text = f"{name} was not measured from the beginning"
            self._note(text)
        elif asyncio.get_running_loop().time() - self._accepted > _LATE:
            self._note(f"weaving took more than {_LATE:.0f} s: some processes were measured late")

        if self._wove > _MOST_WEAVING:
            spent = f"weaving has taken {self._wove:.0f} s of a processor"
            self.shed(f"{spent}, and {_MOST_WEAVING:.0f} s are allowed")

    def _woven(self, process: Process, share: float) -> float | None:
        """Begin to measure in a process, and return how much processor time that took.

        Nothing if it is over: others may have been woven for long before it was its turn.
        """
        if self._ending is not None:
            return None
        began = time.thread_time()
        self._host.weaver.begin(process.identity, self._key, self._request, self._texts, share)
        return time.thread_time() - began

    def _settle(self, process: Process, outcome: Outcome, why: str) -> None:
        self._settled[process.identity] = process
        self._refused += 1
        self._audit(outcome, process, why)
        self._note(why)

    def _is_inherited(self, process: Process) -> bool:
        """Whether it was forked by one that is measured: its parent's values have its own then.

        What it was forked by may have been forked by that one.
        """
        roots = {identity[0]: identity for identity in self._measured}
        for identity, root in self._inherited.items():
            if root in self._measured:
                roots[identity[0]] = root
        found = roots.get(process.parent)
        if found is None or process.started < self._host.held_since(self._locks[found]):
            return False
        if not self._host.inventory.has_weft(process.pid):
            return False
        self._inherited[process.identity] = found
        return True

    async def _sample(self) -> None:
        """Read everything, and have it published."""
        processes = [*self._measured.values()]
        weaver = self._host.weaver
        readings = await self._host.weave(
            lambda: [weaver.read(one.identity, self._key, self._texts) for one in processes]
        )
        each = zip(processes, readings, strict=True)
        self._series = [self._parts(process, one.series) for process, one in each]
        state: State = "measuring" if self._ever else ("refused" if self._refused else "idle")
        self._latest = self._report(state, [note for one in readings for note in one.notes])
        self._tell_sinks(self._latest)
        self._newer.set()

    def _parts(self, process: Process, series: tuple[Series, ...]) -> tuple[Series, ...]:
        """What was read of a process, as its own part where values are told by process."""
        if self._request.by != PROCESS:
            return series
        return tuple(replace(one, part=process.name) for one in series)

    async def _end_all(self) -> None:
        for identity in [*self._measured]:
            await self._end(identity)

    async def _end(self, identity: Identity) -> None:
        """Keep what was measured in a process in which nothing is measured any more."""
        weaver = self._host.weaver
        reading = await self._host.weave(lambda: weaver.end(identity, self._key, self._texts))
        process = self._measured.pop(identity)
        series = self._parts(process, reading.series)
        self._ended = [tuple(bounded(folded([*self._ended, series])))]
        for note in reading.notes:
            self._notes[f"{process.name}: {note}"] = None
        # What is still measured is read anew before it is told.
        self._series = []
        self._host.let_go(self._locks.pop(identity), self._key)

    # Telling.

    def _report(self, state: State, notes: Sequence[str] = (), *, final: bool = False) -> Report:
        self._seq += 1
        series = tuple(bounded(folded([*self._ended, *self._series])))
        if self._ever:
            known = {one.key for one in series}
            absent = [one for one in self._request.metrics if (one.metric, one.focus) not in known]
            notes = [*notes, *(f"{one}: no process has that module" for one in absent)]
        report = Report(
            *self._key,
            host=self._host.options.name,
            epoch=self._host.epoch,
            seq=self._seq,
            state=state,
            processes=self._ever,
            final=final,
            notes=short_notes([*self._notes, *notes]),
            series=series,
            labels=self._host.options.labels,
            complete=self._complete,
        )
        return fitted(report)

    def _tell_sinks(self, report: Report) -> None:
        if self._host.sinks is not None:
            seconds = asyncio.get_running_loop().time() - self._accepted
            self._host.sinks.see(report, seconds, [*self._reasons])

    async def _store(self, report: Report) -> None:
        """Have the broker store a report in place of the one before."""
        broker = self._host.broker
        if self._revision is None:
            self._revision = await broker.revision(SAMPLES_STREAM, self._subject)
        replaces, self._revision = self._revision, None
        self._revision = await broker.store(self._subject, report.encode(), replaces)

    async def _keep_publishing(self) -> None:
        """Publish the newest report there is, whenever there is one."""
        while True:
            await self._newer.wait()
            self._newer.clear()
            report = self._latest
            assert report is not None
            try:
                await self._store(report)
            except (Lost, Stale):
                await asyncio.sleep(_RETRY)
                self._newer.set()

    async def _publish_last(self, state: State) -> None:
        """Publish the last values, however often it has to be tried."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _KEPT
        if state == "done" and not self._ever:
            state = "refused" if self._refused else "idle"
        report = self._report(state, final=True)
        self._tell_sinks(report)
        while loop.time() < end:
            try:
                await self._store(report)
            except (Lost, Stale):
                await asyncio.sleep(_RETRY)
            else:
                return
        self._audit("failed", why="the last values could not be published")


def _timed(do: Callable[[], _T]) -> tuple[float, _T]:
    """Do something, and say how much processor time it has taken."""
    began = time.thread_time()
    found = do()
    return time.thread_time() - began, found


def _is_final(stored: Stored) -> bool:
    with suppress(BadDocument):
        return Report.decode(stored.data).final
    return False


def _ticks() -> int:
    """Now, by the clock that says when processes were started."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def _ago(started: int) -> float:
    return (_ticks() - started) / os.sysconf("SC_CLK_TCK")
