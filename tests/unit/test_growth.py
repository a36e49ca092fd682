"""Which metrics only grow, by their definitions."""

from __future__ import annotations

import pytest

from weft.mdl.loader import load
from weft.mdl.passes.growth import must_grow, only_grows
from weft.metrics.catalogue import library_files


def test_of_the_library_one_can_fall() -> None:
    metrics = load(*library_files()).metrics.values()
    assert [metric.name for metric in metrics if not only_grows(metric)] == ["live_bytes"]


@pytest.mark.parametrize(
    ("code", "grows"),
    [
        ("m++;", True),
        ("m += $arg[0];", True),
        ("m += $time - began;", True),
        ("if ($return > 0) m += $return * 2;", True),
        ("m--;", False),
        ("m -= 1;", False),
        ("m += $arg[1] - $arg[0];", False),
        ("m += -1;", False),
        ("began = $arg[1] - $arg[0]; m += began;", False),
        ("began = $arg[1]; m += began + 1;", True),
    ],
)
def test_what_is_added_says_it(code: str, grows: bool) -> None:
    where = "append preInsn $focus.entry"
    text = f"metric m {{ local began; base is counter {{ {where} (* {code} *) }} }}"
    assert only_grows(load(text).metrics["m"]) == grows


def test_the_least_of_all_threads_may_fall() -> None:
    base = "base is counter { append preInsn $focus.entry (* m++; *) }"
    text = f"metric m {{ aggregateOperator min; {base} }}"
    assert not only_grows(load(text).metrics["m"])


@pytest.mark.parametrize(
    ("code", "grows"),
    [
        ("m++;", True),
        ("m += $time - began;", True),
        ("began = 1; m += began + 2;", True),
        ("m += $arg[0];", False),
        ("m += 2 * $return;", False),
        ("began = $arg[1]; m += began + 1;", False),
        ("began = $arg[1]; m += began; began = 1;", False),
        ("m--;", False),
    ],
)
def test_what_a_program_has_may_be_negative(code: str, grows: bool) -> None:
    where = "append preInsn $focus.entry"
    text = f"metric m {{ local began; base is counter {{ {where} (* {code} *) }} }}"
    assert must_grow(load(text).metrics["m"]) == grows
