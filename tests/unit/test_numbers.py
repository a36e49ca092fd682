"""Numbers for people."""

from __future__ import annotations

import pytest

from weft.base import numbers


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0, "", "0"),
        (7, "calls", "7"),
        (0.5, "calls", "0.5"),
        (0.0421, "calls", "0.042"),
        (0.0001, "calls", "0.000"),
        (0.96, "calls", "1.0"),
        (999, "calls", "999"),
        (999.7, "calls", "1.0k"),
        (1000, "calls", "1.0k"),
        (12_345, "calls", "12.3k"),
        (99_960, "calls", "100k"),
        (123_456, "calls", "123k"),
        (999_499, "calls", "999k"),
        (999_999, "calls", "1.0M"),
        (1_234_567, "calls", "1.2M"),
        (9_223_372_036_854_775_807, "calls", "9.2E"),
        (-12_345, "calls", "-12.3k"),
        (0, "ns", "0 ns"),
        (512, "ns", "512 ns"),
        (1234, "ns", "1.2 us"),
        (12_345_678, "ns", "12.3 ms"),
        (0.25, "s", "250 ms"),
        (12.345, "s", "12.3 s"),
        (12_345.6, "s", "12346 s"),
        (3.5, "ms", "3.5 ms"),
        (1023, "bytes", "1023 B"),
        (1024, "bytes", "1.0 KiB"),
        (48_234_496, "bytes", "46.0 MiB"),
        (1_048_575, "bytes", "1.0 MiB"),
    ],
)
def test_quantity(value: float, unit: str, expected: str) -> None:
    assert numbers.quantity(value, unit) == expected


def test_rates_are_per_second() -> None:
    assert numbers.rate(12_345, "calls") == "12.3k/s"
    assert numbers.rate(0.002, "s") == "2.0 ms/s"


def test_whole_numbers_can_be_exact() -> None:
    assert numbers.exact(12_345_678) == "12,345,678"
    assert numbers.exact(0.25, "s") == "250 ms"


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0, "0%"), (0.0025, "0.25%"), (0.025, "2.5%"), (0.02, "2%"), (1, "100%")],
)
def test_percent(share: float, expected: str) -> None:
    assert numbers.percent(share) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.9, "0:00"), (67, "1:07"), (3600, "1:00:00"), (90061, "25:01:01")]
)
def test_elapsed(seconds: float, expected: str) -> None:
    assert numbers.elapsed(seconds) == expected


@pytest.mark.parametrize(
    ("width", "expected"),
    [(30, "/Code/prog/f"), (12, "/Code/prog/f"), (9, "/Cod…og/f"), (2, "…f"), (1, "/"), (0, "")],
)
def test_shortened(width: int, expected: str) -> None:
    assert numbers.shortened("/Code/prog/f", width) == expected
    assert len(expected) <= width


def test_what_moves_the_cursor_is_not_printed() -> None:
    assert numbers.shortened("/Code/\x1b[2Ja\nb\udcff", 30) == "/Code/?[2Ja?b?"
