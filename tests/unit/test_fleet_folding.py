"""Neither lost nor repeated nor late messages change a total."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.unit.fleet_strategies import COUNTS, HISTOGRAMS, MAPS, REPORTS, SECONDS, SERIES
from weft.fleet.folding import OTHERS, Series, cut, fold, folded, merged
from weft.fleet.protocol import HostRecord, Report
from weft.fleet.results import FleetResult, summed
from weft.fleet.tables import write_csv
from weft.model.completeness import Interval
from weft.model.measured import Value
from weft.ui import fleet as ui

Known = dict[tuple[str, int], Report]


def known(reports: Iterable[Report]) -> Known:
    found: Known = {}
    for one in reports:
        found = merged(found, {(one.host, one.epoch): one})
    return found


SOME = st.lists(REPORTS, max_size=12)


@given(SOME, SOME)
def test_merging_is_commutative(first: list[Report], second: list[Report]) -> None:
    one, other = known(first), known(second)
    assert merged(one, other) == merged(other, one)


@given(SOME, SOME, SOME)
def test_merging_is_associative(a: list[Report], b: list[Report], c: list[Report]) -> None:
    one, two, three = known(a), known(b), known(c)
    assert merged(merged(one, two), three) == merged(one, merged(two, three))


@given(SOME)
def test_merging_is_idempotent_and_the_newest_wins(reports: list[Report]) -> None:
    found = known(reports)
    assert merged(found, found) == found
    for key, report in found.items():
        same = [one for one in reports if (one.host, one.epoch) == key]
        assert report.seq == max(one.seq for one in same)


@given(SOME, st.randoms(use_true_random=False))
def test_late_and_repeated_messages_change_no_total(
    reports: list[Report], chance: random.Random
) -> None:
    again = [*reports, *(chance.choice(reports) for _ in reports)]
    chance.shuffle(again)
    assert result(known(again).values()) == result(known(reports).values())


@given(st.lists(COUNTS, min_size=1, max_size=30), st.data())
def test_what_is_lost_before_the_last_message_is_not_missed(
    increments: list[int], data: st.DataObject
) -> None:
    """A host's values grow; of its messages any may be lost but the last."""
    sums = [sum(increments[: at + 1]) for at in range(len(increments))]
    sent = [
        Report(
            "alice",
            "r",
            "a",
            1,
            at,
            "done" if at == len(sums) - 1 else "measuring",
            final=at == len(sums) - 1,
            series=(Series("calls", "", "calls", value),),
        )
        for at, value in enumerate(sums)
    ]
    arrived = [one for one in sent[:-1] if data.draw(st.booleans())]
    found = result(known([*arrived, sent[-1]]).values())
    assert [(one.value, one.complete) for one in found.totals] == [(sums[-1], True)]


@given(
    st.lists(st.one_of(COUNTS, SECONDS), min_size=1, max_size=20), st.randoms(use_true_random=False)
)
def test_a_sum_does_not_depend_on_the_order(values: list[Value], chance: random.Random) -> None:
    other = [*values]
    chance.shuffle(other)
    assert fold("sum", values) == fold("sum", other)


@given(st.lists(HISTOGRAMS, min_size=1, max_size=8))
def test_histograms_add_up_exactly(values: list[Value]) -> None:
    total = fold("sum", values)
    for part in ("count", "sum"):
        assert getattr(total, part) == sum(getattr(one, part) for one in values)


@given(st.lists(MAPS, min_size=1, max_size=8))
def test_maps_add_up_by_key(values: list[dict[str, int]]) -> None:
    total = fold("sum", [dict(one) for one in values])
    assert isinstance(total, dict)
    assert total == {key: sum(one.get(key, 0) for one in values) for one in values for key in one}


@given(MAPS, st.integers(1, 5))
def test_a_map_that_is_cut_has_the_same_sum(value: dict[str, int], most: int) -> None:
    found = cut(dict(value), most)
    assert isinstance(found, dict)
    assert len(found) <= max(most, 1)
    assert sum(found.values()) == sum(value.values())


