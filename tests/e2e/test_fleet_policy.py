"""A policy decides about real requests for a real server: what was decided, what is said of it.

One table: each request, what becomes of it, what its requester is told, and what is in the audit
log. All requests are stored as any client of the broker can store them, so that nothing but the
host stands between them and the server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

import weft
from tests.e2e.harness import eventually, need
from tests.e2e.test_probes import needs_weaver
from tests.fleets import FUNCTION, SERVER, Fleet, harmed, stored
from weft.fleet.broker import bucket_subject
from weft.fleet.front import Running
from weft.fleet.inventory import Inventory
from weft.fleet.names import REQUESTS, request_key
from weft.fleet.plan import Process
from weft.fleet.protocol import Ask, Request

pytestmark = [needs_weaver, pytest.mark.fleet, pytest.mark.watchdog(300)]

POLICY = """
budget = "100%"

[[allow]]
requester = "library"
processes = "exe=redis-server"
budget = "50%"

[[allow]]
requester = "reads"
processes = "*"
snippets = "read"
budget = "50%"

[[allow]]
requester = "writes"
processes = "*"
snippets = "write"
budget = "50%"

[[allow]]
requester = "team-*"
processes = "*"

[[allow]]
requester = "small"
processes = "*"
budget = "2%"

[[allow]]
requester = "short"
processes = "*"
longest = 1000

[[allow]]
requester = "none"
processes = "*"
requests = 0

[[allow]]
requester = "few"
processes = "*"
most_processes = 0

[[allow]]
requester = "clone"
processes = "*"
weavers = ["clone"]

[[allow]]
requester = "patch-and-clone"
processes = "*"
weavers = ["patch", "clone"]

[[allow]]
requester = "two"
processes = "exe=redis-server"

[[allow]]
requester = "two"
processes = "exe=postgres"
snippets = "read"

[[allow]]
requester = "either"
processes = "exe=postgres"

