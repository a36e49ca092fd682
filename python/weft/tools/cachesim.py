"""A cache simulator: which functions miss, had the processor these caches.

It is also an example of a tool of one file: it reads a table of a trace batch by batch, has the one
loop that must be fast done natively, and keeps the policy (which levels there are, what goes on to
the next) in Python. Anything that takes a :class:`weft.trace.Trace` can be written the same way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft._native import Cache
from weft.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow

    from weft.tools.trace import Trace

__all__ = ["DEFAULT", "FunctionMisses", "Level", "LevelMisses", "Simulated", "simulate"]

_SHAPE = r"(\d{1,9})([KMG]?),(\d{1,9})(?:,(\d{1,9}))?"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class Level:
    """One cache: what the processor looks in before it goes on to the next."""

    size: int
    """All its bytes."""
    ways: int
    """In how many places of it a line may be."""
    line: int = 64
    """The bytes that come and go together."""

    @classmethod
    def parse(cls, text: str) -> Level:
        """Read ``SIZE,WAYS[,LINE]``, such as ``32K,8,64``."""
        found = re.fullmatch(_SHAPE, text.strip(), re.IGNORECASE)
        if not found:
            raise InvalidArgument(
                f"{text!r} is no cache",
                "it takes a size, how many ways there are, and the bytes of a line",
                "write it like 32K,8,64",
            )
        size, unit, ways, line = found.groups()
        return cls(int(size) * _UNITS[unit.upper()], int(ways), int(line or 64))

    def cache(self) -> Cache:
        """Such a cache, empty."""
        whole = self.ways * self.line
        if not whole or self.size % whole:
            raise InvalidArgument(
                f"no cache has {self.size} bytes in {self.ways} ways of {self.line} bytes",
                "the size must be a multiple of ways times line",
            )
        return Cache(self.size // whole, self.ways, self.line)


DEFAULT = (Level(32 << 10, 8), Level(1 << 20, 16))
"""What many processors have for each core: 32 KiB, and 1 MiB behind it."""


@dataclass(frozen=True, slots=True)
class LevelMisses:
    """What became of the lines that a cache was asked for."""

    level: Level
    asked: int
    missed: int


@dataclass(frozen=True, slots=True)
class FunctionMisses:
    """A function, and what its instructions missed."""

    module: str
    function: str
    accesses: int
    missed: tuple[int, ...]
    """Lines, for each level."""


@dataclass(frozen=True)
class Simulated:
    """What the caches have come to."""

    accesses: int
    unknown: int
    """Accesses that were left out because nobody knows where they went."""
    levels: tuple[LevelMisses, ...]
    functions: tuple[FunctionMisses, ...]
    """Those that miss most in the last cache first."""


def simulate(
    trace: Trace, levels: Sequence[Level] = DEFAULT, threads: Sequence[int] = ()
) -> Simulated:
    """Send all data accesses through caches, each behind the one before.

    Each thread has caches of its own, as if it had a core for itself: what threads do to each
    other's caches is not simulated. Stores bring a line in as loads do. Of an access to several
    lines, the next cache is asked for all as soon as one is missing. Needs ``weft[arrow]``.
    """
    # They are what a new cache is made from: wrong ones are to be known before anything is read.
    for level in levels:
        level.cache()
    caches: dict[int, list[Cache]] = {}
    asked, missed = [0] * len(levels), [0] * len(levels)
    accesses: Counter[int] = Counter()
    misses: list[Counter[int]] = [Counter() for _ in levels]
    total = unknown = 0
    for batch in trace.accesses(threads):
        total += batch.num_rows
        unknown += batch.column("address").null_count
        for thread, part in _by_thread(batch):
            own = caches.setdefault(thread, [level.cache() for level in levels])
            _count(accesses, part.column("block"), None)
            for index, cache in enumerate(own):
                lines = _touch(cache, part)
                _count(misses[index], part.column("block"), lines)
                asked[index] += part.num_rows
                part, fetched = _missing(part, lines)
                missed[index] += fetched
    return Simulated(
        total,
        unknown,
        tuple(
            LevelMisses(level, asked[index], missed[index]) for index, level in enumerate(levels)
        ),
        _by_function(trace, accesses, misses),
    )


def _by_thread(batch: pyarrow.RecordBatch) -> list[tuple[int, pyarrow.RecordBatch]]:
    """The accesses of each thread, without those that nobody knows the address of."""
    import pyarrow.compute as compute

    known = batch.filter(compute.is_valid(batch.column("address")))
    threads = compute.unique(known.column("thread")).to_pylist()
    if len(threads) <= 1:
        return [(thread, known) for thread in threads]
    return [
        (thread, known.filter(compute.equal(known.column("thread"), thread))) for thread in threads
    ]


def _touch(cache: Cache, batch: pyarrow.RecordBatch) -> pyarrow.Array:
    import pyarrow

    addresses, sizes = (_bytes(batch.column(name)) for name in ("address", "size"))
    lines = cache.touch(addresses, sizes)
    return pyarrow.Array.from_buffers(
        pyarrow.uint32(), batch.num_rows, [None, pyarrow.py_buffer(lines)]
    )


def _bytes(column: pyarrow.Array) -> bytes:
    width = column.type.bit_width // 8
    start = column.offset * width
    data: bytes = column.buffers()[1].slice(start, len(column) * width).to_pybytes()
    return data


def _missing(batch: pyarrow.RecordBatch, lines: pyarrow.Array) -> tuple[pyarrow.RecordBatch, int]:
    """The accesses that have to be looked for further on, and how many lines they are."""
    import pyarrow.compute as compute

    fetched = compute.sum(lines).as_py() or 0
    return batch.filter(compute.greater(lines, 0)), fetched


def _count(counts: Counter[int], blocks: pyarrow.Array, values: pyarrow.Array | None) -> None:
    """Add up values for each block; rows, if there are none."""
    import pyarrow

    names = ["block"] if values is None else ["block", "value"]
    table = pyarrow.table([blocks] if values is None else [blocks, values], names=names)
    how = ([], "count_all") if values is None else ("value", "sum")
    grouped = table.group_by("block").aggregate([how])
    sums = grouped.column("count_all" if values is None else "value_sum")
    for block, value in zip(grouped.column("block").to_pylist(), sums.to_pylist(), strict=True):
        if value:
            counts[block] += value


def _by_function(
    trace: Trace, accesses: Counter[int], misses: Sequence[Counter[int]]
) -> tuple[FunctionMisses, ...]:
    sums: dict[tuple[str, str], list[int]] = {}
    for code in trace.code:
        count = accesses[code.number]
        if not count:
            continue
        place = trace.place(code.address, code.program)
        row = sums.setdefault(place, [0] * (len(misses) + 1))
        row[0] += count
        for index, level in enumerate(misses):
            row[index + 1] += level[code.number]
    rows = [
        FunctionMisses(module, function, row[0], tuple(row[1:]))
        for (module, function), row in sums.items()
    ]
    return tuple(sorted(rows, key=lambda row: (*(-n for n in reversed(row.missed)), -row.accesses)))
