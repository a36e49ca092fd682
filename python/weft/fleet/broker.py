"""What a host and a front end need of NATS, and no more.

A message that arrives is only a hint that something has changed: what counts is what the broker has
stored, which is read again after each hint, after each reconnection, and now and then. So nothing
depends on a message that was lost, and nothing but a name on how a subscription was made.

What is stored under a subject is replaced only by who knows what it replaces: the broker checks the
number of what was there before. A message that a cut link has held back for a minute is refused.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.base.extras import needed
from weft.base.numbers import printable
from weft.errors import BadFile, InvalidArgument, WeftError
from weft.fleet.names import FILES, HOSTS, REQUESTS, SAMPLES
from weft.fleet.protocol import LONGEST, LONGEST_FETCH, MOST_BYTES
from weft.fleet.tasks import cancelled

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

__all__ = [
    "FILES_STREAM",
    "HOSTS_STREAM",
    "REQUESTS_STREAM",
    "SAMPLES_STREAM",
    "Access",
    "Broker",
    "Denied",
    "Lost",
    "Stale",
    "Stored",
    "Unreachable",
    "bucket_subject",
]

KV = "$KV"
_SCHEMES = ("nats", "tls")
HOSTS_LIVE = 120.0
"""How long the broker keeps what a host that says nothing more has said of itself, in seconds."""
_ANSWER = 5.0
"""How long to wait for an answer of the broker, in seconds."""
_PING, _PINGS = 3, 2
"""How often a broker is asked whether it is there, in seconds; how many answers may be missing."""
_RETRY = 0.25
_BATCH = 16
"""How many parts of a file are on their way at a time."""
_VIOLATION = re.compile(r'permissions violation for publish to "([^"]+)"')
_MOST_DENIED = 100
_NO_MESSAGE = 10037
_NO_STREAM = 10059
_STALE = (10071, 10164)
"""What JetStream calls these mistakes."""
_MARKERS = {"KV-Operation", "Nats-Marker-Reason"}
"""What a message has that says that something is no more."""


class Unreachable(WeftError):
    """There is no broker there, or it does not let this user in."""

    exit_code = 3


class Lost(WeftError):
    """The broker has not answered; what was asked of it may have happened, or not."""

    exit_code = 3


class Denied(Lost):
    """The broker does not let this user do that."""


class _Plain(OSError):
    """The broker has no TLS, and it was asked for."""


class Stale(WeftError):
    """Something else is stored by now than what was to be replaced."""


@dataclass(frozen=True)
class Access:
    """Where the broker is, and how to be let in."""

    url: str
    credentials: Path | None = None
    """A file of a user's JWT and key, or with the seed of an NKey alone."""
    authority: Path | None = None
    """The certificates by which the broker is known; those of the system if there are none."""

    @property
    def wants_tls(self) -> bool:
        """Whether nothing may be sent in the clear."""
        return self.authority is not None or self.url.lower().startswith("tls:")

    def options(self) -> dict[str, Any]:
        """What the client is to be told."""
        scheme, sign, _ = self.url.partition("://")
        if sign and scheme.lower() not in _SCHEMES:
            raise InvalidArgument(
                f"{printable(self.url)} is no address of a broker",
                advice="write nats://broker.example.org, or tls://10.0.0.1:4222",
            )
        found: dict[str, Any] = {}
        if self.credentials is not None:
            text = _secret(self.credentials)
            if "BEGIN NATS USER JWT" in text:
                has_token = bool(_between(text, "NATS USER JWT"))
                _check_seed(self.credentials, _between(text, "USER NKEY SEED") if has_token else "")
                found["user_credentials"] = str(self.credentials)
            else:
                _check_seed(self.credentials, text)
                found["nkeys_seed_str"] = text.strip()
        if self.authority is not None:
            try:
                found["tls"] = ssl.create_default_context(cafile=self.authority)
            except (OSError, ssl.SSLError) as error:
                raise BadFile(
                    f"cannot use the certificates in {self.authority}", str(error)
                ) from error
        return found


def _secret(path: Path) -> str:
    """Read a file that nobody else may read."""
    try:
        with path.open() as file:
            if path.stat().st_mode & 0o077:
                why = "the key in it is no secret"
                raise BadFile(f"others may read {path}", why, f"chmod 600 {path}")
            return file.read(1 << 16)
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(f"cannot read the credentials {path}", str(error)) from error