[[allow]]
requester = "either"
processes = "exe=redis-server"
budget = "3%"
"""
COUNTS = """
metric commands {{
    name "commands";
    units calls;
    base is counter {{ foreach f in hot {{ append preInsn f.entry (* {code} *) }} }}
}}
list hot is procedure {{ items {{ "pingCommand" }}; }}
"""
CALLS = Ask("calls", FUNCTION)


@dataclass(frozen=True)
class Case:
    """A request, and what is to become of it."""

    name: str
    requester: str
    state: str
    """What the host reports in the end; empty if it has nothing to say."""
    said: str = ""
    """What the requester is told."""
    outcomes: Sequence[str] = ()
    """What is in the audit log, in this order; the last but ``ended`` says why."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    budget: float | None = None
    """What part of its time the process may lose, as it is logged."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """What else is in the document, whether or not it may be."""

    def encode(self) -> bytes:
        known = {"metrics": (CALLS,), "where": "exe=redis-server", "seconds": 600.0, **self.asked}
        request = Request(self.name, self.requester, interval=0.1, **known)
        return json.dumps({**json.loads(request.encode()), **self.document}).encode()


ALLOWED = ("allowed", "allowed", "ended")
NOT_THIS_PROCESS = ("allowed", "refused", "ended")
FAILED = ("allowed", "failed", "ended")


def allowed(name: str, requester: str, share: float | None = None, **asked: Any) -> Case:
    return Case(name, requester, "measuring", "", ALLOWED, asked, share)


def refused(name: str, requester: str, said: str, **asked: Any) -> Case:
    return Case(name, requester, "refused", said, ("refused",), asked)


def not_this(name: str, requester: str, said: str = "", **asked: Any) -> Case:
    said = said or f"no rule allows {requester} this process"
    return Case(name, requester, "refused", said, NOT_THIS_PROCESS, asked)


def failed(name: str, requester: str, said: str, **asked: Any) -> Case:
    return Case(name, requester, "refused", said, FAILED, asked)


def unread(name: str, whose: str, said: str, **document: Any) -> Case:
    """A document that is no request: there is nobody to be told, but it is logged."""
    return Case(name, whose, "", said, ("refused",), document=document)


def probe(code: str) -> dict[str, Any]:
    return {"metrics": (), "probes": (f"entry processCommand {{ {code} }}",)}


def text(code: str) -> dict[str, Any]:
    return {"metrics": (Ask("commands"),), "texts": (COUNTS.format(code=code),)}


CASES = [
    # Requesters.
    allowed("known", "library", 0.5),
    refused("unknown", "mallory", "no rule allows mallory anything"),
    refused("other-case", "Library", "no rule allows Library anything"),
    allowed("pattern", "team-a", 0.01),
    refused("no-pattern", "team", "no rule allows team anything"),
    refused("star", "team_", "no rule allows team_ anything"),
    # Budgets: the least of what the policy and the request say.
    allowed("budget-of-policy", "small", 0.02),
    allowed("budget-of-request", "small", 0.005, budget=0.005),
    allowed("budget-too-large", "small", 0.02, budget=1.0),
    # Quotas.
    allowed("in-time", "short", seconds=1000.0),
    refused("too-long", "short", "1000.5 s are longer than the 1000 s", seconds=1000.5),
    refused("no-requests", "none", "none has 0 requests already, of 0 at a time"),
    not_this("no-processes", "few", "few has 0 measured already, of 0 at a time"),
    # Weavers.
    refused(
        "clone-of-library",
        "library",
        "a fleet is not measured with the weaver 'clone'",
        weaver="clone",
    ),
    refused("patch-of-clone", "clone", "the weaver 'patch' is not allowed"),
    refused("clone-of-clone", "clone", "not measured with the weaver 'clone'", weaver="clone"),
    refused("no-weaver", "library", "not measured with the weaver 'x'", weaver="x"),
    allowed("patch-of-both", "patch-and-clone"),
    # Kinds of snippets.
    refused("probe-of-library", "library", "texts of requests are not allowed", **probe("n++")),
    refused(
        "text-of-library", "library", "texts of requests are not allowed", **text("commands++;")
    ),
    allowed("probe-of-reads", "reads", **probe("n += $arg[0]")),
    allowed("text-of-reads", "reads", **text("commands++;")),
    refused("calls-of-reads", "reads", "change what a process does", **probe("n += mstime()")),
    refused("text-calls-of-reads", "reads", "change what", **text("commands += mstime();")),
    allowed("calls-of-writes", "writes", **probe("n += mstime()")),
    refused(
        "argument-of-writes",
        "writes",
        "cannot change what a process does: $arg[0] =",
        **probe("$arg[0] = 1"),
    ),
    refused(
        "result-of-writes", "writes", "cannot change what a process does", **probe("return 7;")
    ),
    refused("register-of-writes", "writes", "$reg[rax] +=", **probe("$reg[rax] += 1")),
    # Several rules for one requester: each holds with all that it says.
    not_this("text-by-a-rule-of-others", "two", "no rule allows two this process", **probe("n++")),
    allowed("library-by-its-rule", "two"),
    allowed("second-rule", "either", 0.03),
    # Code that makes no sense, never ends or costs too much.
    refused("bad-mdl", "reads", "MDL", texts=("metric {",)),
    refused("no-mdl", "reads", "MDL", texts=("\x00\x7fELF",)),
    refused("while", "reads", "MDL", **text("while (1) commands++;")),
    refused("for", "reads", "MDL", **probe("for (;;) n++")),
    refused("deep", "reads", "MDL006", **probe("if (1) " * 500 + "n++")),
    allowed("parentheses", "reads", **probe("n += " + "(" * 500 + "1" + ")" * 500)),
    failed("long-code", "reads", "", **probe("n++; " * 2000)),
    refused("no-value", "reads", "MDL023", **probe("n += size")),
    refused(
        "imports-a-file",
        "reads",
        "'/etc/passwd' cannot be imported",
        texts=('import "/etc/passwd";',),
    ),
    refused("imports-above", "reads", "cannot be imported", texts=('import "../x.mdl";',)),
    refused(
        "imports-of-library",
        "library",
        "texts of requests are not allowed",
        texts=('import "procedures.mdl";',),
    ),
    # What is not there.
    failed("no-metric", "library", "there is no metric colour", metrics=(Ask("colour"),)),
    failed("no-focus", "library", "", metrics=(Ask("calls", "/Code/redis-server/noSuchFunction"),)),
    failed("no-module", "library", "", metrics=(Ask("calls", "/Code/noSuchModule/f"),)),
    Case("no-process", "library", "idle", "", ("allowed", "ended"), {"where": "exe=postgres"}),
    Case("no-host", "library", "", "", (), {"hosts": ("web-1", "web-2")}),
    Case("no-label", "library", "", "", (), {"where": "label.zone=z"}),
    allowed("this-host", "library", hosts=("web-1", "h1")),
    refused("no-selector", "library", "is no selector", where="(("),
    refused("no-field", "library", "there is no field 'colour'", where="colour=red"),
    # What is no request.
    unread("too-large", "reads", "texts is no text of at most 16,384", texts=["x" * 16_385]),
    unread(
        "too-large-together",
        "reads",
        "its texts have 65,537 characters, more than 65,536",
        texts=["x" * 16_384] * 4,
        probes=["x"],
    ),
    unread(
        "too-many",
        "library",
        "metrics is no list of at most 64",
        metrics=[{"metric": "calls", "focus": ""}] * 65,
    ),
    unread("forged", "library", "it says that it is of writes", requester="writes"),
    unread("of-version-2", "library", "version 2 of the protocol", v=2),
    unread("no-number", "library", "seconds is no number", seconds="1"),
    unread("for-ever", "library", "seconds is no number from 0 to 86400", seconds=1e9),
    unread("all-of-it", "library", "budget is no number", budget=2),
    unread("no-metrics", "library", "it asks for no metric", metrics=[]),
]


def of_process(process: Process) -> tuple[str, list[Case]]:
    """Rules and cases of what this server is, and of what it is not."""
    facts = {name: values[-1] for name, values in process.facts.items()}
    facts["cgroup"] = re.sub(r"([*?\[])", r"[\1]", facts["cgroup"])
    rules, cases = "", []
    for name in ("exe", "uid", "user", "cgroup", "pid", "netns", "build_id"):
        its = "own" if name == "netns" else facts[name]
        for sign in ("=", "!="):
            requester = f"{name}-{'is' if sign == '=' else 'is-not'}"
            rules += f"[[allow]]\nrequester = '{requester}'\n"
            rules += f"processes = '''{name}{sign}\"{its}\"'''\n"
            make = allowed if sign == "=" else not_this
            cases.append(make(requester, requester))
    rules += "[[allow]]\nrequester = 'container-is'\nprocesses = 'container=\"0123\"'\n"
    return rules, [*cases, not_this("container", "container-is")]


@dataclass(frozen=True)
class Decided:
    """What has become of all requests."""

    fleet: Fleet
    told: Mapping[str, Running]
    logged: Sequence[Mapping[str, Any]]
    cases: Mapping[str, Case]


def is_decided(case: Case, told: Running | None, lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all has come that is to come for a request until it is stopped."""
    if case.state:
        states = [one.state for one in told.result.hosts] if told is not None else []
        if not states or states[0] == "weaving":
            return False
    outcomes = [one for one in case.outcomes if one != "ended"]
    return [one.get("request") for one in lines].count(case.name) >= len(outcomes)


