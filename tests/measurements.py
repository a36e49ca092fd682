"""Measurements as plain data, for what shows and exports them."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.export.metrics.values import Source, Subject
from weft.model.measured import (
    Completeness,
    Interval,
    MetricKind,
    Missing,
    Sample,
    Shed,
    TargetFacts,
    Value,
)
from weft.model.values import Bucket, Histogram

START = 1_750_000_000.0

TARGET = TargetFacts(4242, "/usr/bin/redis-server", ("redis-server", "--port", "7000"), None)


@dataclass
class Measurement:
    """What the protocol of a metric asks for, given."""

    name: str
    value: Value
    kind: MetricKind = "counter"
    unit: str = "calls"
    focus: str = ""
    title: str = ""
    interval: Interval | None = None
    shed: Shed | None = None
    missing: tuple[Missing, ...] = ()
    remarks: tuple[str, ...] = ()
    is_monotonic: bool = True
    seconds: float = 7.0
    samples: list[Sample] = field(default_factory=list)
    functions: dict[str, int | float] = field(default_factory=dict)

    @property
    def completeness(self) -> Completeness:
        return Completeness(self.interval, self.missing)

    def history(self) -> list[Sample]:
        return self.samples

    def by_function(self) -> dict[str, int | float]:
        return self.functions


def growing(values: list[int] | list[float], seconds: float = 1.0) -> list[Sample]:
    """The samples of what had these values, one after the other."""
    pairs = zip([0, *values], values, strict=False)
    return [
        Sample(START + (number + 1) * seconds, value, value - before, seconds)
        for number, (before, value) in enumerate(pairs)
    ]


def distribution(*buckets: tuple[int, int, int], total: int | None = None) -> Histogram:
    """A histogram of buckets (lowest, highest, count); its sum as if all were in their middle."""
    filled = tuple(Bucket(*bucket) for bucket in buckets)
    middle = sum((bucket.low + bucket.high) * bucket.count // 2 for bucket in filled)
    count = sum(bucket.count for bucket in filled)
    return Histogram(filled, count, middle if total is None else total)


def log2(*counts: int, first: int) -> Histogram:
    """A log2 histogram with these counts, from the bucket that starts at ``2**first`` on."""
    return distribution(
        *(
            (1 << power, (2 << power) - 1, count)
            for power, count in enumerate(counts, first)
            if count
        )
    )


LATENCY = log2(12, 340, 2890, 8120, 3410, 702, 95, 11, 2, first=12)

SHED = Shed("calls", "/Code/redis-server/dictFind", "sampled", START + 3, 0.1, "an estimate: ±2%")


def measurements() -> list[Measurement]:
    """One of each kind, as a person would see them."""
    calls = [12_000, 25_000, 37_500, 61_000, 70_250, 96_000, 120_123]
    wait = [0.011, 0.025, 0.031, 0.060, 0.071, 0.085, 0.112]
    counts = [2000, 4300, 6100, 9000, 11_000, 13_600, LATENCY.count]
    latency = [
        Sample(sample.time, LATENCY, sample.change, sample.seconds) for sample in growing(counts)
    ]
    return [
        Measurement(
            "calls",
            120_123,
            focus="/Code/redis-server/processCommand",
            title="Calls",
            samples=growing(calls),
        ),
        Measurement(
            "calls",
            8_400_000,
            focus="/Code/redis-server/dictFind",
            title="Calls",
            interval=Interval(8_232_000, 8_568_000, 0.95),
            shed=SHED,
            samples=growing([1_200_000 * second for second in range(1, 8)]),
        ),
        Measurement(
            "alloc_bytes",
            48_234_496,
            unit="bytes",
            title="Bytes allocated",
            samples=growing([6_890_642 * second for second in range(1, 8)]),
        ),
        Measurement(
            "lock_wait",
            wait[-1],
            kind="timer",
            unit="s",
            title="Time spent waiting for locks",
            focus="/Code/libpthread.so.0,/Thread/io_thd_1",
            samples=growing(wait),
        ),
        Measurement(
            "latency",
            LATENCY,
            kind="histogram",
            unit="ns",
            title="How long calls take",
            focus="/Code/redis-server/processCommand",
            samples=latency,
        ),
        Measurement(
            "by_caller",
            {"call": 81_000, "processInputBuffer": 39_000, "loadAppendOnlyFile": 123},
            kind="map",
            title="Calls by caller",
            samples=[
                Sample(START + 7, {"call": 81_000, "loadAppendOnlyFile": 123}, 120_123.0, 7.0)
            ],
        ),
    ]


def source(*metrics: Measurement) -> Source:
    """What gives exporters the metrics of the target; without any, one of each kind."""
    subject = Subject.of_process(TARGET)
    return lambda: [(subject, metrics or measurements())]