def _between(text: str, what: str) -> str:
    """What a file of credentials has under a heading; empty if there is nothing."""
    found = re.search(rf"-+BEGIN {what}-+\s+(\S+)\s+-+END {what}-+", text)
    return found[1] if found else ""


def _check_seed(path: Path, seed: str) -> None:
    """Refuse what is no key of a user, which the client does not expect."""
    with needed("fleet", "a fleet"):
        import nkeys
    try:
        nkeys.from_seed(seed.strip().encode()).wipe()
        why = "" if seed.strip().startswith("SU") else "it is the seed of something else"
    except (nkeys.NkeysError, ValueError, TypeError):
        why = "it has no token and key, nor the seed of an NKey, which begins with SU"
    if why:
        raise BadFile(f"{path} has no credentials of a user of NATS", why)


@dataclass(frozen=True)
class Stored:
    """Something that the broker has."""

    subject: str
    data: bytes
    revision: int
    """A number that is higher for whatever was stored later."""
    time: float
    """When, in seconds since 1970 by the broker's clock."""
    is_gone: bool = False
    """Whether it says that there is nothing any more."""


def _client(*, wants_tls: bool) -> Client:
    """A client of NATS; one that wants TLS sends nothing to a broker that has none.

    By itself it does what the broker says, so whoever answers in its place would be sent passwords.
    """
    from nats.aio.client import Client

    class Careful(Client):
        async def _process_info(
            self, info: dict[str, Any], initial_connection: bool = False
        ) -> None:
            if wants_tls and initial_connection:
                if not (info.get("tls_required") or info.get("tls_available")):
                    raise _Plain("it does not offer TLS, which is wanted")
                info["tls_required"] = True
            await super()._process_info(info, initial_connection=initial_connection)

    return Careful()