def batch(waiting: Sequence[Case]) -> list[Case]:
    """Requests that may be made at once: no more of one requester than it may have."""
    found: list[Case] = []
    for one in waiting:
        if [other.requester for other in found].count(one.requester) < 3:
            found.append(one)
    return found[:30]


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Decided]:
    need(SERVER, "redis-server", "redis-cli")
    with Fleet(tmp_path_factory.mktemp("fleet"), 1) as fleet:
        (host,) = fleet.hosts
        (server,) = [one for one in Inventory("x", {}).look() if one.pid == host.redis.pid]
        rules, more = of_process(server)
        fleet.policy.write_text(POLICY + rules)
        fleet.start_services()
        told: dict[str, Running] = {}
        waiting = cases = [*CASES, *more]
        with weft.Fleet(fleet.url_of(0)) as asked:
            while waiting:
                some = batch(waiting)
                keys = [
                    bucket_subject(REQUESTS, request_key(one.requester, one.name)) for one in some
                ]
                stored(fleet, *zip(keys, (one.encode() for one in some), strict=True))

                def are_decided(some: Sequence[Case] = some) -> bool:
                    told.update({one.request.id: one for one in asked.status()})
                    lines = host.decisions()
                    return all(is_decided(one, told.get(one.name), lines) for one in some)

                with suppress(TimeoutError):  # the test of the case says what is missing
                    eventually(are_decided, 60)
                stored(fleet, *((key, b"") for key in keys), headers={"KV-Operation": "DEL"})

                def are_over(some: Sequence[Case] = some) -> bool:
                    ended = {
                        line["request"] for line in host.decisions() if line["outcome"] == "ended"
                    }
                    return ended >= {one.name for one in some if "ended" in one.outcomes}

                with suppress(TimeoutError):
                    eventually(are_over, 60)
                waiting = [one for one in waiting if one not in some]
        yield Decided(fleet, told, host.decisions(), {one.name: one for one in cases})


