"""A guard compares values of a host, and says what is wrong with them."""

from __future__ import annotations

import pytest

from weft.errors import InvalidArgument
from weft.fleet.folding import Series
from weft.fleet.guards import Guard
from weft.model.measured import Value
from weft.model.values import Bucket, Histogram

ASKED = [("latency", "processCommand"), ("calls", ""), ("n", ""), ("calls", "std::operator<(a, b)")]
TIMES = Histogram((Bucket(1000, 1000, 90), Bucket(5_000_000, 5_000_000, 10)), 100, 50_090_000)


def violation(text: str, value: Value | None, unit: str) -> str:
    guard = Guard.parse(text, ASKED)
    others = Series("other", "", "calls", 10**9)
    return guard.violation([others, Series(*guard.key, unit, value)])


@pytest.mark.parametrize(
    ("text", "value", "unit", "said"),
    [
        ("latency.p99@processCommand < 2ms", TIMES, "ns", "violated: it is 5.0 ms"),
        ("latency.p50@processCommand<2us", TIMES, "ns", ""),
        ("latency.p50@processCommand < 1us", TIMES, "ns", "violated: it is 1.0 us"),
        ("latency.mean@processCommand <= 0.5 ms", TIMES, "ns", "violated: it is 501 us"),
        ("latency.count@processCommand >= 101", TIMES, "ns", "violated: it is 100"),
        ("latency.count@processCommand >= 100", TIMES, "ns", ""),
        ("latency.p99@processCommand < 2ms", Histogram((), 0, 0), "ns", ""),
        ("latency.p99@processCommand < 2ms", None, "ns", ""),
        ("latency.p99@processCommand < 2", TIMES, "ns", "cannot be decided: it is a time"),
        ("latency@processCommand < 2ms", TIMES, "ns", "say which number"),
        ("calls.p99 < 2", 7, "calls", "it is no distribution, and has no p99"),
        ("calls < 2ms", 7, "calls", "cannot be decided: it is no time"),
        ("calls < 8", 7, "calls", ""),
        ("calls > 7", 7, "calls", "calls > 7 is violated: it is 7"),
        ("n <= 2", {"a": 1, "b": 2}, "", "violated: it is 3"),
        ("calls@std::operator<(a, b) < 2", 2, "calls", "violated: it is 2"),
        ("calls < 1s", 2 * 10**9, "ns", "violated: it is 2.0 s"),
    ],
)
def test_what_a_guard_objects_to(text: str, value: Value | None, unit: str, said: str) -> None:
    found = violation(text, value, unit)
    assert said in found
    assert bool(said) == bool(found)


def test_what_is_not_told_violates_nothing() -> None:
    assert Guard.parse("calls < 1", ASKED).violation([]) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no guard"),
        ("calls", "no guard"),
        ("calls = 1", "no guard"),
        ("calls < x", "no guard"),
        ("calls < 1 furlong", "no guard"),
        ("calls < 1 < 2 <", "no guard"),
        ("calls < 1e400", "no guard"),
        ("< 1", "no guard"),
        ("cals < 1", "not measured"),
        ("latency.p99 < 1ms", "not measured"),
        ("calls@main < 1", "not measured"),
    ],
)
def test_a_guard_with_a_mistake_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        Guard.parse(text, ASKED)
