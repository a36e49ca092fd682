"""Values by key: all of it is told, the largest keys by themselves, and within bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fleet_strategies import COUNTS, HISTOGRAMS, histogram
from weft.errors import InvalidArgument
from weft.fleet.dividing import UNDIVIDED, bounded, divided, fitted, key_of
from weft.fleet.folding import OTHERS, Series, fold, folded, number
from weft.fleet.policy import Policy
from weft.fleet.protocol import (
    LONGEST_KEY,
    MOST_BYTES,
    MOST_KEYS,
    MOST_SERIES,
    Ask,
    HostRecord,
    Report,
    Request,
)
from weft.fleet.results import FleetResult, summed
from weft.fleet.texts import read
from weft.model.values import Histogram

NAMES = st.text("abc", min_size=1, max_size=3)
NUMBERS = st.dictionaries(NAMES, COUNTS)
DISTRIBUTIONS = st.dictionaries(NAMES, HISTOGRAMS, max_size=8)


def of(part: str, value: object, metric: str = "calls") -> Series:
    unit = "ns" if isinstance(value, Histogram) else "calls"
    return Series(metric, "", unit, value, part=part)  # type: ignore[arg-type]


def request(by: str) -> Request:
    return Request("r", "alice", (Ask("calls"),), "*", 1.0, by=by)


def report(host: str, *series: Series) -> Report:
    return Report("alice", "r", host, 1, 1, "done", 1, True, series=series)


def result(by: str, *reports: Report) -> FleetResult:
    expected = {one.host: HostRecord(one.host, "1", "1") for one in reports}
    return summed("r", reports, expected, [("calls", "")], is_over=True, by=by)


# What is asked.


def test_what_a_request_divides_by_travels() -> None:
    assert Request.decode(request("stack").encode()).by == "stack"
    assert Series("calls", "", "calls", 3, part="redis (7)") in (
        Report.decode(report("a", of("redis (7)", 3)).encode()).series
    )


@pytest.mark.parametrize(
    ("by", "needs"),
    [
        ("process", "library"),
        ("thread", "library"),
        ("stack", "library"),
        ("caller", "library"),
        ("$arg[0]", "read"),
        ("getpid()", "write"),
    ],
)
def test_keys_need_what_they_do(by: str, needs: str) -> None:
    assert read(request(by)).needs == needs


@pytest.mark.parametrize("by", ["procss", "$arg", "1; n++", "*) x (*", "$nothing", "a b"])
def test_keys_that_make_no_sense_are_refused(by: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        key_of(by)
    assert "--by process" in refused.value.advice or "did you mean" in refused.value.advice
    with pytest.raises(InvalidArgument):
        read(request(by))


def test_the_policy_decides_as_without_a_key() -> None:
    policy = Policy.parse('[[allow]]\nrequester = "alice"\nprocesses = "*"\n')
    stacks, addresses = request("stack"), request("$arg[0]")
    assert policy.of_request(stacks, read(stacks).needs, 0).allowed
    assert not policy.of_request(addresses, read(addresses).needs, 0).allowed


# What is told.


@given(st.one_of(NUMBERS, DISTRIBUTIONS), st.integers(1, 4))
def test_what_is_bounded_has_the_same_total(parts: dict[str, object], most: int) -> None:
    series = [of(part, value) for part, value in parts.items()]
    found = bounded(series, most)
    assert len(found) <= most
    assert fold("sum", [one.value for one in found]) == fold("sum", [one.value for one in series])


def test_the_largest_parts_are_told_by_themselves() -> None:
    series = [of(f"p ({pid})", pid) for pid in range(10)] + [of("p (1)", 7, "latency")]
    found = {(one.metric, one.part): one.value for one in bounded(series, 8)}
    assert found == {
        ("calls", "p (9)"): 9,
        ("calls", "p (8)"): 8,
        ("calls", "p (7)"): 7,
        ("calls", OTHERS): 21,
        ("latency", "p (1)"): 7,
    }


def test_maps_of_many_processes_are_cut_again() -> None:
    maps = [{f"{pid}-{key}": key for key in range(MOST_KEYS)} for pid in range(3)]
    (found,) = bounded(folded([[Series("n", "", "", {**one})] for one in maps]))
    assert isinstance(found.value, dict)
    assert len(found.value) == MOST_KEYS
    assert number(found.value) == sum(sum(one.values()) for one in maps)


def test_the_most_of_a_map_stays_the_most() -> None:
    series = Series("n", "", "", {str(key): key for key in range(2 * MOST_KEYS)}, "max")
    (found,) = bounded([series])
    assert isinstance(found.value, dict)
    assert found.value[OTHERS] == MOST_KEYS


def test_long_stacks_fit_with_the_largest_by_themselves() -> None:
    stacks = {f"{number:04}{'f' * (LONGEST_KEY - 4)}": number for number in range(MOST_KEYS)}
    found = fitted(report("a", Series("calls", "", "calls", {**stacks})))
    assert len(found.encode()) <= MOST_BYTES
    (series,) = found.series
    assert isinstance(series.value, dict)
    assert number(series.value) == sum(stacks.values())
    assert max(stacks) in series.value
    assert found.complete
    assert Report.decode(found.encode()) == found


def test_distributions_of_very_many_processes_fit() -> None:
    wide = histogram(dict.fromkeys(range(40), 1 << 40))
    series = [of(f"{'p' * 200} ({pid})", wide, "latency") for pid in range(MOST_SERIES)]
    found = fitted(report("a", *series))
    assert len(found.encode()) <= MOST_BYTES
    assert fold("sum", [one.value for one in found.series]) == fold(
        "sum", [one.value for one in series]
    )
    assert OTHERS in {one.part for one in found.series}


def test_what_cannot_be_made_smaller_is_left_out_and_named() -> None:
    (whole,) = folded([[of("", histogram(dict.fromkeys(range(60), 1 << 90)), "latency")]])
    wide = [replace(whole, metric=f"latency{number}") for number in range(300)]
    found = fitted(report("a", *wide))
    assert not found.complete
    assert "too large" in found.notes[0]
    assert len(found.encode()) <= MOST_BYTES
    assert found.series


def test_so_is_the_only_process_of_too_many_metrics() -> None:
    wide = histogram(dict.fromkeys(range(60), 1 << 90))
    found = fitted(report("a", *(of("r (1)", wide, f"latency{number}") for number in range(300))))
    assert len(found.encode()) <= MOST_BYTES
    assert not found.complete


# What it comes to.


def test_processes_of_several_hosts_stay_apart() -> None:
    found = result(
        "process",
        report("a", of("redis (7)", 3), of("redis (8)", 4)),
        report("b", of("redis (7)", 5)),
    )
    total = found.total("calls")
    assert (total.value, total.complete) == (12, True)
    assert total.by == {"a/redis (7)": 3, "a/redis (8)": 4, "b/redis (7)": 5}
    assert found.hosts[0].totals[0].by == {"redis (7)": 3, "redis (8)": 4}
    assert found.document()["totals"][0]["by"]["b/redis (7)"] == 5


def test_stacks_of_several_hosts_add_up() -> None:
    found = result(
        "stack",
        report("a", of("", {"main;f": 3, "main": 1})),
        report("b", of("", {"main;f": 5})),
    )
    total = found.total("calls")
    assert (total.value, total.by) == (9, {"main": 1, "main;f": 8})


def test_distributions_by_process_add_up() -> None:
    one, other = histogram({1: 3}), histogram({2: 4})
    found = result("process", report("a", of("r (1)", one, "x"), of("r (2)", other, "x")))
    total = found.total("x")
    assert (total.value, total.by) == (one + other, {"a/r (1)": one, "a/r (2)": other})


@pytest.mark.parametrize("by", ["process", "stack", "thread"])
def test_an_older_host_that_does_not_divide_is_named(by: str) -> None:
    new = of("r (1)", 3) if by == "process" else of("", {"main": 3})
    found = result(by, report("new", new), report("old", of("", 4)))
    total = found.total("calls")
    assert total.value == 7
    assert not total.complete
    assert total.by is not None
    assert sum(map(number, total.by.values())) == 7
    assert any(key.endswith(UNDIVIDED) for key in total.by)
    assert "older" in found.hosts[1].notes[0]
    assert not found.hosts[0].notes


def test_nothing_is_divided_without_a_key() -> None:
    (one,) = divided([of("", {"a": 1})], "")
    assert one.by is None
    assert "by" not in result("", report("a", of("", 3))).document()["totals"][0]