NAMES = [one.name for one in CASES]
FACTS = ("exe", "uid", "user", "cgroup", "pid", "netns", "build_id")
NAMES += [f"{name}-{what}" for name in FACTS for what in ("is", "is-not")] + ["container"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_decided(decided: Decided, name: str) -> None:
    case = decided.cases[name]
    told = decided.told.get(name)
    hosts = told.result.hosts if told is not None else ()
    assert [one.state for one in hosts] == ([case.state] if case.state else [])
    is_measured = case.state == "measuring"
    for one in hosts:
        assert one.processes == int(is_measured)
        assert one.notes or case.state != "refused"
        assert case.said in " ".join(one.notes)
    lines = [one for one in decided.logged if one.get("request") == name]
    assert [one["outcome"] for one in lines] == [*case.outcomes]
    for line in lines:
        assert (line["who"], line["host"]) == (case.requester, "h1")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["when"])
        assert line["what"]
    if not lines:
        return
    decision = lines[1] if len(lines) == 3 else lines[0]
    assert case.said in decision.get("why", "")
    assert bool(decision.get("why")) == (decision["outcome"] != "allowed")
    is_of_process = len(lines) == 3
    pid = decided.fleet.hosts[0].redis.pid
    assert decision.get("pid") == (pid if is_of_process else None)
    assert decision.get("program", "") == ("redis-server" if is_of_process else "")
    assert ("budget" in decision) == is_measured
    if case.budget is not None:
        assert decision["budget"] == case.budget
    if is_measured and told is not None:
        assert [one.value is not None for one in told.result.totals] == [True]


def test_the_table_is_large_enough(decided: Decided) -> None:
    assert sorted(decided.cases) == sorted(NAMES)
    assert len(NAMES) == len(set(NAMES)) >= 70


def test_nothing_was_harmed(decided: Decided) -> None:
    eventually(lambda: harmed(decided.fleet) == [], 60)
    (host,) = decided.fleet.hosts
    assert host.service is not None
    assert host.service.is_running
    assert "Traceback" not in host.service.log.read_text()