class Broker:
    """A connection that is made again, with all its subscriptions, whenever it was lost."""

    def __init__(self, access: Access, say: Callable[[str], None] = lambda text: None) -> None:
        self.access = access
        self.came_back = asyncio.Event()
        """Set whenever the connection is there again."""
        self.clock = 0.0
        """What the broker's clock was when :meth:`all` last asked it, in seconds since 1970."""
        self._say = say
        self._client: Client | None = None
        self._subscriptions: dict[str, Callable[[str, bytes], None]] = {}
        self._live: dict[str, Subscription] = {}
        """Those of them that there are on this connection."""
        self._keeper: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._denied: dict[str, str] = {}
        """What the broker has said that this user may not do, by subject."""

    async def __aenter__(self) -> Broker:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._client is not None and self._client.is_connected

    async def connect(self, patience: float | None) -> None:
        """Connect, however long it takes or for so many seconds, and make what is needed there."""
        loop = asyncio.get_running_loop()
        end = None if patience is None else loop.time() + patience
        has_said = False
        while True:
            try:
                self._client = await self._connected()
                await self._prepare()
                break
            except (Unreachable, Lost) as failure:
                await self._drop()
                if failure.advice or (end is not None and loop.time() >= end):
                    raise
                if not has_said:
                    self._say(f"{failure}: trying again")
                    has_said = True
            await asyncio.sleep(_RETRY)
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """End the connection."""
        if self._keeper is not None:
            await cancelled(self._keeper)
        await self._drop()

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # it may be in any state: it is over
                await asyncio.wait_for(client.close(), _ANSWER)

    async def _keep(self) -> None:
        """Make the connection again whenever it is lost."""
        while True:
            await self._lost.wait()
            self._say(f"no connection to {self.access.url}: trying again")
            await self._drop()
            while True:
                try:
                    self._client = await self._connected()
                    for subject, hint in self._subscriptions.items():
                        await self._subscribe(subject, hint)
                    # A broker that was made anew has nothing of what is needed.
                    await self._prepare()
                    break
                except WeftError:
                    await self._drop()
                await asyncio.sleep(_RETRY)
            self._say(f"connected to {self.access.url} again")
            self.came_back.set()

    async def _connected(self) -> Client:
        with needed("fleet", "a fleet"):
            from nats import errors

        seen: list[Exception] = []

        async def on_error(error: Exception) -> None:
            seen.append(error)
            if (found := _VIOLATION.search(str(error).lower())) is not None:
                self._denied[found[1]] = str(error).removeprefix("nats: ")
                while len(self._denied) > _MOST_DENIED:
                    del self._denied[next(iter(self._denied))]

        async def on_closed() -> None:
            self._lost.set()

        options = self.access.options()
        self._lost.clear()
        try:
            # Its own way to reconnect keeps what it could not send, to send it later: too late.
            client = _client(wants_tls=self.access.wants_tls)
            await asyncio.wait_for(
                client.connect(
                    self.access.url,
                    error_cb=on_error,
                    closed_cb=on_closed,
                    disconnected_cb=on_closed,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=2,
                    ping_interval=_PING,
                    max_outstanding_pings=_PINGS,
                    **options,
                ),
                _ANSWER,
            )
            return client
        except asyncio.TimeoutError:
            raise Unreachable(
                f"cannot connect to {self.access.url}", "it does not answer"
            ) from None
        except (errors.Error, OSError, ValueError) as error:
            # When it gives up it no longer says why.
            raise self._why(seen[-1] if seen else error) from None

    def _why(self, error: Exception) -> Unreachable:
        text = str(error).strip("'\"") or type(error).__name__
        what, lower = f"cannot connect to {self.access.url}", text.lower()
        if isinstance(error, _Plain):
            return Unreachable(what, text, "with nats:// everything would be sent in the clear")
        if isinstance(error, ssl.SSLError):
            return Unreachable(what, text, "give the certificates that it is known by: --ca FILE")
        if "authorization" in lower or isinstance(error, ValueError):
            return Unreachable(what, text, "give the credentials of a user: --creds FILE")
        return Unreachable(what, text)

    async def _request(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        from nats import errors

        client = self._client
        if client is None or not client.is_connected:
            raise Lost("there is no connection to the broker")
        self._denied.pop(subject.lower(), None)
        try:
            answer = await client.request(subject, data, timeout=_ANSWER, headers=headers)
            found: dict[str, Any] = json.loads(answer.data)
        except errors.NoRespondersError:
            raise Lost(
                f"nobody answers to {subject}", "JetStream may not be enabled, or not be ready yet"
            ) from None
        except (errors.Error, OSError, asyncio.TimeoutError, ValueError) as error:
            if denied := self._denied.get(subject.lower()):
                raise Denied("the broker does not allow that", denied) from None
            raise Lost("the broker has not answered", str(error)) from None
        return found

    async def _call(self, what: str, **fields: Any) -> dict[str, Any]:
        """Ask JetStream for something."""
        found = await self._request(f"$JS.API.{what}", json.dumps(fields).encode())
        if error := found.get("error"):
            raise _Refused(int(error.get("err_code", 0)), str(error.get("description", "")))
        return found

    async def _prepare(self) -> None:
        """Make the buckets and the stream, where they are not there yet."""
        for name, config in _STREAMS.items():
            await self._make(name, config)

    async def _make(self, name: str, config: Mapping[str, Any]) -> None:
        try:
            await self._call(f"STREAM.INFO.{name}")
        except _Refused as refused:
            if refused.code != _NO_STREAM:
                raise
            with suppress(_Refused):  # somebody else may just have made it
                await self._call(f"STREAM.CREATE.{name}", name=name, **config)

    async def prepare_files(self) -> None:
        """Make the store of files, where it is not there yet: not everybody needs it."""
        await self._make(FILES_STREAM, _FILES)

    async def store(self, subject: str, data: bytes, replaces: int) -> int:
        """Store something in place of what has that revision, 0 of nothing; return its own.

        Raises :class:`Stale` if something else is there. After :class:`Lost`, either may be.
        """
        headers = {"Nats-Expected-Last-Subject-Sequence": str(replaces)}
        found = await self._request(subject, data, headers)
        if error := found.get("error"):
            if error.get("err_code") in _STALE:
                raise Stale(f"something newer is stored under {subject}")
            raise Lost(f"the broker has not stored {subject}", str(error.get("description", "")))
        return int(found["seq"])

    async def delete(self, subject: str) -> None:
        """Have something in a bucket be gone."""
        found = await self._request(subject, b"", {"KV-Operation": "DEL"})
        if error := found.get("error"):
            raise Lost(f"the broker has not deleted {subject}", str(error.get("description", "")))

    async def clear(self, subject: str) -> None:
        """Have nothing of what is stored under a subject be there any more."""
        found = await self._request(subject, b"", {"Nats-Rollup": "sub"})
        if error := found.get("error"):
            raise Lost(f"the broker has not cleared {subject}", str(error.get("description", "")))

    async def last(self, stream: str, subject: str, *, even_gone: bool = False) -> Stored | None:
        """Return what is stored under a subject; nothing if it is nothing, or was deleted.

        Of a pattern it is what was stored last under any subject that fits. With ``even_gone``, it
        is returned as well that something was deleted.
        """
        try:
            found = await self._call(f"STREAM.MSG.GET.{stream}", last_by_subj=subject)
        except _Refused as refused:
            if refused.code == _NO_MESSAGE:
                return None
            raise
        message = found["message"]
        data = base64.b64decode(message.get("data", ""))
        is_gone = b"KV-Operation" in base64.b64decode(message.get("hdrs", ""))
        if is_gone and not even_gone:
            return None
        name, at = str(message["subject"]), _seconds(message["time"])
        return Stored(name, data, int(message["seq"]), at, is_gone)

    async def newest(self, stream: str) -> int:
        """The revision of what was stored last in a stream, or deleted."""
        return int((await self._call(f"STREAM.INFO.{stream}"))["state"]["last_seq"])

    async def revision(self, stream: str, subject: str) -> int:
        """The revision of the last message of a subject, deleted or not; 0 if there is none."""
        try:
            found = await self._call(f"STREAM.MSG.GET.{stream}", last_by_subj=subject)
        except _Refused as refused:
            if refused.code == _NO_MESSAGE:
                return 0
            raise
        return int(found["message"]["seq"])

    async def all(self, stream: str, subject: str) -> list[Stored]:
        """Return the last message of each subject that fits a pattern."""
        from nats import errors

        client = self._client
        if client is None or not client.is_connected:
            raise Lost("there is no connection to the broker")
        inbox = client.new_inbox()
        found: list[Stored] = []
        try:
            messages = await client.subscribe(inbox)
            try:
                name = secrets.token_hex(8)
                # What is read is a part of the subject, so that permissions can be about it.
                made = await self._call(
                    f"CONSUMER.CREATE.{stream}.{name}.{subject}",
                    stream_name=stream,
                    config={
                        "name": name,
                        "deliver_policy": "last_per_subject",
                        "ack_policy": "none",
                        "replay_policy": "instant",
                        "filter_subject": subject,
                        "deliver_subject": inbox,
                        "inactive_threshold": int(_ANSWER * 1e9),
                        "mem_storage": True,
                        "num_replicas": 1,
                    },
                )
                self.clock = _seconds(made["created"])
                is_over = not made["num_pending"] and not made["delivered"]["consumer_seq"]
                while not is_over:
                    message = await messages.next_msg(timeout=_ANSWER)
                    meta = message.metadata
                    is_over = not meta.num_pending
                    if not (message.headers or {}).keys() & _MARKERS:
                        at, revision = meta.timestamp.timestamp(), meta.sequence.stream
                        found.append(Stored(message.subject, message.data, revision, at))
                with suppress(WeftError):  # without this, it goes by itself in a moment
                    await self._call(f"CONSUMER.DELETE.{stream}.{name}")
            finally:
                await messages.unsubscribe()
        except (errors.Error, OSError, asyncio.TimeoutError) as error:
            raise Lost("the broker has not answered", str(error)) from None
        return found

    async def each(self, stream: str, subject: str, after: int) -> AsyncIterator[Stored]:
        """What is stored under a subject later than a revision, one after the other.

        A few are on their way at a time. Raises :class:`Lost` when there may be more than came.
        """
        from nats import errors

        client = self._client
        if client is None or not client.is_connected:
            raise Lost("there is no connection to the broker")
        inbox, name = client.new_inbox(), secrets.token_hex(8)
        following = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
        try:
            messages = await client.subscribe(inbox)
            try:
                made = await self._call(
                    f"CONSUMER.CREATE.{stream}.{name}.{subject}",
                    stream_name=stream,
                    config={
                        "name": name,
                        "deliver_policy": "by_start_sequence",
                        "opt_start_seq": after + 1,
                        "ack_policy": "none",
                        "replay_policy": "instant",
                        "filter_subject": subject,
                        "inactive_threshold": int(_ANSWER * 1e9),
                        "mem_storage": True,
                        "num_replicas": 1,
                    },
                )
                left = int(made["num_pending"])
                while left:
                    batch = min(left, _BATCH)
                    ask = json.dumps({"batch": batch, "expires": int(_ANSWER * 1e9)}).encode()
                    await client.publish(following, ask, reply=inbox)
                    for _ in range(batch):
                        message = await messages.next_msg(timeout=_ANSWER)
                        meta = message.metadata
                        left = meta.num_pending
                        at, revision = meta.timestamp.timestamp(), meta.sequence.stream
                        yield Stored(message.subject, message.data, revision, at)
                with suppress(WeftError):  # without this, it goes by itself in a moment
                    await self._call(f"CONSUMER.DELETE.{stream}.{name}")
            finally:
                await messages.unsubscribe()
        except (errors.Error, OSError, asyncio.TimeoutError) as error:
            if denied := self._denied.get(following.lower()):
                raise Denied("the broker does not allow that", denied) from None
            raise Lost("the broker has not answered", str(error)) from None

    async def listen(self, subject: str, hint: Callable[[str, bytes], None]) -> None:
        """Have a function called with each message that comes by, also after a reconnection."""
        self._subscriptions[subject] = hint
        await self._subscribe(subject, hint)

    async def ignore(self, subject: str) -> None:
        """Listen to it no more."""
        self._subscriptions.pop(subject, None)
        live = self._live.pop(subject, None)
        if live is not None:
            with suppress(Exception):  # its connection may be in any state
                await live.unsubscribe()

    async def _subscribe(self, subject: str, hint: Callable[[str, bytes], None]) -> None:
        from nats import errors

        async def heard(message: Msg) -> None:
            hint(message.subject, message.data)

        if self._client is None:
            raise Lost("there is no connection to the broker")
        try:
            self._live[subject] = await self._client.subscribe(subject, cb=heard)
            await self._client.flush(timeout=int(_ANSWER))
        except (errors.Error, OSError, asyncio.TimeoutError) as error:
            raise Lost("the broker has not answered", str(error)) from None


class _Refused(Lost):
    """JetStream has answered that something cannot be done."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__("the broker refuses", description)
        self.code = code


def _seconds(text: str) -> float:
    """A time as JetStream writes it: with nanoseconds, which Python's own reader does not take."""
    whole, _, rest = text.rstrip("Z").partition(".")
    moment = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return moment.timestamp() + (float(f"0.{rest}") if rest else 0.0)


def bucket_subject(bucket: str, key: str) -> str:
    """The subject of a key."""
    return f"{KV}.{bucket}.{key}"


def _bucket(name: str, seconds: float) -> dict[str, Any]:
    """A bucket as the clients of NATS make them, whose entries go after a while."""
    return {
        "subjects": [f"{KV}.{name}.>"],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs_per_subject": 1,
        "max_age": int(seconds * 1e9),
        "max_msg_size": MOST_BYTES,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        "num_replicas": 1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_consumers": -1,
    }


FILES_STREAM = f"OBJ_{FILES}"
HOSTS_STREAM = f"KV_{HOSTS}"
REQUESTS_STREAM = f"KV_{REQUESTS}"
SAMPLES_STREAM = "WEFT_SAMPLES"
_KEPT = LONGEST + 3600.0
"""How long requests, and what was measured for them, are kept."""
_FILES: dict[str, Any] = {
    **_bucket("", LONGEST_FETCH),
    "subjects": [f"$O.{FILES}.C.>", f"$O.{FILES}.M.>"],
    "max_msgs_per_subject": -1,
    "deny_delete": False,
}
"""An object store as the clients of NATS make them, whose objects go after a while."""

_MOST_REQUESTS = 64 << 20
"""How much all requests may come to, in bytes: every host reads all of them. Each that has ended
leaves a mark of a hundred bytes there, for as long as requests are kept."""

_STREAMS: dict[str, dict[str, Any]] = {
    HOSTS_STREAM: _bucket(HOSTS, HOSTS_LIVE),
    REQUESTS_STREAM: {**_bucket(REQUESTS, _KEPT), "max_bytes": _MOST_REQUESTS},
    SAMPLES_STREAM: {**_bucket("", _KEPT), "subjects": [f"{SAMPLES}.>"], "discard": "old"},
}
