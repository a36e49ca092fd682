"""What asks hosts for their files, and puts one that arrives under its name when it is whole."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, TypeAlias

from weft.base.files import Draft
from weft.base.numbers import printable
from weft.errors import InvalidArgument, NoSuchProcess
from weft.fleet.broker import (
    FILES_STREAM,
    SAMPLES_STREAM,
    Broker,
    Denied,
    Lost,
    Stale,
    bucket_subject,
)
from weft.fleet.folding import merged
from weft.fleet.names import REQUESTS, file_subject, of_sample, request_key, sample_subject
from weft.fleet.offering import Unavailable
from weft.fleet.protocol import (
    BadDocument,
    FileAnswer,
    FileEntry,
    FileRequest,
    HostRecord,
    is_file_name,
)

__all__ = ["Fetched", "HostFiles", "Progress", "fetch", "list_files", "received"]

Progress: TypeAlias = "Callable[[str, int, int], None]"
"""Is told what is done (``sending``, ``fetching``), how many bytes of it are, and of how many."""

_LISTING = 60.0
_RETRY = 0.25
_SOON = 1.0


@dataclass(frozen=True)
class HostFiles:
    """The files that a host offers."""

    host: str
    state: str
    """``done``; ``refused``, ``failed``; ``none`` if it offers no files, ``older`` if its weft
    knows nothing of files, ``silent`` if it has not answered."""
    files: tuple[FileEntry, ...] = ()
    note: str = ""
    """Why there are none, or not all."""


@dataclass(frozen=True)
class Fetched:
    """A file that has arrived, and is what the host has read."""

    host: str
    name: str
    size: int
    sha256: str


def _not_served(record: HostRecord) -> HostFiles | None:
    """Why a host need not be asked; nothing if it is to be."""
    if record.files is None:
        why = f"its weft ({printable(record.version)}) is older, and knows nothing of files"
        return HostFiles(record.host, "older", (), why)
    if not record.files:
        return HostFiles(record.host, "none", (), "it offers no files: weft host --files DIR")
    return None


async def list_files(
    broker: Broker, requester: str, hosts: Iterable[HostRecord], patience: float
) -> list[HostFiles]:
    """Ask hosts which files they offer."""
    records = [*hosts]
    found = {one.host: no for one in records if (no := _not_served(one))}
    names = [one.host for one in records if one.host not in found]
    if names:
        request = FileRequest(_id(), requester, tuple(names), seconds=_LISTING)
        async with _Asked(broker, request) as asked:
            loop = asyncio.get_running_loop()
            end = loop.time() + patience
            while loop.time() < end and not asked.has_all(names):
                await asked.hear(_SOON)
            for name in names:
                answer = asked.of(name)
                if answer is None or not answer.final:
                    found[name] = HostFiles(name, "silent", (), "it has not answered")
                else:
                    found[name] = HostFiles(name, answer.state, answer.files, answer.why)
    return [found[one.host] for one in sorted(records, key=lambda one: one.host)]


async def fetch(
    broker: Broker,
    requester: str,
    record: HostRecord,
    name: str,
    path: Path,
    patience: float,
    progress: Progress,
) -> Fetched:
    """Have a host send a file, and write it. What was there before stays if that fails."""
    if not is_file_name(name):
        why = "it is the name of a file in the folder that a host offers"
        raise InvalidArgument(f"{printable(name[:80])!r} is no name of a file", why)
    if (no := _not_served(record)) is not None:
        raise NoSuchProcess(f"cannot fetch files of {record.host}", no.note)
    request = FileRequest(_id(), requester, (record.host,), name)
    draft = Draft(path, is_private=True)
    with draft as file:
        async with _Asked(broker, request) as asked:
            answer = await _sent(asked, record.host, patience, progress)
            await received(broker, answer, file, patience, progress)
    return Fetched(record.host, name, answer.sent, answer.digest)


async def _sent(asked: _Asked, host: str, patience: float, progress: Progress) -> FileAnswer:
    """Wait until a host has sent all of a file to the broker."""
    loop = asyncio.get_running_loop()
    newest, end = None, loop.time() + patience
    while True:
        answer = asked.of(host)
        if answer != newest and answer is not None:
            newest, end = answer, loop.time() + patience
            if answer.state in ("refused", "failed"):
                what = f"{host} has {answer.state} to send {asked.request.name}"
                raise Unavailable(what.replace("has refused", "refuses"), answer.why)
            if answer.files:
                progress("sending", answer.sent, answer.files[0].size)
            if answer.state == "done":
                return answer
        if loop.time() > end:
            why = "it has not answered" if newest is None else "it sends nothing more"
            raise NoSuchProcess(
                f"{host} does not send {asked.request.name}",
                f"{why} for {patience:g} s",
                "see whether it is there: weft fleet ps",
            )
        await asked.hear(_SOON)


async def received(
    broker: Broker, answer: FileAnswer, file: BinaryIO, patience: float, progress: Progress
) -> None:
    """Read what a host has sent, as often as it takes, and find out whether it is that."""
    loop = asyncio.get_running_loop()
    subject = file_subject(answer.requester, answer.request, answer.host, answer.epoch)
    digest, size, last, end = sha256(), 0, 0, loop.time() + patience
    while size < answer.sent:
        before = last
        try:
            async for part in broker.each(FILES_STREAM, subject, last):
                last = part.revision
                size += len(part.data)
                if not part.data or size > answer.sent:
                    raise _wrong(answer, f"{size:,} bytes of {answer.sent:,} were there")
                digest.update(part.data)
                await asyncio.to_thread(file.write, part.data)
                progress("fetching", size, answer.sent)
        except Denied:
            raise
        except Lost:
            pass
        if last != before:
            end = loop.time() + patience
        elif loop.time() > end:
            raise _wrong(answer, f"nothing came after {size:,} bytes of {answer.sent:,}")
        if size < answer.sent:
            await asyncio.sleep(_RETRY)
    if digest.hexdigest() != answer.digest:
        raise _wrong(answer, "its digest is another than that of what was sent")


def _wrong(answer: FileAnswer, why: str) -> Unavailable:
    name = answer.files[0].name if answer.files else ""
    what = f"{name} of {answer.host} has not arrived as it was sent"
    return Unavailable(what, why, "fetch it again")


def _id() -> str:
    return secrets.token_hex(6)


class _Asked:
    """A request of files while it is there, and what hosts have answered."""

    def __init__(self, broker: Broker, request: FileRequest) -> None:
        self.request = request
        self._broker = broker
        key = request.requester, request.id
        self._key = bucket_subject(REQUESTS, request_key(*key))
        self._answers = sample_subject(*key)
        self._known: dict[tuple[str, int], FileAnswer] = {}
        self._heard = asyncio.Event()

    async def __aenter__(self) -> _Asked:
        await self._broker.listen(self._answers, self._hear)
        loop = asyncio.get_running_loop()
        end = loop.time() + 2 * _SOON
        while True:
            try:
                await self._broker.store(self._key, self.request.encode(), 0)
            except Stale:  # it was stored before, although no answer came
                return self
            except Lost as error:
                if loop.time() > end or isinstance(error, Denied):
                    raise
                await asyncio.sleep(_RETRY)
            else:
                return self

    async def __aexit__(self, *_: object) -> None:
        # What is left goes when its time is over.
        with suppress(Lost):
            await self._broker.delete(self._key)
        with suppress(Lost):
            await self._broker.ignore(self._answers)

    def of(self, host: str) -> FileAnswer | None:
        """What the newest start of a host has answered; nothing if it has not."""
        epochs = [epoch for name, epoch in self._known if name == host]
        return self._known[host, max(epochs)] if epochs else None

    def has_all(self, hosts: Sequence[str]) -> bool:
        """Whether all of these have said their last word."""
        answers = [self.of(one) for one in hosts]
        return all(one is not None and one.final for one in answers)

    async def hear(self, seconds: float) -> None:
        """Wait until something is heard, or so long; what the broker has stored counts."""
        self._heard.clear()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._heard.wait(), seconds)
            return
        with suppress(Lost):
            for one in await self._broker.all(SAMPLES_STREAM, self._answers):
                self._hear(one.subject, one.data)

    def _hear(self, subject: str, data: bytes) -> None:
        with suppress(BadDocument):
            answer = FileAnswer.decode(data)
            place = answer.requester, answer.request, answer.host, answer.epoch
            if of_sample(subject) == place:
                fresh = {(answer.host, answer.epoch): answer}
                self._known = merged(self._known, fresh)
                self._heard.set()
