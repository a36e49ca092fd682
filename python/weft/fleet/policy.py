"""The policy of a host: who may measure which processes, how, and for how much.

It is a file in TOML, owned by root. Whatever no table of it allows is refused:

```toml
budget = "2%"                 # of the machine, for all requests together

[health]
cpu = "80%"                   # beyond this pressure nothing is measured

[[allow]]
requester = "alice"
processes = "exe=redis-server and not user=root"
snippets = "read"
budget = "1%"
```
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import Any

from weft.errors import BadFile, InvalidArgument
from weft.fleet.health import RESOURCES, Health
from weft.fleet.plan import Process
from weft.fleet.protocol import Request
from weft.fleet.selectors import EVERYTHING, Selector
from weft.fleet.texts import Snippets

__all__ = ["Decision", "Policy", "Rule"]

_KINDS: tuple[Snippets, ...] = ("library", "read", "write")
_WEAVERS = ("patch", "clone")
_BUDGET = 0.01
"""The part of its time that a process may lose where a rule does not say it."""
_MACHINE = 0.02
_REQUESTS = 4
_PROCESSES = 200
_MOST_BYTES = 1 << 20
_KEYS = (
    "requester",
    "processes",
    "snippets",
    "weavers",
    "budget",
    "requests",
    "longest",
    "most_processes",
    "files",
)


@dataclass(frozen=True)
class Rule:
    """What one table allows."""

    requester: str
    """A name, or a pattern of names."""
    processes: Selector
    snippets: Snippets = "library"
    weavers: tuple[str, ...] = ("patch",)
    budget: float = _BUDGET
    """What part of its time each process may lose."""
    requests: int = _REQUESTS
    """How many requests a requester may have at a time."""
    longest: float = 3600.0
    """How many seconds a request may last."""
    most_processes: int = _PROCESSES
    """How many processes may be measured for a requester at a time."""
    files: str = ""
    """A pattern of the names of files that may be fetched; none if it is empty."""

    def refusal(self, request: Request, need: Snippets) -> str:
        """Why it does not allow a request, whatever the process; empty if it does."""
        if _KINDS.index(need) > _KINDS.index(self.snippets):
            what = {
                "read": "texts of requests",
                "write": "snippets that change what a process does",
            }[need]
            return f"{what} are not allowed (snippets = {self.snippets!r})"
        if request.weaver not in self.weavers:
            return f"the weaver {request.weaver!r} is not allowed"
        if request.seconds > self.longest:
            return f"{request.seconds:g} s are longer than the {self.longest:g} s that are allowed"
        return ""


@dataclass(frozen=True)
class Decision:
    """What was decided, and why."""

    allowed: bool
    why: str
    rule: Rule | None = None


@dataclass(frozen=True)
class Policy:
    """All rules of a host. Without any, nothing is allowed."""

    rules: tuple[Rule, ...] = ()
    machine: float = _MACHINE
    """What part of the machine's processors all requests together may take."""
    health: Health = field(default_factory=Health)
    """The pressure beyond which nothing is measured."""

    def of_request(self, request: Request, need: Snippets, running: int) -> Decision:
        """Decide whether a request may be served at all, beside others of the same requester."""
        own = self._rules(request.requester)
        if not own:
            return Decision(False, f"no rule allows {request.requester} anything")
        fitting = [rule for rule in own if not rule.refusal(request, need)]
        if not fitting:
            return Decision(False, own[0].refusal(request, need))
        most = max(rule.requests for rule in fitting)
        if running >= most:
            why = f"{request.requester} has {running} requests already, of {most} at a time"
            return Decision(False, why)
        return Decision(True, "", fitting[0])

    def of_process(
        self, request: Request, need: Snippets, process: Process, others: int
    ) -> Decision:
        """Decide whether a process may be measured for a request that is served.

        ``others`` is how many others are measured for the same requester.
        """
        fitting = [
            rule
            for rule in self._rules(request.requester)
            if not rule.refusal(request, need) and rule.processes.matches(process.facts)
        ]
        if not fitting:
            return Decision(False, f"no rule allows {request.requester} this process")
        for rule in fitting:
            if others < rule.most_processes:
                return Decision(True, "", rule)
        most = max(rule.most_processes for rule in fitting)
        why = f"{request.requester} has {others} measured already, of {most} at a time"
        return Decision(False, why)

    def of_files(self, requester: str, running: int) -> Decision:
        """Decide whether any files may be listed or fetched, beside other requests."""
        own = [rule for rule in self._rules(requester) if rule.files]
        if not own:
            return Decision(False, f"no rule allows {requester} any files")
        most = max(rule.requests for rule in own)
        if running >= most:
            why = f"{requester} has {running} requests already, of {most} at a time"
            return Decision(False, why)
        return Decision(True, "", own[0])

    def of_file(self, requester: str, name: str) -> Decision:
        """Decide whether a file may be fetched; only such are listed."""
        for rule in self._rules(requester):
            if rule.files and fnmatchcase(name, rule.files):
                return Decision(True, "", rule)
        return Decision(False, f"no rule allows {requester} this file")

    def _rules(self, requester: str) -> list[Rule]:
        return [rule for rule in self.rules if fnmatchcase(requester, rule.requester)]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Policy:
        """Read a file; it must not be one that others may change."""
        try:
            with Path(path).open("rb") as file:
                status = os.fstat(file.fileno())
                data = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise BadFile(f"cannot read the policy {path}", str(error.strerror)) from error
        if status.st_uid not in (0, os.geteuid()):
            raise BadFile(
                f"the policy {path} belongs to another user",
                "who can change it decides what may be measured",
                f"chown root {path}",
            )
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise BadFile(
                f"others may change the policy {path}",
                "who can change it decides what may be measured",
                f"chmod go-w {path}",
            )
        _check_folders(path)
        if len(data) > _MOST_BYTES:
            raise BadFile(f"the policy {path} is too large", f"it has more than {_MOST_BYTES:,}")
        try:
            policy = cls.parse(data.decode())
            policy.health.check()
        except UnicodeDecodeError as error:
            raise BadFile(f"the policy {path} is no text", str(error)) from None
        except InvalidArgument as error:
            raise BadFile(f"the policy {path}: {error.what}", error.why, error.advice) from None
        return policy

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Read a text."""
        document = _toml(text)
        unknown = sorted(document.keys() - {"allow", "budget", "health"})
        if unknown:
            why = "there are 'budget', a table [health] and tables [[allow]]"
            raise InvalidArgument(f"there is no {unknown[0]!r} in a policy", why)
        tables = document.get("allow", [])
        if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
            raise InvalidArgument("'allow' is no table", "", "write [[allow]] before each")
        machine = _share(document.get("budget", f"{100 * _MACHINE:g}%"))
        rules = tuple(_rule(one, at) for at, one in enumerate(tables, 1))
        return cls(rules, machine, _health(document.get("health", {})))


def _check_folders(path: str | os.PathLike[str]) -> None:
    """Refuse folders in which others may put another file in the place of the policy."""
    for file in (Path(path).absolute(), Path(path).resolve()):
        for folder in file.parents:
            if _is_others(folder):
                raise BadFile(
                    f"others may replace the policy {path}",
                    f"they may change the folder {folder}",
                    f"chown root {folder} && chmod go-w {folder}, or keep it elsewhere: /etc/weft",
                )


def _is_others(folder: Path) -> bool:
    status = folder.stat()
    if status.st_uid not in (0, os.geteuid()):
        return True
    # In a folder like /tmp nobody may rename what is another's. Kubernetes mounts what everybody
    # may change, but read-only.
    is_open = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX
    return bool(is_open) and not os.statvfs(folder).f_flag & os.ST_RDONLY


def _toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument("it is no TOML", str(error)) from None
    return found


def _health(table: object) -> Health:
    if not isinstance(table, dict):
        raise InvalidArgument("'health' is no table", "", 'write [health] before: cpu = "80%"')
    unknown = sorted(table.keys() - set(RESOURCES))
    if unknown:
        why = f"there are {_listed(RESOURCES)}"
        raise InvalidArgument(f"there is no {unknown[0]!r} in [health]", why)
    return Health(tuple((name, _share(table[name])) for name in RESOURCES if name in table))


def _rule(table: Mapping[str, Any], number: int) -> Rule:
    place = f"in [[allow]] number {number}"
    unknown = sorted(table.keys() - set(_KEYS))
    if unknown:
        raise InvalidArgument(f"there is no {unknown[0]!r} {place}", f"there are {_listed(_KEYS)}")
    for name in ("requester", "processes"):
        if not isinstance(table.get(name), str):
            raise InvalidArgument(f"there is no text {name!r} {place}", "what is it to allow?")
    snippets = table.get("snippets", "library")
    if snippets not in _KINDS:
        raise InvalidArgument(f"snippets = {snippets!r} {place}", f"it is {_listed(_KINDS)}")
    weavers = table.get("weavers", ["patch"])
    if not isinstance(weavers, list) or not all(isinstance(one, str) for one in weavers):
        raise InvalidArgument(f"weavers is no list {place}", "", 'write: weavers = ["patch"]')
    if unknown := [one for one in weavers if one not in _WEAVERS]:
        why = f"there are {_listed(_WEAVERS)}"
        raise InvalidArgument(f"there is no weaver {unknown[0]!r} {place}", why)
    longest = table.get("longest", 3600.0)
    if not isinstance(longest, int | float) or isinstance(longest, bool) or not 0 <= longest < inf:
        raise InvalidArgument(f"longest = {longest!r} {place}", "it is a number of seconds")
    files = table.get("files", "")
    if not isinstance(files, str):
        raise InvalidArgument(f"files is no text {place}", "", 'write a pattern: files = "*.trace"')
    text = table["processes"]
    return Rule(
        requester=table["requester"],
        processes=EVERYTHING if text == "*" else Selector.parse(text),
        snippets=snippets,
        weavers=tuple(weavers),
        budget=_share(table.get("budget", f"{100 * _BUDGET:g}%")),
        requests=_count(table, "requests", _REQUESTS, place),
        longest=float(longest),
        most_processes=_count(table, "most_processes", _PROCESSES, place),
        files=files,
    )


def _count(table: Mapping[str, Any], name: str, default: int, place: str) -> int:
    found = table.get(name, default)
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise InvalidArgument(f"{name} = {found!r} {place}", "it is a whole number")
    return found


def _share(value: object) -> float:
    try:
        found = float(str(value).removesuffix("%")) / 100 if isinstance(value, str) else -1.0
    except ValueError:
        found = -1.0
    if not 0 < found <= 1:
        raise InvalidArgument(f"{value!r} is no percentage", advice='write it like: "1%"')
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
