"""What must hold of values whatever a program does."""

from __future__ import annotations

from weft.mdl.loader import load
from weft.metrics.invariants import Growth, fallen, too_long


def test_what_only_grows_does_not_fall() -> None:
    assert fallen(10, 10, "") is None
    assert fallen(10, 11, "") is None
    assert fallen(1.0, 1.0 - 1e-9, "") is None
    broken = fallen(10, 7, "/Code/a/f")
    assert broken is not None
    assert (broken.where, "fell by 3" in broken.why) == ("/Code/a/f", True)


def test_threads_have_no_more_time_than_there_is() -> None:
    assert too_long(3.9, 4, 1.0, "") is None
    assert too_long(4.01, 4, 1.0, "") is None
    broken = too_long(5.0, 4, 1.0, "/Code/a/f")
    assert broken is not None
    assert "more than 4 threads can spend" in broken.why


def growth(code: str) -> Growth:
    text = f"metric m {{ base is counter {{ append preInsn $focus.entry (* {code} *) }} }}"
    return Growth(load(text).metrics["m"])


def test_a_count_that_falls_is_wrong() -> None:
    count = growth("m++;")
    assert count.see(10, 7, "") is not None
    assert count.is_monotonic


def test_a_sum_of_what_a_program_has_may_fall() -> None:
    total = growth("m += $arg[0];")
    assert total.is_monotonic
    assert total.see(7, 10, "") is None
    assert total.is_monotonic
    assert total.see(10, 7, "") is None
    assert not total.is_monotonic, "nobody is told so any longer"
