"""Reads pprof's format, as far as weft writes it."""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Iterator
from typing import Any


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protocol buffer, each with its number."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            assert key & 7 == 2
            size = varint()
            yield key >> 3, data[at : at + size]
            at += size


def _grouped(data: bytes) -> dict[int, list[Any]]:
    found = defaultdict(list)
    for number, value in _fields(data):
        found[number].append(value)
    return found


def _varints(data: bytes) -> list[int]:
    """The integers of a packed field, which may be negative."""
    values = [0]
    shift = 0
    for byte in data:
        values[-1] |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(0)
            shift = 0
    return [value - (1 << 64) if value >> 63 else value for value in values[:-1]]


class Pprof:
    """What a file of this format says."""

    def __init__(self, data: bytes) -> None:
        whole = _grouped(gzip.decompress(data))
        self.texts = [text.decode() for text in whole[6]]
        self.kinds = [self._kind(one) for one in whole[1]]
        self.comments = [self.texts[number] for number in whole[13]]
        functions = {one[1][0]: self.texts[one[2][0]] for one in map(_grouped, whole[5])}
        self.places = {
            one[1][0]: [
                (functions[line[1][0]], line[2][0] if line[2] else 0)
                for line in map(_grouped, one[4])
            ]
            for one in map(_grouped, whole[4])
        }
        self.modules = [self.texts[one[5][0]] for one in map(_grouped, whole[3])]
        self.samples: dict[tuple[tuple[str, int], ...], list[int]] = {}
        seen: set[tuple[int, ...]] = set()
        for sample in map(_grouped, whole[2]):
            places = tuple(_varints(sample[1][0]))
            assert places not in seen
            seen.add(places)
            # Outermost first, as the other formats have it.
            stack = tuple(reversed([line for place in places for line in self.places[place]]))
            values = _varints(sample[2][0])
            # Several addresses may be of one line.
            known = self.samples.get(stack, [0] * len(values))
            self.samples[stack] = [one + other for one, other in zip(known, values, strict=True)]

    def _kind(self, data: bytes) -> tuple[str, str]:
        found = _grouped(data)
        return self.texts[found[1][0]], self.texts[found[2][0]]

    def folded(self, kind: int = 0) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for stack, values in self.samples.items():
            found[";".join(name for name, _ in stack)] += values[kind]
        return dict(found)