def test_the_largest_keys_are_kept() -> None:
    assert cut({"a": 1, "b": 5, "c": 2, "d": 4}, 3) == {"b": 5, "d": 4, OTHERS: 3}


def test_the_least_and_the_most() -> None:
    assert fold("min", [3, 1, 2]) == 1
    assert fold("max", [3, None, 2.5]) == 3
    assert fold("min", [None]) is None


@given(st.lists(st.lists(SERIES, max_size=4), max_size=5))
def test_folding_twice_is_folding_once(parts: list[list[Series]]) -> None:
    half = len(parts) // 2
    whole = folded(parts)
    twice = folded([folded(parts[:half]), folded(parts[half:])])
    for one, other in zip(whole, twice, strict=True):
        assert one.key == other.key
        assert one.complete == other.complete
        if isinstance(one.value, float) and isinstance(other.value, float):
            assert one.value == pytest.approx(other.value)
        elif not isinstance(one.value, dict):
            assert one.value == other.value


def test_what_is_in_another_unit_is_not_added() -> None:
    parts = [Series("x", "", "s", 1), Series("x", "", "s", 2), Series("x", "", "ns", 5)]
    (total,) = folded([[one] for one in parts])
    assert (total.value, total.unit, total.complete) == (3, "s", False)


def test_what_could_not_be_measured_hides_no_value() -> None:
    failed = Series("x", "", "", None, complete=False)
    (total,) = folded([[failed], [failed], [Series("x", "", "s", 5)]])
    assert (total.value, total.unit, total.complete) == (5, "s", False)


def test_values_of_different_kinds_are_not_added() -> None:
    (total,) = folded([[Series("x", "", "s", 1)], [Series("x", "", "s", {"a": 1})]])
    assert (total.value, total.complete) == (None, False)


def estimated(value: int, low: float, high: float) -> Series:
    return Series("calls", "", "calls", value, complete=False, interval=Interval(low, high, 0.99))


def test_the_sum_of_estimates_is_between_the_sums_of_their_ends() -> None:
    exact = Series("calls", "", "calls", 5)
    (total,) = folded([[estimated(100, 90, 120)], [exact], [estimated(10, 1, 20)]])
    assert (total.value, total.status) == (115, "estimate")
    assert total.interval == Interval(96, 145, 0.99)
    # Where anything is missing, no interval says where the true value is.
    lacking = Series("calls", "", "calls", 7, complete=False)
    (total,) = folded([[estimated(100, 90, 120)], [lacking]])
    assert (total.value, total.status, total.interval) == (107, "incomplete", None)


def test_an_estimate_is_shown_as_one() -> None:
    own = [estimated(100, 90, 120)], [estimated(10, 1, 20)]
    reports = [
        replace(report(name, 0), series=tuple(one)) for name, one in zip("ab", own, strict=True)
    ]
    found = result([Report.decode(one.encode()) for one in reports], "a", "b")
    (total,) = found.document()["totals"]
    assert not total["complete"] and total["status"] == "estimate"
    assert (total["low"], total["high"], total["confidence"]) == (91, 140, 0.99)
    screen = Console(width=100)
    with screen.capture() as shown:
        screen.print(ui.result(found))
    assert "~110" in shown.get() and "~100" in shown.get() and "!" not in shown.get()
    assert "~ from 91 to 140 with 99% confidence" in shown.get()
    file = io.BytesIO()
    write_csv(file, found)
    rows = list(csv.DictReader(io.StringIO(file.getvalue().decode())))
    assert [(one["status"], float(one["low"]), float(one["high"])) for one in rows] == [
        ("estimate", 90, 120),
        ("estimate", 1, 20),
    ]
    # A host that has not told its last values leaves no estimate of the whole.
    lost = replace(reports[1], final=False)
    (total,) = result([reports[0], lost], "a", "b").document()["totals"]
    assert total["status"] == "incomplete" and "low" not in total


