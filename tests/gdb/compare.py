"""Where two walks through a program differ.

Values that are not the same in both are the same all the same if they are addresses of the same
thing: a place in a module that was loaded elsewhere, or in memory that was mapped elsewhere. How
far a page of such memory has moved shows with the first address in it; all others must agree.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]

NUMBER = re.compile(r"0x[0-9a-f]+|-?\b[1-9][0-9]*\b")
TIME = " seconds"
"""What the driver puts behind a number that may be of the clock."""
CONTEXT = 6
"""How many records before a difference are shown."""
PAGE = 12
ALIGNMENT = 16
"""The loader puts what it allocates first behind what it has, or elsewhere: with this alignment."""
HALF, WORD = (1 << 32) - 1, (1 << 64) - 1


@dataclass(frozen=True)
class Place:
    """What an address is in, and where there."""

    what: str
    offset: int
    is_movable: bool = False
    """Anonymous memory, which lies wherever there was room."""


class Layout:
    """What a process has mapped."""

    def __init__(self, maps: Sequence[str] = (), before: Layout | None = None) -> None:
        self._regions: list[tuple[int, int, str, int, str]] = []
        self.bases: dict[str, int] = dict(before.bases) if before else {}
        """Where modules begin, or began when they were there."""
        spans: dict[str, tuple[int, int]] = {}
        for line in maps:
            words = line.split(" ", 5)
            start, end = (int(word, 16) for word in words[0].split("-"))
            name = words[5] if len(words) > 5 else ""
            offset = int(words[2], 16)
            if name.startswith("/") and offset == 0:
                spans[name] = (start, start + memory_size(name))
            # What a module has beyond its file is anonymous, and one with what lies behind it.
            module = next((key for key, (a, b) in spans.items() if a <= start < b), name)
            if module not in spans:
                self._regions.append((start, end, name, start - offset, words[1]))
                continue
            base, module_end = spans[module]
            split = end if name else min(end, module_end)
            self._regions.append((start, split, module, base, words[1]))
            if split < end:
                self._regions.append((split, end, "", split, words[1]))
        self.bases |= {name: start for name, (start, _) in spans.items()}
        self._starts = [start for start, *_ in self._regions]

    def place(self, address: int) -> Place | None:
        """Return what is at an address; the stack and the heap have their own, which are fixed."""
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address > self._regions[at][1]:
            return next(
                (
                    Place(name, address - base)
                    for name, base in self.bases.items()
                    if base <= address < base + memory_size(name)
                ),
                None,
            )
        _, _, module, base, rights = self._regions[at]
        if module.startswith(("/", "[v")):
            return Place(module, address - base)
        if not module:
            return Place(f"memory {rights}", address % ALIGNMENT, is_movable=True)
        return Place(module, address)


@cache
def memory_size(path: str) -> int:
    """Return how much memory an ELF file takes when it is loaded; of other files, nothing."""
    try:
        raw = Path(path).read_bytes()
    except OSError:
        return 0
    if raw[:4] != b"\x7fELF":
        return 0
    (first,) = struct.unpack_from("<Q", raw, 32)
    size, count = struct.unpack_from("<HH", raw, 54)
    ends = [0]
    for at in range(first, first + size * count, size):
        kind, _, _, address, _, _, in_memory = struct.unpack_from("<IIQQQQQ", raw, at)
        if kind == 1:
            ends.append(address + in_memory)
    return max(ends) + 0xFFF & ~0xFFF


@dataclass
class Side:
    """What is known of one of the two processes."""

    layout: Layout = field(default_factory=Layout)
    threads: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)

    def name(self, number: int) -> str:
        """What a number is that the kernel gave, else the number itself."""
        for what, numbers in (("thread", self.threads), ("child", self.children)):
            if number in numbers:
                return f"{what} {numbers.index(number)}"
        return str(number)


class Comparison:
    """Compares records of two walks, in order."""

    def __init__(self, varying: str) -> None:
        self.varying = re.compile(varying)
        self.one, self.other = Side(), Side()
        self._pages: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        """How far pages of one and the other have moved."""
        self._distances: set[int] = set()
        """By how much the halves of addresses differ."""

    def background(self, side: Side, record: Record) -> None:
        """Take note of what a process has mapped now, and of its threads."""
        side.layout, side.threads = Layout(record["maps"], side.layout), record["tids"]
        self._pages.clear()
        self._taken.clear()
        for name, base in self.one.layout.bases.items():
            if (twin := self.other.layout.bases.get(name)) is not None:
                self._distances |= distances(base, twin)

    def differences(self, one: Any, other: Any, path: str = "") -> Iterator[str]:
        """Return the paths of all that is different, with both values."""
        if isinstance(one, dict) and isinstance(other, dict):
            for key in sorted(one.keys() | other.keys()):
                yield from self.differences(one.get(key), other.get(key), f"{path}.{key}")
        elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            for index, (mine, theirs) in enumerate(zip(one, other, strict=True)):
                yield from self.differences(mine, theirs, f"{path}[{index}]")
        elif not self._is_same(one, other) and not self.varying.fullmatch(path[1:]):
            yield f"{path[1:]}:\n  {_shown(one)}\n  {_shown(other)}"

    def _is_same(self, one: Any, other: Any) -> bool:
        if one == other:
            return True
        if not isinstance(one, str) or not isinstance(other, str):
            return False
        if one.endswith(TIME) and other.endswith(TIME):
            return True
        # What looks like a time only for one of them is none.
        one, other = one.removesuffix(TIME), other.removesuffix(TIME)
        if NUMBER.sub("", one) != NUMBER.sub("", other):
            return False
        pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
        return all(self._is_same_value(int(a, 0) & WORD, int(b, 0) & WORD) for a, b in pairs)

    def _is_same_value(self, one: int, other: int) -> bool:
        if one == other:
            return True
        mine, theirs = self.one.layout.place(one), self.other.layout.place(other)
        if mine is None or mine != theirs:
            # A word may have two numbers in it, and a number may be half of an old address.
            return all(map(self._is_same_half, halves(one), halves(other)))
        if not mine.is_movable:
            return True
        distance = other - one
        self._distances |= distances(one, other)
        return self._pages.setdefault(one >> PAGE, distance) == distance and (
            self._taken.setdefault(other >> PAGE, distance) == distance
        )

    def _is_same_half(self, one: int, other: int) -> bool:
        return self.one.name(one) == self.other.name(other) or other - one & HALF in self._distances


def halves(number: int) -> tuple[int, int]:
    return number >> 32, number & HALF


def distances(one: int, other: int) -> set[int]:
    """Return by how much the halves of two words differ."""
    return {theirs - mine & HALF for mine, theirs in zip(halves(one), halves(other), strict=True)}


def _shown(value: Any) -> str:
    return str(value).rstrip("\n").replace("\n", "\n  ")


def first_difference(
    one: Sequence[Record], other: Sequence[Record], varying: str = "$."
) -> str | None:
    """Return where two walks are different for the first time, in words, or nothing.

    What lies at paths of a record that match a pattern may vary.
    """
    comparison = Comparison(varying)
    told: list[str] = []
    ours = _actions(one, comparison, comparison.one)
    others = _actions(other, comparison, comparison.other)
    while True:
        mine, theirs = next(ours, None), next(others, None)
        if mine is None and theirs is None:
            return None
        found = list(comparison.differences(mine, theirs)) if mine and theirs else ["one ends here"]
        if found:
            before = "\n".join(told[-CONTEXT:])
            did = _brief(mine), _brief(theirs)
            return f"record {len(told)}, after\n{before}\n{did[0]}\n{did[1]}\n" + "\n".join(found)
        told.append(_brief(mine))


def _actions(records: Sequence[Record], comparison: Comparison, side: Side) -> Iterator[Record]:
    for record in records:
        if "maps" in record:
            comparison.background(side, record)
        else:
            side.children += record.get("children", [])
            yield {key: value for key, value in record.items() if key != "children"}


def _brief(record: Record | None) -> str:
    """Return a record in one line."""
    if record is None:
        return "  (no more)"
    where = [str(record[key]) for key in ("why", "function", "line", "ended") if record.get(key)]
    pc = record.get("registers", {}).get("rip", "")
    return f"  {record['did']}: {', '.join(where)} {pc}"


def stops(records: Sequence[Record]) -> int:
    """Return how often the program has stopped."""
    return sum("why" in record for record in records)
