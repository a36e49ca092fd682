"""What probes measure: distributions, times and sums by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from weft.errors import InvalidArgument
from weft.model.stacks import Stack

__all__ = ["HIGHEST", "LOWEST", "Bucket", "Histogram", "Key", "MapValue", "Timer"]

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
"""The ends of buckets that are open at that end."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """How many values were at least ``low`` and at most ``high``."""

    low: int
    high: int
    count: int


@dataclass(frozen=True, slots=True, repr=False)
class Histogram:
    """A distribution: the buckets that are not empty, how many values, and their sum.

    The sum is exact, the buckets are as wide as the snippet declared them.
    """

    buckets: tuple[Bucket, ...]
    count: int
    sum: int

    def __repr__(self) -> str:
        """What is in it, on one line: there may be a hundred buckets."""
        if not self.count:
            return "Histogram(count=0)"
        p50, p99 = self.quantile(0.5), self.quantile(0.99)
        return f"Histogram(count={self.count}, mean={self.mean:.6g}, p50={p50:.6g}, p99={p99:.6g})"

    def __add__(self, other: Histogram) -> Histogram:
        return self._with(other, 1)

    def __sub__(self, other: Histogram) -> Histogram:
        return self._with(other, -1)

    @classmethod
    def total(cls, histograms: Sequence[Histogram]) -> Histogram:
        """Add up several: all at once is faster than one after the other."""
        counts: dict[tuple[int, int], int] = {}
        for one in histograms:
            for bucket in one.buckets:
                ends = bucket.low, bucket.high
                counts[ends] = counts.get(ends, 0) + bucket.count
        filled = tuple(Bucket(*ends, count) for ends, count in sorted(counts.items()) if count)
        return cls(filled, sum(one.count for one in histograms), sum(one.sum for one in histograms))

    def _with(self, other: Histogram, sign: int) -> Histogram:
        counts = Counter({(one.low, one.high): one.count for one in self.buckets})
        for one in other.buckets:
            counts[one.low, one.high] += sign * one.count
        filled = tuple(Bucket(*ends, count) for ends, count in sorted(counts.items()) if count)
        return Histogram(filled, self.count + sign * other.count, self.sum + sign * other.sum)

    @property
    def mean(self) -> float:
        """The mean of all values; 0 when there is none."""
        return self.sum / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Return the value that ``share`` of all values do not exceed: 0.5 asks for the median.

        Within a bucket, values are taken to lie evenly from its lowest to its highest; so the
        answer is off by at most the width of a bucket. A bucket that is open at one end (what was
        below or above a linear histogram) counts as its other end. 0 when there is no value.
        """
        if not 0 <= share <= 1:
            raise InvalidArgument(f"{share} is no share of the values", advice="ask for 0 to 1")
        rank, below, value = share * self.count, 0, 0.0
        for bucket in self.buckets:
            low = bucket.low if bucket.low > LOWEST else bucket.high
            high = bucket.high if bucket.high < HIGHEST else bucket.low
            if bucket.count and below + bucket.count >= rank:
                return low + (high - low) * (rank - below) / bucket.count
            below, value = below + bucket.count, float(high)
        return value


@dataclass(frozen=True, slots=True)
class Timer:
    """How long, in nanoseconds, and how often it was stopped.

    The time of wall timers that run right now is included.
    """

    ns: int
    count: int

    def __add__(self, other: Timer) -> Timer:
        return Timer(self.ns + other.ns, self.count + other.count)

    def __sub__(self, other: Timer) -> Timer:
        return Timer(self.ns - other.ns, self.count - other.count)

    @property
    def seconds(self) -> float:
        """The time in seconds."""
        return self.ns / 1e9


Key: TypeAlias = "int | str | Stack"
"""A number, a text that `str` has read, or a stack that `stack` has taken."""

MapValue: TypeAlias = "dict[Key | tuple[Key, Key], int]"
"""Sums by key, or by a pair of keys."""
