"""Names of hosts, requesters and requests, and the subjects that they make.

A broker's permissions are about subjects, so whoever may do something is a part of them: a user who
may only publish to ``$KV.weft_requests.USER.>`` cannot ask in another's name, and a host that may
only publish to ``weft.samples.*.*.HOST.*`` cannot answer for another.
"""

from __future__ import annotations

import re

from weft.base.numbers import printable
from weft.errors import InvalidArgument

__all__ = [
    "FILES",
    "HOSTS",
    "REQUESTS",
    "SAMPLES",
    "checked",
    "file_subject",
    "host_key",
    "of_host",
    "of_request",
    "of_sample",
    "request_key",
    "sample_subject",
]

HOSTS = "weft_hosts"
"""The bucket of what runs where."""
REQUESTS = "weft_requests"
"""The bucket of what is wanted."""
SAMPLES = "weft.samples"
"""Where the subjects of samples begin."""

FILES = "weft_files"
"""The object store of files that are on their way."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}(?<!\.)")
_LONGEST_NUMBER = 20


def checked(name: object, what: str = "a host") -> str:
    """Return a name, if it can be one of a host, a requester or a request."""
    if isinstance(name, str) and _NAME.fullmatch(name) and ".." not in name:
        return name
    shown = printable(str(name)[:80])
    raise InvalidArgument(
        f"{shown!r} cannot be the name of {what}",
        "names have letters, digits, '.', '-' and '_', and are at most 127 characters long",
        "choose another: web-1.example.org",
    )


def _token(name: str) -> str:
    """A name as one part of a subject, where dots separate parts."""
    return name.replace(".", "/")


def _name(token: str) -> str:
    return token.replace("/", ".")


def host_key(host: str) -> str:
    """The key of a host in its bucket."""
    return _token(host)


def of_host(key: str) -> str | None:
    """The host in the key of its record; nothing if it is none."""
    try:
        return checked(_name(key)) if "." not in key else None
    except InvalidArgument:
        return None


def request_key(requester: str, request: str) -> str:
    """The key of a request in its bucket."""
    return f"{_token(requester)}.{_token(request)}"


def of_request(key: str) -> tuple[str, str] | None:
    """The requester and the id in the key of a request; nothing if it is none."""
    parts = key.split(".")
    if len(parts) != 2:
        return None
    try:
        return checked(_name(parts[0])), checked(_name(parts[1]))
    except InvalidArgument:
        return None


def sample_subject(requester: str, request: str, host: str = "*", epoch: int | str = "*") -> str:
    """Where a host says what it has measured since it has started; of any without a name."""
    token = host if host == "*" else _token(host)
    return f"{SAMPLES}.{request_key(requester, request)}.{token}.{epoch}"


def file_subject(requester: str, request: str, host: str, epoch: int) -> str:
    """Where a host puts the parts of a file that it sends.

    It is where an object store of JetStream has them. There the last part is a name that means
    nothing; here it says who may write and who may read, as in all other subjects.
    """
    return f"$O.{FILES}.C.{request_key(requester, request)}.{_token(host)}.{epoch}"


def of_sample(subject: str) -> tuple[str, str, str, int] | None:
    """The requester, the request, the host and its epoch in a subject; nothing if it is none."""
    parts = subject.removeprefix(SAMPLES + ".").split(".")
    is_number = len(parts) == 4 and parts[3].isdecimal() and len(parts[3]) <= _LONGEST_NUMBER
    if not subject.startswith(SAMPLES + ".") or not is_number:
        return None
    try:
        requester, request, host = (checked(_name(one)) for one in parts[:3])
    except InvalidArgument:
        return None
    return requester, request, host, int(parts[3])
