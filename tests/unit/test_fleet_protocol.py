"""Documents travel unchanged, or are refused with a reason."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fleet_strategies import REPORTS
from weft.errors import InvalidArgument
from weft.fleet import names
from weft.fleet.folding import Series
from weft.fleet.protocol import (
    MOST_BYTES,
    Ask,
    BadDocument,
    HostRecord,
    Program,
    Report,
    Request,
    short_notes,
)

REQUEST = Request(
    id="4f2a",
    requester="alice",
    metrics=(Ask("calls", "/Code/redis-server/processCommand"), Ask("latency")),
    where="exe=redis-server",
    seconds=10.0,
    budget=0.01,
    probes=("entry malloc { n++ }",),
    hosts=("a", "b"),
)
HOST = HostRecord(
    "web-1.example.org", "4f", "1.0", {"zone": "b"}, (Program("redis-server", "/usr/bin/x"),)
)
REPORT = Report("alice", "4f2a", "a", 7, 3, "measuring", series=(Series("calls", "", "calls", 3),))


def changed(document: bytes, **fields: Any) -> bytes:
    found = json.loads(document)
    for name, value in fields.items():
        found[name] = value
    return json.dumps(found).encode()


def test_a_request_travels_unchanged() -> None:
    assert Request.decode(REQUEST.encode()) == REQUEST
    assert Request.decode(replace(REQUEST, hosts=None, budget=None).encode()).hosts is None


def test_a_host_travels_unchanged() -> None:
    assert HostRecord.decode(HOST.encode()) == HOST


@given(REPORTS)
def test_a_report_travels_unchanged(report: Report) -> None:
    assert Report.decode(report.encode()) == report


def test_what_is_new_in_a_later_version_of_weft_is_left_alone() -> None:
    assert Request.decode(changed(REQUEST.encode(), colour="red")) == REQUEST


def test_another_version_of_the_protocol_is_refused_and_named() -> None:
    with pytest.raises(BadDocument, match="version 2 of the protocol"):
        Request.decode(changed(REQUEST.encode(), v=2))


@pytest.mark.parametrize(
    "fields",
    [
        {"v": None},
        {"v": "1" * 100},
        {"kind": "report"},
        {"id": "a b"},
        {"id": "../x"},
        {"id": 7},
        {"id": ""},
        {"requester": "a>"},
        {"requester": "*"},
        {"metrics": [], "probes": []},
        {"metrics": {}},
        {"metrics": [{"metric": "calls"}]},
        {"metrics": [{"metric": 7, "focus": ""}]},
        {"metrics": [{"metric": "calls", "focus": ""}] * 1000},
        {"seconds": -1},
        {"seconds": 1e9},
        {"seconds": "10"},
        {"seconds": True},
        {"seconds": None},
        {"interval": 0},
        {"budget": 2},
        {"budget": 0},
        {"where": 7},
        {"where": "x" * 10_000},
        {"texts": "x"},
        {"texts": ["x" * 100_000]},
        {"hosts": ["a/b"]},
        {"weaver": 1},
    ],
)
def test_a_request_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadDocument) as refused:
        Request.decode(changed(REQUEST.encode(), **fields))
    assert refused.value.why


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "happy"},
        {"epoch": -1},
        {"seq": 1.5},
        {"seq": 1 << 70},
        {"final": 1},
        {"processes": "1"},
        {"notes": ["x"] * 1000},
        {"labels": {"a": 1}},
        {"series": [{}]},
        {"series": [7]},
    ],
)
def test_a_report_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadDocument):
        Report.decode(changed(REPORT.encode(), **fields))


@pytest.mark.parametrize(
    "value",
    ["many", [1], {"histogram": 1}, {"histogram": [1, 2, [[1, 2]]]}, {"map": {"a": "b"}}, True],
)
def test_a_value_that_makes_no_sense_is_refused(value: Any) -> None:
    series = json.loads(REPORT.encode())["series"][0]
    with pytest.raises(BadDocument):
        Report.decode(changed(REPORT.encode(), series=[{**series, "value": value}]))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(value: float) -> None:
    series = json.loads(REPORT.encode())["series"][0]
    with pytest.raises(BadDocument):
        Report.decode(changed(REPORT.encode(), series=[{**series, "value": value}]))
    with pytest.raises(BadDocument):
        Request.decode(changed(REQUEST.encode(), seconds=value))


@pytest.mark.parametrize("read", [Request.decode, HostRecord.decode, Report.decode])
@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b"7", b"{}", b"{" * 10_000, b"[" * 100_000, b'{"v":1}']
)
def test_what_is_no_document_is_refused(read: Any, data: bytes) -> None:
    with pytest.raises(BadDocument):
        read(data)


def test_what_is_too_large_is_not_even_read() -> None:
    with pytest.raises(BadDocument, match="bytes"):
        Request.decode(b"{" + b" " * MOST_BYTES)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_report_or_refused(data: bytes) -> None:
    with pytest.raises(BadDocument):
        Report.decode(data)


def test_notes_are_few_and_short() -> None:
    notes = short_notes([f"{number} {'x' * 1000}" for number in range(100)])
    assert len(notes) == 20
    assert max(map(len, notes)) <= 500
    assert notes[-1] == "and 81 more notes"
    assert short_notes(["a", "a", "b"]) == ("a", "b")


NAMES = st.from_regex(r"[A-Za-z0-9_]([A-Za-z0-9_-]|\.[A-Za-z0-9_-]){0,30}", fullmatch=True)


@given(NAMES, NAMES, NAMES, st.integers(0, 1 << 62))
def test_subjects_say_what_they_are_made_of(
    requester: str, request: str, host: str, epoch: int
) -> None:
    subject = names.sample_subject(requester, request, host, epoch)
    assert names.of_sample(subject) == (requester, request, host, epoch)
    assert names.of_request(names.request_key(requester, request)) == (requester, request)


@pytest.mark.parametrize("name", ["", "a b", "a>", "*", ".a", "a.", "a..b", "a/b", "x" * 200, "ä"])
def test_names_that_would_be_something_else_in_a_subject_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot be the name"):
        names.checked(name)


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "weft.samples",
        "weft.samples.a.b.c",
        "weft.samples.a.b.c.d",
        "x.a.b.c.1",
        "weft.samples.a.b.>.1",
    ],
)
def test_other_subjects_are_none(subject: str) -> None:
    assert names.of_sample(subject) is None
