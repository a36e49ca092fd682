"""The documents that travel between front ends and hosts, and what of them is refused.

All are JSON with a version ``v``. What arrives is not trusted: sizes are bounded, and every field
is looked at before anything is done with it. What is not understood is refused with a reason.
Fields that are not known are left alone, so that a newer version may add some; one that changes the
meaning of a field has another version.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from weft.errors import BadFile, InvalidArgument
from weft.fleet.folding import Series
from weft.fleet.names import checked
from weft.model.completeness import Interval
from weft.model.values import Bucket, Histogram

__all__ = [
    "LONGEST",
    "MOST_BYTES",
    "VERSION",
    "Ask",
    "BadDocument",
    "FileAnswer",
    "FileEntry",
    "FileRequest",
    "FileState",
    "HostRecord",
    "OtherVersion",
    "Program",
    "Report",
    "Request",
    "State",
    "is_file_name",
    "wanted",
]

VERSION = 1
MOST_BYTES = 512 << 10
"""How large a document may be. NATS itself takes 1 MiB if nobody has said more."""
LONGEST = 24 * 3600.0
"""How long a request may last, in seconds: what outlives it is removed from the broker."""
MOST_METRICS = 64
MOST_SERIES = 1000
"""How many series a report has; where each process has its own, the smallest are added up."""
MOST_KEYS = 1000
"""How many keys of a map travel; the others are added up."""
MOST_NOTES = 20
LONGEST_KEY = 8192
"""How many characters of a key travel: of a stack the innermost calls."""
MOST_FILES = 1000
"""How many files a host lists."""
LARGEST_FILE = 1 << 30
"""How many bytes a file may have that is fetched."""
LATEST = 250_000_000_000.0
"""When a file may have been written to at the latest, in seconds since 1970."""
LONGEST_FETCH = 3600.0
"""For how long a file may be on its way, in seconds: then the broker forgets it."""
_MOST_TEXT = 16 << 10
_MOST_TEXTS = 64 << 10
"""How long all texts of a request may be: reading takes longer than in proportion."""
_MOST_PROGRAMS = 1000
_MOST_HOSTS = 100_000
_MOST_BUCKETS = 5000
_LARGEST = 1 << 127
_SHORT = 500
_LEAST_INTERVAL = 0.1

State: TypeAlias = Literal["weaving", "idle", "measuring", "done", "stopped", "refused", "shed"]
"""What a host does for a request. It weaves; no process matches; it measures; the time is over; it
was stopped before; its policy, or the kernel, does not allow it; its budget does not."""

FileState: TypeAlias = Literal["sending", "done", "refused", "failed"]
"""What a host does for a request of files."""

_STATES: Mapping[str, State] = {one: one for one in get_args(State)}
_FILE_STATES: Mapping[str, FileState] = {one: one for one in get_args(FileState)}

_T = TypeVar("_T")


class BadDocument(BadFile):
    """A document that cannot be used, from a broker."""


class OtherVersion(BadDocument):
    """A document of another version of the protocol: whoever wrote it has to be named."""


class OtherKind(BadDocument):
    """A document of a kind that something else is to be done with."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A metric, and the part of a program that it is asked of."""

    metric: str
    focus: str = ""

    def __str__(self) -> str:
        return f"{self.metric}@{self.focus}" if self.focus else self.metric


