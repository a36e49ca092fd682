"""Reports of hosts, as hypothesis makes them."""

from __future__ import annotations

from hypothesis import strategies as st

from weft.fleet.folding import Series
from weft.fleet.protocol import Report
from weft.model.completeness import Interval
from weft.model.values import Bucket, Histogram


def histogram(counts: dict[int, int]) -> Histogram:
    """A histogram of the numbers from 0 to 9, each of so many times its power of two."""
    buckets = tuple(
        Bucket(1 << at, (2 << at) - 1, count) for at, count in sorted(counts.items()) if count
    )
    return Histogram(
        buckets, sum(one.count for one in buckets), sum(one.low * one.count for one in buckets)
    )


COUNTS = st.integers(0, 1 << 40)
HISTOGRAMS = st.dictionaries(st.integers(0, 9), COUNTS, max_size=5).map(histogram)
MAPS = st.dictionaries(st.text("abc", max_size=2), COUNTS, max_size=4)
SECONDS = st.floats(0, 1e9, allow_nan=False)
BOUNDS = st.lists(COUNTS, min_size=2, max_size=2).map(sorted)
INTERVALS = BOUNDS.map(lambda two: Interval(two[0], two[1], 0.99))
SERIES = st.one_of(
    st.builds(
        Series,
        *(st.just("estimated"), st.just(""), st.just("calls"), COUNTS, st.just("sum")),
        complete=st.just(False),
        interval=st.none() | INTERVALS,
    ),
    st.builds(Series, st.just("calls"), st.just(""), st.just("calls"), COUNTS),
    st.builds(Series, st.just("time"), st.just("/Code/a/b"), st.just("s"), SECONDS),
    st.builds(Series, st.just("latency"), st.just(""), st.just("ns"), HISTOGRAMS),
    st.builds(Series, st.just("bytes"), st.just(""), st.just("bytes"), MAPS),
    st.builds(
        Series, st.just("most"), st.just(""), st.just("x"), COUNTS, st.just("max"), st.booleans()
    ),
)
REPORTS = st.builds(
    Report,
    requester=st.just("alice"),
    request=st.just("r"),
    host=st.sampled_from(["a", "b", "c"]),
    epoch=st.integers(1, 3),
    seq=st.integers(1, 4),
    state=st.sampled_from(["weaving", "measuring", "done", "stopped"]),
    processes=st.integers(0, 9),
    final=st.booleans(),
    notes=st.lists(st.text(max_size=5), max_size=2).map(tuple),
    series=st.lists(SERIES, max_size=4).map(tuple),
    complete=st.booleans(),
)
