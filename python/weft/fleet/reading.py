"""What a broker has stored, as far as it can be read.

Everybody who is let in may write there, and of any version: what is no document is left out, and
what is one of another version of the protocol is named, with what is known of it by its key.
"""

from __future__ import annotations

from weft.fleet.broker import Stored, bucket_subject
from weft.fleet.names import HOSTS, REQUESTS, of_host, of_request, of_sample
from weft.fleet.protocol import BadDocument, HostRecord, OtherVersion, Report, Request

__all__ = ["host", "report", "request"]


def host(stored: Stored) -> tuple[HostRecord, str] | None:
    """A host, and why it cannot be asked; nothing if it is none."""
    name = of_host(stored.subject.removeprefix(bucket_subject(HOSTS, "")))
    try:
        record = HostRecord.decode(stored.data)
    except OtherVersion as error:
        return None if name is None else (HostRecord.of_other_version(name, stored.data), error.why)
    except BadDocument:
        return None
    return (record, "") if record.host == name else None


def request(stored: Stored) -> tuple[Request, str] | None:
    """A request, and why it cannot be read; nothing if it is none."""
    key = of_request(stored.subject.removeprefix(bucket_subject(REQUESTS, "")))
    if key is None:
        return None
    try:
        found = Request.decode(stored.data)
    except OtherVersion as error:
        return Request(key[1], key[0], (), "", 0.0), error.why
    except BadDocument:
        return None
    return (found, "") if (found.requester, found.id) == key else None


def report(subject: str, data: bytes, others: dict[str, str]) -> Report | None:
    """A report, if it is what its subject says; only that is kept by the broker.

    The host of one of another version is noted in ``others``, with why it cannot be read.
    """
    place = of_sample(subject)
    try:
        found = Report.decode(data)
    except OtherVersion as error:
        if place is not None:
            others[place[2]] = error.why
        return None
    except BadDocument:
        return None
    is_its = (found.requester, found.request, found.host, found.epoch) == place
    return found if is_its else None