# What hosts have not told.


def host(name: str) -> HostRecord:
    return HostRecord(name, "1", "1", {"zone": "b"})


def result(reports: Iterable[Report], *names: str, is_over: bool = True) -> FleetResult:
    expected = {name: host(name) for name in names}
    return summed("r", reports, expected, [("calls", "")], is_over=is_over)


def report(name: str, value: int, *, epoch: int = 1, final: bool = True) -> Report:
    series = (Series("calls", "", "calls", value),)
    state = "done" if final else "measuring"
    return Report("alice", "r", name, epoch, 1, state, 1, final, (), series)  # type: ignore[arg-type]


def test_all_hosts_have_told_all() -> None:
    found = result([report("a", 3), report("b", 4)], "a", "b")
    assert found.document()["totals"] == [
        {"metric": "calls", "focus": "", "value": 7, "unit": "calls", "hosts": 2, "complete": True}
    ]
    assert found.document()["hosts"][0] == {
        "host": "a",
        "state": "done",
        "processes": 1,
        "totals": [{"metric": "calls", "focus": "", "value": 3, "unit": "calls", "complete": True}],
    }
    assert found.total("calls").value == 7


def test_a_host_that_has_not_told_its_last_values_is_lost() -> None:
    found = result([report("a", 3, final=False), report("b", 4)], "a", "b")
    assert (found.total("calls").value, found.complete) == (7, False)
    assert [one.state for one in found.hosts] == ["lost", "done"]
    assert "last" in found.hosts[0].notes[0]
    assert [one.totals[0].complete for one in found.hosts] == [False, True]


def test_a_host_that_has_not_answered_is_silent() -> None:
    found = result([report("a", 3)], "a", "b")
    assert (found.total("calls").value, found.complete) == (3, False)
    assert found.hosts[1].state == "silent"
    assert found.hosts[1].notes


def test_a_host_that_was_started_anew_has_told_both_its_parts() -> None:
    found = result([report("a", 3, final=False), report("a", 4, epoch=2)], "a")
    assert (found.total("calls").value, found.complete) == (7, False)
    assert found.total("calls").hosts == 1
    assert "in between" in found.hosts[0].notes[0]


def test_nothing_is_complete_before_it_is_over() -> None:
    found = result([report("a", 3)], "a", is_over=False)
    assert not found.complete
    assert result([], "a", is_over=False).hosts[0].state == "asked"


def test_what_nobody_has_a_value_of_is_told_as_well() -> None:
    found = result([])
    (total,) = found.document()["totals"]
    assert (total["metric"], total["value"], total["hosts"]) == ("calls", None, 0)
    assert (total["complete"], total["status"], found.complete) == (False, "incomplete", False)


def test_what_nobody_has_measured_is_not_complete() -> None:
    found = summed(
        "r", [report("a", 3)], {"a": host("a")}, [("calls", ""), ("lost", "")], is_over=True
    )
    assert found.total("calls").complete
    assert (found.total("lost").value, found.total("lost").complete) == (None, False)


def test_what_could_not_be_measured_somewhere_is_incomplete() -> None:
    nothing = Series("x", "", "", None, complete=False)
    some = Series("x", "", "s", 2)
    for parts in ([some, nothing, nothing], [nothing, some, nothing], [nothing, nothing, some]):
        (total,) = folded([parts])
        assert (total.unit, total.value, total.complete) == ("s", 2, False)
    (total,) = folded([[nothing]])
    assert (total.value, total.complete) == (None, False)
    report = Report(*("alice", "r", "a", 1, 2, "done"), final=True, series=(nothing,))
    found = summed("r", [report], {"a": HostRecord("a", "i", "1")}, [], is_over=True)
    assert (found.totals[0].hosts, found.totals[0].complete, found.complete) == (0, False, False)
