"""What a host does for a request of files: it lists them, or sends one to the broker.

A file is in the broker's store while it is wanted. It is taken out when the request is gone or its
time is over, and by the broker if the host is no more by then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from contextlib import suppress
from hashlib import sha256
from os import cpu_count

from weft.base.numbers import printable
from weft.errors import WeftError
from weft.fleet.audit import Audit, Outcome
from weft.fleet.broker import FILES_STREAM, SAMPLES_STREAM, Broker, Denied, Lost, Stale, Stored
from weft.fleet.names import file_subject, sample_subject
from weft.fleet.offering import Offer, Unavailable
from weft.fleet.plan import Identity
from weft.fleet.policy import Decision, Policy
from weft.fleet.protocol import (
    MOST_BYTES,
    BadDocument,
    FileAnswer,
    FileEntry,
    FileRequest,
    FileState,
)

__all__ = ["Sending"]

_CHUNK = 256 << 10
_PROGRESS = 1.0
_RETRY = 0.5
_PATIENCE = 60.0
"""For how long it is tried to store a part of a file, in seconds."""
_SHARE = 0.5
"""What part of the machine's budget sending a file may take."""
_LONGEST_WHY = 1000


class Sending:
    """One request of files that a host serves."""

    measured: Collection[Identity] = ()
    """No process is."""

    def __init__(
        self,
        broker: Broker,
        audit: Audit,
        policy: Policy,
        offer: Offer | None,
        request: FileRequest,
        stored: Stored,
        place: tuple[str, int],
    ) -> None:
        """``place`` is the name of the host, and its epoch."""
        self.is_served = False
        """Whether it was decided that it is served."""
        self._broker = broker
        self._audit_log = audit
        self._policy = policy
        self._offer = offer
        self._request = request
        self._asked = stored.time
        self._host, self._epoch = place
        key = request.requester, request.id
        self._answers = sample_subject(*key, self._host)
        self._subject = sample_subject(*key, *place)
        self._object = file_subject(*key, *place)
        self._over = asyncio.Event()
        self._why_over = ""
        self._seq = 0
        self._revision: int | None = 0
        """What the broker has of the answer; nothing if that is not known."""
        self._deadline = asyncio.get_running_loop().time() + request.seconds
        self._told = 0.0

    def stop(self, why: str = "", *, complete: bool = True) -> None:
        """End it: nobody wants it any more, or the host ends."""
        del complete
        self._why_over = self._why_over or why
        self._over.set()

    def shed(self, why: str) -> None:
        """End it because the machine cannot take it."""
        self._audit("shed", why)
        self.stop(why)

    def refusal(self, running: int, *, is_full: bool) -> str:
        """Why it is not served at all; empty if it is."""
        if self._offer is None:
            return "the host offers no files"
        requester, name = self._request.requester, self._request.name
        decision = self._policy.of_files(requester, running)
        if decision.allowed and name:
            decision = self._policy.of_file(requester, name)
        if decision.allowed and is_full:
            decision = Decision(False, "the host serves as many requests as it can")
        return decision.why or self._policy.health.trouble()

    async def run(self, refusal: str) -> None:
        """Do all that there is to do for it."""
        if why := refusal or self._audit("allowed"):
            self._audit("refused", why)
            await self._tell("refused", why)
            return
        self.is_served = True
        is_sent = False
        try:
            if not await self._begin():
                return
            if self._request.name:
                await self._send()
                is_sent = True
                await self._wait()
            else:
                await self._list()
            self._audit("ended")
        except Unavailable as error:
            self._audit("failed", _said(error))
            await self._tell("failed", _said(error))
        finally:
            self.is_served = False
            # What was sent before the host ends may be on its way: the broker forgets it later.
            if self._request.name and not (is_sent and self._why_over):
                with suppress(Lost, Stale):
                    await self._broker.clear(self._object)

    def _audit(self, outcome: Outcome, why: str = "") -> str:
        name = self._request.name
        what = f"file {printable(name)}" if name else "list of files"
        request = self._request
        return self._audit_log.note(outcome, request.requester, what, request=request.id, why=why)

    async def _begin(self) -> bool:
        """Find out whether there is still something to do."""
        while True:
            try:
                before = await self._broker.all(SAMPLES_STREAM, self._answers)
                last = [FileAnswer.decode(one.data) for one in before]
                if any(one.final for one in last):
                    return False
                await self._tell("sending")
                stored = await self._broker.last(SAMPLES_STREAM, self._subject)
                if self._request.name:
                    await self._broker.prepare_files()
            except BadDocument as error:
                raise Unavailable("another answer is there already", error.why) from None
            except Denied as error:
                raise Unavailable(error.what, error.why) from None
            except Lost:
                self._check()
                await asyncio.sleep(_RETRY)
                continue
            if stored is not None:
                late = stored.time - self._asked
                self._deadline -= late
            self._check()
            return True

    def _check(self) -> None:
        """Raise an error if it is not to go on."""
        if self._over.is_set():
            raise Unavailable("it was ended", self._why_over or "it is not wanted any more")
        if asyncio.get_running_loop().time() > self._deadline:
            raise Unavailable("it took too long", f"{self._request.seconds:g} s were given")

    async def _list(self) -> None:
        assert self._offer is not None
        found, others = await asyncio.to_thread(self._offer.entries)
        requester = self._request.requester
        own = [one for one in found if self._policy.of_file(requester, one.name).allowed]
        others += len(found) - len(own)
        while len(self._answer("done", files=tuple(own)).encode()) > MOST_BYTES - _LONGEST_WHY:
            others += len(own) - len(own) // 2
            own = own[: len(own) // 2]
        why = f"{others} more are not offered to {requester}" if others else ""
        await self._tell("done", why, files=tuple(own))

    async def _send(self) -> None:
        """Store the file, part by part; what was stored is told when it is all there."""
        assert self._offer is not None
        share = _SHARE * self._policy.machine * (cpu_count() or 1)
        opened = await asyncio.to_thread(self._offer.open, self._request.name)
        try:
            entry = FileEntry(self._request.name, opened.size, opened.modified)
            digest, sent, revision = sha256(), 0, 0
            while True:
                began = time.process_time()
                chunk = await asyncio.to_thread(opened.read, _CHUNK)
                if not chunk:
                    break
                digest.update(chunk)
                sent += len(chunk)
                if sent > entry.size:
                    break
                revision = await self._put(chunk, revision)
                await self._tell_progress(entry, sent)
                # What is sent is no reason to give up what is measured.
                await asyncio.sleep((time.process_time() - began) * max(1 / share - 1, 0.0))
            opened.check_unchanged()
        finally:
            opened.close()
        if sent != entry.size:
            raise Unavailable("it has changed while it was read", f"{sent:,} of {entry.size:,}")
        await self._tell("done", files=(entry,), sent=sent, digest=digest.hexdigest())

    async def _put(self, chunk: bytes, replaces: int) -> int:
        """Store the next part, exactly once, and return its revision."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _PATIENCE
        while True:
            self._check()
            try:
                return await self._broker.store(self._object, chunk, replaces)
            except Denied as error:
                raise Unavailable(error.what, error.why) from None
            except (Lost, Stale) as error:
                if loop.time() > end:
                    raise Unavailable("the broker does not take it", str(error)) from None
            # It may have been stored although no answer came: only one such part can be.
            with suppress(Lost):
                # By the subject alone, so that a host need not be able to read what others send.
                there = await self._broker.all(FILES_STREAM, self._object)
                newest = max((one.revision for one in there), default=0)
                if newest > replaces:
                    return newest
                if newest < replaces:
                    raise Unavailable("the broker has lost what was sent", "it was made anew")
            await asyncio.sleep(_RETRY)

    async def _wait(self) -> None:
        """Wait until nobody needs it any more."""
        left = self._deadline - asyncio.get_running_loop().time()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._over.wait(), max(left, 0.0))

    async def _tell_progress(self, entry: FileEntry, sent: int) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._told >= _PROGRESS:
            self._told = now
            with suppress(Lost, Stale):
                await self._store(self._answer("sending", files=(entry,), sent=sent))

    async def _tell(
        self,
        state: FileState,
        why: str = "",
        files: tuple[FileEntry, ...] = (),
        sent: int = 0,
        digest: str = "",
    ) -> None:
        """Tell it, however often that has to be tried as long as somebody wants to know."""
        answer = self._answer(state, why, files, sent, digest)
        loop = asyncio.get_running_loop()
        end = max(self._deadline, loop.time() + _PATIENCE)
        while True:
            try:
                await self._store(answer)
            except (Lost, Stale) as error:
                if isinstance(error, Denied) or loop.time() > end or self._over.is_set():
                    return
                await asyncio.sleep(_RETRY)
            else:
                return

    def _answer(
        self,
        state: FileState,
        why: str = "",
        files: tuple[FileEntry, ...] = (),
        sent: int = 0,
        digest: str = "",
    ) -> FileAnswer:
        self._seq += 1
        request = self._request
        place = request.requester, request.id, self._host, self._epoch
        return FileAnswer(*place, self._seq, state, why[:_LONGEST_WHY], files, sent, digest)

    async def _store(self, answer: FileAnswer) -> None:
        if self._revision is None:
            self._revision = await self._broker.revision(SAMPLES_STREAM, self._subject)
        replaces, self._revision = self._revision, None
        self._revision = await self._broker.store(self._subject, answer.encode(), replaces)


def _said(error: WeftError) -> str:
    return f"{error.what}: {error.why}" if error.why else error.what