@dataclass(frozen=True)
class Request:
    """What somebody wants to be measured, of which processes, and for how long."""

    id: str
    requester: str
    metrics: tuple[Ask, ...]
    where: str
    seconds: float
    """How long, from when the broker has it: machines' clocks differ."""
    interval: float = 1.0
    budget: float | None = None
    """The part of its time that a process may lose; the host's policy may allow less."""
    weaver: str = "patch"
    texts: tuple[str, ...] = ()
    """Texts in MDL, with metrics that hosts do not have."""
    probes: tuple[str, ...] = ()
    """One-liners."""
    hosts: tuple[str, ...] | None = None
    """The hosts that it is for; all if nothing is said."""
    by: str = ""
    """What each value is divided by; nothing if it is not."""

    def is_for(self, host: str) -> bool:
        """Whether a host is asked."""
        return self.hosts is None or host in self.hosts

    def encode(self) -> bytes:
        """Write it as it travels."""
        return _encoded("request", asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Request:
        """Read what has arrived."""
        read = _Reader(data, "request")
        metrics = read.items("metrics", MOST_METRICS, lambda one: _ask(_Fields(one, "a metric")))
        probes = read.texts("probes", MOST_METRICS, _MOST_TEXT)
        if not metrics and not probes:
            raise _bad("request", "it asks for no metric")
        texts = read.texts("texts", 16, _MOST_TEXT)
        if (size := sum(map(len, (*texts, *probes)))) > _MOST_TEXTS:
            raise _bad("request", f"its texts have {size:,} characters, more than {_MOST_TEXTS:,}")
        budget = read.optional("budget", lambda one: _number(one, "budget", 1e-6, 1.0))
        return cls(
            id=_name(read.value("id"), "a request"),
            requester=_name(read.value("requester"), "a requester"),
            metrics=metrics,
            where=_text(read.value("where"), "where", 4096),
            seconds=_number(read.value("seconds"), "seconds", 0.0, LONGEST),
            interval=_number(read.value("interval"), "interval", _LEAST_INTERVAL, 3600.0),
            budget=budget,
            weaver=_text(read.value("weaver"), "weaver", 20),
            texts=texts,
            probes=probes,
            hosts=read.optional("hosts", _host_names),
            by=read.optional("by", lambda one: _text(one, "by", _SHORT)) or "",
        )


@dataclass(frozen=True)
class Program:
    """A program that runs on a host, and how many processes of it."""

    name: str
    exe: str
    build_id: str = ""
    user: str = ""
    cgroup: str = ""
    container: str = ""
    processes: int = 1


@dataclass(frozen=True)
class HostRecord:
    """What a host says of itself."""

    host: str
    instance: str
    """What tells a start of it from others of the same name."""
    version: str
    """That of weft."""
    labels: Mapping[str, str] = field(default_factory=dict)
    programs: tuple[Program, ...] = ()
    files: bool | None = None
    """Whether there are files to be fetched; nothing if its weft knows nothing of that."""

    def encode(self) -> bytes:
        """Write it as it travels."""
        return _encoded("host", asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> HostRecord:
        """Read what has arrived."""
        read = _Reader(data, "host")
        return cls(
            host=_name(read.value("host"), "a host"),
            instance=_text(read.value("instance"), "instance", 64),
            version=_text(read.value("version"), "version", 64),
            labels=read.labels("labels"),
            programs=read.items(
                "programs", _MOST_PROGRAMS, lambda one: _program(_Fields(one, "a program"))
            ),
            files=read.optional("files", lambda one: _flag(one, "files")),
        )

    @classmethod
    def of_other_version(cls, host: str, data: bytes) -> HostRecord:
        """What can be told of a host whose record is of another version of the protocol.

        Its name is that of the key; labels are read if they are still what they are here.
        """
        labels: Mapping[str, str] = {}
        version = ""
        with suppress(ValueError, RecursionError, BadDocument):
            read = _Fields(json.loads(data[:MOST_BYTES]), "host")
            version = _text(read.value("version"), "version", 64)
            labels = read.labels("labels")
        return cls(host, "", version, labels)


@dataclass(frozen=True)
class Report:
    """All that a host has measured for a request since it has started."""

    requester: str
    request: str
    host: str
    epoch: int
    """Which start of the host it is of: a later one has a higher number."""
    seq: int
    """Which of its reports: later ones have higher numbers."""
    state: State
    processes: int = 0
    """How many processes are, or were, measured."""
    final: bool = False
    """Whether there will be no more."""
    notes: tuple[str, ...] = ()
    """Why values may be incomplete, and whatever else one should know."""
    series: tuple[Series, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True
    """Whether all that was asked for is in it, whatever the single series say."""

    def encode(self) -> bytes:
        """Write it as it travels."""
        return self._encoded

    @cached_property
    def _encoded(self) -> bytes:
        document = {one.name: getattr(self, one.name) for one in fields(self)}
        return _encoded("report", {**document, "series": [*map(_of_series, self.series)]})

    @classmethod
    def decode(cls, data: bytes) -> Report:
        """Read what has arrived."""
        read = _Reader(data, "report")
        state = _STATES.get(_text(read.value("state"), "state", 20))
        if state is None:
            raise _bad("report", "there is no state of this name")
        return cls(
            requester=_name(read.value("requester"), "a requester"),
            request=_name(read.value("request"), "a request"),
            host=_name(read.value("host"), "a host"),
            epoch=_whole(read.value("epoch"), "epoch"),
            seq=_whole(read.value("seq"), "seq"),
            state=state,
            processes=_whole(read.value("processes"), "processes"),
            final=_flag(read.value("final"), "final"),
            notes=read.texts("notes", MOST_NOTES, _SHORT),
            series=read.items("series", MOST_SERIES, lambda one: _series(_Fields(one, "a series"))),
            labels=read.labels("labels"),
            complete=_flag(read.value("complete"), "complete"),
        )


@dataclass(frozen=True)
class FileRequest:
    """That hosts list the files that they offer, or that one of them sends one."""

    id: str
    requester: str
    hosts: tuple[str, ...]
    name: str = ""
    """The file to be sent; without one they are listed."""
    seconds: float = LONGEST_FETCH
    """For how long it is needed."""

    def is_for(self, host: str) -> bool:
        """Whether a host is asked."""
        return host in self.hosts

    def encode(self) -> bytes:
        """Write it as it travels."""
        return _encoded("files", asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> FileRequest:
        """Read what has arrived."""
        read = _Reader(data, "files")
        name = read.value("name")
        return cls(
            id=_name(read.value("id"), "a request"),
            requester=_name(read.value("requester"), "a requester"),
            hosts=_host_names(read.value("hosts")),
            name=_file_name(name) if name else "",
            seconds=_number(read.value("seconds"), "seconds", 0.0, LONGEST_FETCH),
        )


@dataclass(frozen=True)
class FileEntry:
    """A file that a host offers."""

    name: str
    size: int
    modified: float
    """When it was last written to, in seconds since 1970 by the host's clock."""


@dataclass(frozen=True)
class FileAnswer:
    """What a host has done for a request of files."""

    requester: str
    request: str
    host: str
    epoch: int
    seq: int
    state: FileState
    why: str = ""
    """Why it has failed or was refused; or what is not listed."""
    files: tuple[FileEntry, ...] = ()
    """Those that there are, or the one that is sent."""
    sent: int = 0
    """How many bytes of it the broker has."""
    digest: str = ""
    """The SHA-256 of the whole file, once it was sent."""

    @property
    def final(self) -> bool:
        """Whether there will be no more."""
        return self.state != "sending"

    def encode(self) -> bytes:
        """Write it as it travels."""
        return _encoded("answer", asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> FileAnswer:
        """Read what has arrived."""
        read = _Reader(data, "answer")
        state = _FILE_STATES.get(_text(read.value("state"), "state", 20))
        if state is None:
            raise _bad("answer", "there is no state of this name")
        return cls(
            requester=_name(read.value("requester"), "a requester"),
            request=_name(read.value("request"), "a request"),
            host=_name(read.value("host"), "a host"),
            epoch=_whole(read.value("epoch"), "epoch"),
            seq=_whole(read.value("seq"), "seq"),
            state=state,
            why=_text(read.value("why"), "why", 2 * _SHORT),
            files=read.items("files", MOST_FILES, lambda one: _entry(_Fields(one, "a file"))),
            sent=_whole(read.value("sent"), "sent"),
            digest=_text(read.value("digest"), "digest", 64),
        )


def wanted(data: bytes) -> Request | FileRequest:
    """Read what somebody wants of hosts."""
    try:
        return Request.decode(data)
    except OtherKind:
        return FileRequest.decode(data)


def is_file_name(name: str) -> bool:
    """Whether a name is one of a file in a folder, that can be shown and asked for."""
    return (
        0 < len(name) <= 255 and name not in (".", "..") and "/" not in name and name.isprintable()
    )


def short_notes(notes: Sequence[str]) -> tuple[str, ...]:
    """Return notes as they fit into a report; how many are left out is said in the last."""
    each = list(dict.fromkeys(one[:_SHORT] for one in notes))
    if len(each) > MOST_NOTES:
        rest = len(each) - MOST_NOTES + 1
        each[MOST_NOTES - 1 :] = [f"and {rest} more notes"]
    return tuple(each)


def _encoded(kind: str, fields: Mapping[str, Any]) -> bytes:
    document = {"v": VERSION, "kind": kind, **fields}
    return json.dumps(document, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()


def _of_series(series: Series) -> dict[str, Any]:
    value: Any = series.value
    if isinstance(value, Histogram):
        buckets = [[one.low, one.high, one.count] for one in value.buckets]
        value = {"histogram": [value.count, value.sum, buckets]}
    elif isinstance(value, dict):
        value = {"map": dict(value)}
    return {
        "metric": series.metric,
        "focus": series.focus,
        "unit": series.unit,
        "value": value,
        "aggregate": series.aggregate,
        "complete": series.complete,
        **({"part": series.part} if series.part else {}),
        **_of_interval(series.interval),
    }


def _of_interval(interval: Interval | None) -> dict[str, list[float]]:
    if interval is None:
        return {}
    return {"interval": [interval.low, interval.high, interval.confidence]}


# Reading: each of these takes whatever JSON has, and returns what it should be, or refuses it.


def _bad(kind: str, why: str) -> BadDocument:
    return BadDocument(f"a {kind} from the broker cannot be used", why)


class _Fields:
    """An object of JSON."""

    def __init__(self, value: object, kind: str) -> None:
        if not isinstance(value, dict):
            raise _bad(kind, "it is no object")
        self._fields = value
        self._kind = kind

    def value(self, name: str) -> object:
        if name not in self._fields:
            raise _bad(self._kind, f"it has no {name}")
        return self._fields[name]

    def optional(self, name: str, read: Callable[[object], _T]) -> _T | None:
        found = self._fields.get(name)
        return None if found is None else read(found)

    def items(self, name: str, most: int, read: Callable[[object], _T]) -> tuple[_T, ...]:
        return _items(self.value(name), name, most, read)

    def texts(self, name: str, most: int, longest: int) -> tuple[str, ...]:
        return self.items(name, most, lambda one: _text(one, name, longest))

    def labels(self, name: str) -> dict[str, str]:
        found = self.value(name)
        if not isinstance(found, dict) or len(found) > 64:
            raise _bad(self._kind, f"its {name} are no short list of names and values")
        return {_text(key, name, 128): _text(value, name, 256) for key, value in found.items()}


class _Reader(_Fields):
    """A document, once it is known to be of the kind and the version that is understood."""

    def __init__(self, data: bytes, kind: str) -> None:
        if len(data) > MOST_BYTES:
            raise _bad(kind, f"it has {len(data):,} bytes, more than {MOST_BYTES:,}")
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise _bad(kind, f"it is no JSON: {error}") from None
        super().__init__(document, kind)
        version = self.value("v")
        if version != VERSION:
            kind_of_error = OtherVersion if type(version) is int else BadDocument
            raise kind_of_error(
                f"a {kind} from the broker cannot be used",
                f"it is of version {str(version)[:20]} of the protocol, and this weft knows "
                f"{VERSION}: the older one of the two has to be updated",
            )
        if self.value("kind") != kind:
            raise OtherKind(
                f"a {kind} from the broker cannot be used", "it is a document of another kind"
            )


def _items(value: object, name: str, most: int, read: Callable[[object], _T]) -> tuple[_T, ...]:
    if not isinstance(value, list) or len(value) > most:
        raise _bad("document", f"{name} is no list of at most {most:,}")
    return tuple(map(read, value))


def _text(value: object, name: str, longest: int) -> str:
    if not isinstance(value, str) or len(value) > longest:
        raise _bad("document", f"{name} is no text of at most {longest:,} characters")
    return value


def _name(value: object, what: str) -> str:
    try:
        return checked(value, what)
    except InvalidArgument as error:
        raise _bad("document", error.what) from None


def _number(value: object, name: str, least: float, most: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= float(str(value)) <= most:
        raise _bad("document", f"{name} is no number from {least:g} to {most:g}")
    return float(str(value))


def _whole(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise _bad("document", f"{name} is no count")
    return value


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise _bad("document", f"{name} is neither true nor false")
    return value


def _host_names(value: object) -> tuple[str, ...]:
    return _items(value, "hosts", _MOST_HOSTS, lambda one: _name(one, "a host"))


def _ask(read: _Fields) -> Ask:
    return Ask(
        _text(read.value("metric"), "metric", 256), _text(read.value("focus"), "focus", 4096)
    )


def _file_name(value: object) -> str:
    name = _text(value, "name", 255)
    if not is_file_name(name):
        raise _bad("document", "its name is none of a file")
    return name


def _entry(read: _Fields) -> FileEntry:
    return FileEntry(
        name=_file_name(read.value("name")),
        size=_whole(read.value("size"), "size"),
        modified=_number(read.value("modified"), "modified", 0.0, LATEST),
    )


def _program(read: _Fields) -> Program:
    names = ("name", "exe", "build_id", "user", "cgroup", "container")
    texts = {name: _text(read.value(name), name, 4096) for name in names}
    return Program(**texts, processes=_whole(read.value("processes"), "processes"))


def _series(read: _Fields) -> Series:
    aggregate = read.value("aggregate")
    if aggregate not in ("sum", "min", "max"):
        raise _bad("series", "nothing is known of how it is aggregated")
    return Series(
        metric=_text(read.value("metric"), "metric", 256),
        focus=_text(read.value("focus"), "focus", 4096),
        unit=_text(read.value("unit"), "unit", 64),
        value=read.optional("value", _read_value),
        aggregate=aggregate,
        complete=_flag(read.value("complete"), "complete"),
        part=read.optional("part", lambda one: _text(one, "part", _SHORT)) or "",
        interval=read.optional("interval", _interval),
    )


def _interval(value: object) -> Interval:
    if not isinstance(value, list) or len(value) != 3:
        raise _bad("series", "its interval has other parts")
    low, high, confidence = map(_scalar, value)
    if not (low <= high and 0 < confidence < 1):
        raise _bad("series", "its interval is none")
    return Interval(low, high, confidence)


def _read_value(value: object) -> int | float | Histogram | dict[str, int | float]:
    if isinstance(value, dict) and "histogram" in value:
        parts = value["histogram"]
        if not isinstance(parts, list) or len(parts) != 3:
            raise _bad("series", "its histogram has other parts")
        return Histogram(_buckets(parts[2]), _integer(parts[0]), _integer(parts[1]))
    if isinstance(value, dict) and "map" in value:
        found = value["map"]
        if not isinstance(found, dict) or len(found) > MOST_KEYS:
            raise _bad("series", f"its map has more than {MOST_KEYS:,} keys")
        return {_text(key, "a key", LONGEST_KEY): _scalar(one) for key, one in found.items()}
    return _scalar(value)


def _buckets(value: object) -> tuple[Bucket, ...]:
    """Most of what a front end reads: so not one by one."""
    if not isinstance(value, list) or len(value) > _MOST_BUCKETS:
        raise _bad("series", f"its buckets are no list of at most {_MOST_BUCKETS:,}")
    if not {*map(type, value)} <= {list} or not {*map(len, value)} <= {3}:
        raise _bad("series", "a bucket has other parts")
    numbers = [number for one in value for number in one]
    if not {*map(type, numbers)} <= {int}:
        raise _bad("series", "a bucket has something else where a whole number should be")
    for number in (min(numbers, default=0), max(numbers, default=0)):
        _integer(number)
    return tuple([Bucket(low, high, count) for low, high, count in value])


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= _LARGEST:
        raise _bad("series", "it has something else where a whole number should be")
    return value


def _scalar(value: object) -> int | float:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _bad("series", "its value is no number")
        return value
    return _integer(value)
