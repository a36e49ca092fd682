"""Quantiles of histograms."""

from __future__ import annotations

import random

import pytest

from tests.measurements import distribution, log2
from weft.errors import InvalidArgument

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0, 10), (0.25, 15), (0.5, 20), (0.75, 35), (1, 40)],
)
def test_values_lie_evenly_in_a_bucket(share: float, expected: float) -> None:
    assert distribution((10, 20, 50), (30, 40, 50)).quantile(share) == expected


def test_a_bucket_of_one_value_is_exact() -> None:
    assert distribution((7, 7, 3), (100, 100, 1)).quantile(0.5) == 7


def test_it_is_shown_on_one_line() -> None:
    shown = repr(distribution((10, 20, 50), (30, 40, 50), total=2600))
    assert shown == "Histogram(count=100, mean=26, p50=20, p99=39.8)"
    assert repr(distribution()) == "Histogram(count=0)"


def test_there_is_nothing_to_say_about_nothing() -> None:
    assert distribution().quantile(0.99) == 0


def test_an_open_bucket_counts_as_its_other_end() -> None:
    histogram = distribution((LOWEST, 99, 10), (100, 199, 10), (200, HIGHEST, 10))
    assert histogram.quantile(0.1) == 99
    assert histogram.quantile(0.5) == 149.5
    assert histogram.quantile(0.9) == 200


@pytest.mark.parametrize("share", [-0.1, 1.1, 99, float("nan")])
def test_a_share_is_from_0_to_1(share: float) -> None:
    with pytest.raises(InvalidArgument, match="share"):
        log2(1, first=3).quantile(share)


def test_quantiles_are_within_the_bucket_of_the_true_one() -> None:
    generator = random.Random(1)
    values = sorted(int(generator.lognormvariate(10, 2)) + 1 for _ in range(5000))
    counts = [0] * 64
    for value in values:
        counts[value.bit_length() - 1] += 1
    histogram = log2(*counts, first=0)
    for share in (0.01, 0.1, 0.5, 0.9, 0.99, 0.999):
        true = values[min(int(share * len(values)), len(values) - 1)]
        assert 0.5 <= histogram.quantile(share) / true <= 2
