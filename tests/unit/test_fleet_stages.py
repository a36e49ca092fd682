"""A few hosts are asked first."""

from __future__ import annotations

import pytest

from weft.errors import InvalidArgument
from weft.fleet.stages import Stage

NAMES = [f"h{number:02}" for number in range(40)]


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("1 then 10% then all", [1, 4]),
        ("1", [1]),
        ("all", []),
        ("1 then 5 then 50%", [1, 5, 20]),
        ("0.5% then all", [1]),
        ("100 then all", [40]),
        ("  2  then all", [2]),
    ],
)
def test_how_many_are_asked(text: str, counts: list[int]) -> None:
    found = [stage.of(NAMES) for stage in Stage.parse(text)]
    assert [len(one) for one in found] == counts
    assert all(one == NAMES[: len(one)] for one in found)


@pytest.mark.parametrize(
    "text",
    ["", "then", "0", "-1", "1 then", "100%", "1,2", "all then 1", "one", " then ".join("1" * 30)],
)
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="no stages"):
        Stage.parse(text)
