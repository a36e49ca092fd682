"""One request that a host serves: it measures what is wanted, and publishes what it finds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from weft.errors import BadMetric, InvalidArgument, WeftError
from weft.fleet.audit import Outcome
from weft.fleet.broker import SAMPLES_STREAM, Lost, Stale, Stored
from weft.fleet.dividing import PROCESS, bounded, fitted
from weft.fleet.folding import Series, folded
from weft.fleet.local import LOOK, ago, not_to_be_seen, ticks
from weft.fleet.machine import RequestKey
from weft.fleet.names import sample_subject
from weft.fleet.plan import Identity, Process, changes
from weft.fleet.protocol import BadDocument, Report, Request, State, short_notes
from weft.fleet.selectors import Selector
from weft.fleet.service import Service
from weft.fleet.tasks import cancelled
from weft.fleet.texts import Snippets, Texts, explain
from weft.fleet.weaving import said

__all__ = ["Serving"]

_LATE = 5.0
"""How long after a request was made measuring may begin without that being said."""
_KEPT = 3600.0
"""For how long it is tried to publish the last values, in seconds."""
_RETRY = 0.5
_MOST_WEAVING = 60.0
"""How much processor time it may take to begin to measure for a request, in seconds."""
_LONGEST_WHAT = 1000
"""How much of what was asked for is in the audit log."""


class Serving:
    """One request that a host serves."""

    def __init__(self, host: Service, key: RequestKey, request: Request, stored: Stored) -> None:
        self.is_served = False
        """Whether it was decided that it is served."""
        self._is_first = False
        """Whether this host has told nothing of it before it was started anew."""
        self._host = host
        self._machine = host.machine
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
        failure = self._host.audit.note(
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
        if failure:
            self._finish("refused", failure, complete=False)

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
        if self._ending == "refused":
            self.is_served = False
            await self._publish_last("refused")
            return
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
        self._accepted, since = loop.time(), ticks()
        end, due = self._accepted + seconds, self._accepted
        is_first = True
        while self._ending is None and (now := loop.time()) < end:
            await self._reconcile(None if is_first else since)
            is_first = False
            if loop.time() >= due or self._ever == 0:
                await self._sample()
                due = max(due + self._request.interval, loop.time())
            with suppress(asyncio.TimeoutError):
                until = min(due, end, max(now + LOOK, loop.time() + LOOK / 10))
                await asyncio.wait_for(self._over.wait(), max(until - loop.time(), 0.0))
        # Processes that have come since the last look were not measured.
        await self._reconcile(since, may_begin=False)
        await self._end_all()
        self._finish("done", "", complete=True)

    async def _reconcile(self, since: int | None, *, may_begin: bool = True) -> None:
        """Begin to measure what has come, and keep what was measured in what has gone.

        ``since`` is when measuring began, by the clock of the kernel; nothing if it does so now.
        """
        assert self._selector is not None
        there = await self._machine.look(oldest=0.0 if since is None or not may_begin else LOOK / 2)
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
        if self._machine.is_elsewhere(process) or self._is_inherited(process):
            self._settled[process.identity] = process
            return
        if process.is_hidden:
            user = process.facts["user"][0]
            why = f"it is {user}'s, or protected; if it is meant, {not_to_be_seen()}"
            self._settle(process, "failed", f"{name} may not be looked at: {why}")
            return
        others = host.measured(request.requester) - {process.identity}
        decision = host.options.policy.of_process(request, self._texts.needs, process, len(others))
        if decision.rule is None:
            self._settle(process, "refused", f"{name} is not measured: {decision.why}")
            return
        try:
            lock = self._machine.inventory.lock_name(process)
        except OSError:  # it has ended
            return
        if not self._machine.hold(lock, self._key):
            # Another host of this machine measures it, for as long as it lives.
            return
        if not may_begin:
            self._machine.let_go(lock, self._key)
            self._settle(process, "failed", f"{name} was not measured before the time was over")
            return
        share = min(decision.rule.budget, request.budget or 1.0)
        try:
            took = await self._machine.weave(lambda: self._woven(process, share))
        except WeftError as error:
            self._machine.let_go(lock, self._key)
            self._settle(process, "failed", f"{name} is not measured: {said(error)}")
            return
        if took is None:
            self._machine.let_go(lock, self._key)
            return
        self._wove += took
        self._measured[process.identity] = process
        self._locks[process.identity] = lock
        self._ever += 1
        self._audit("allowed", process, budget=share)
        if since is not None:
            if process.started >= since:
                text = f"{name} was seen {ago(process.started):.1f} s after it had started"
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
        self._machine.weaver.begin(process.identity, self._key, self._request, self._texts, share)
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
        if found is None or process.started < self._machine.held_since(self._locks[found]):
            return False
        if not self._machine.inventory.has_weft(process.pid):
            return False
        self._inherited[process.identity] = found
        return True

    async def _sample(self) -> None:
        """Read everything, and have it published."""
        processes = [*self._measured.values()]
        weaver = self._machine.weaver
        readings = await self._machine.weave(
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
        weaver = self._machine.weaver
        reading = await self._machine.weave(lambda: weaver.end(identity, self._key, self._texts))
        process = self._measured.pop(identity)
        series = self._parts(process, reading.series)
        self._ended = [tuple(bounded(folded([*self._ended, series])))]
        for note in reading.notes:
            self._notes[f"{process.name}: {note}"] = None
        # What is still measured is read anew before it is told.
        self._series = []
        self._machine.let_go(self._locks.pop(identity), self._key)

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


def _is_final(stored: Stored) -> bool:
    with suppress(BadDocument):
        return Report.decode(stored.data).final
    return False
