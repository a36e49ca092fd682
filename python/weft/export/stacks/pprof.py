"""pprof: a compressed protocol buffer, which ``go tool pprof`` and many services read.

The messages are those of profile.proto in https://github.com/google/pprof; only the few fields that
weft has something for are written, so that no library for protocol buffers is needed.
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import BinaryIO, TypeAlias

from weft.base.numbers import readable
from weft.export.protobuf import message, optional, packed
from weft.model.weighed import (
    CodeModule,
    WeighedFrame,
    WeighedFunction,
    WeighedStacks,
)

_UNITS = {"bytes": "bytes", "ns": "nanoseconds"}

_Place: TypeAlias = "tuple[WeighedFrame, ...]"
"""The functions at an address, the innermost first: those that are inlined, and the one that has
their code."""


def write(file: BinaryIO, *kinds: WeighedStacks) -> None:
    """Write stacks of one target with one weight or several, by lines."""
    # A time in the file would make two equal profiles differ.
    file.write(gzip.compress(_Writer(kinds).message(), mtime=0))


class _Writer:
    """Collects what is named by number in this format: texts, functions, places in them."""

    def __init__(self, kinds: Sequence[WeighedStacks]) -> None:
        self.kinds = kinds
        self.texts: dict[str, int] = {"": 0}
        modules = dict.fromkeys(module for kind in kinds for module in kind.modules)
        self.modules: dict[CodeModule, int] = {one: at for at, one in enumerate(modules, 1)}
        self.functions: dict[WeighedFunction, int] = {}
        self.places: dict[_Place, int] = {}

    def message(self) -> bytes:
        """The whole profile."""
        values = b"".join(message(1, self._value_type(kind)) for kind in self.kinds)
        samples = b"".join(message(2, sample) for sample in self._samples())
        mappings = b"".join(
            message(3, self._mapping(number, module)) for module, number in self.modules.items()
        )
        places = b"".join(
            message(4, self._location(number, place)) for place, number in self.places.items()
        )
        functions = b"".join(
            message(5, self._function(number, one)) for one, number in self.functions.items()
        )
        period = message(11, self._value_type(self.kinds[0])) + optional(12, 1)
        comments = b"".join(optional(13, self._text(comment)) for comment in self._comments())
        # Readers take the last one if they are not told.
        first = self._text(self.kinds[0].kind) if len(self.kinds) > 1 else 0
        texts = b"".join(message(6, readable(text).encode()) for text in self.texts)
        tables = samples + mappings + places + functions + texts
        return values + tables + period + comments + optional(14, first)

    def _samples(self) -> Iterator[bytes]:
        """A sample for each stack, with a number of each kind."""
        nothing = [0] * len(self.kinds)
        weights: dict[tuple[WeighedFrame, ...], list[int]] = defaultdict(nothing.copy)
        for at, kind in enumerate(self.kinds):
            for stack in kind.stacks:
                weights[stack.frames][at] += stack.weight
        for frames, numbers in weights.items():
            innermost, *others = _places(frames)
            callers = [self._number(place) for place in others]
            yield packed(1, [self._number(innermost), *callers]) + packed(2, numbers)

    def _comments(self) -> Iterator[str]:
        yield self.kinds[0].title
        for kind in self.kinds:
            yield from kind.notes

    def _number(self, place: _Place) -> int:
        return self.places.setdefault(place, len(self.places) + 1)

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def _value_type(self, kind: WeighedStacks) -> bytes:
        unit = _UNITS.get(kind.unit, "count")
        return optional(1, self._text(kind.kind)) + optional(2, self._text(unit))

    def _mapping(self, number: int, module: CodeModule) -> bytes:
        return (
            optional(1, number)
            + optional(2, module.start)
            + optional(3, module.end)
            + optional(5, self._text(module.path))
            + optional(6, self._text(module.build_id))
            # Functions, files and lines are known: nobody needs to look them up.
            + b"".join(optional(known, 1) for known in (7, 8, 9))
        )

    def _location(self, number: int, place: _Place) -> bytes:
        outermost = place[-1]
        parts = optional(1, number)
        if outermost.function.module is not None:
            parts += optional(2, self.modules[outermost.function.module])
            parts += optional(3, outermost.address)
        for frame in place:
            function, line = frame.function, frame.line
            # A line of another file is one of a function that was inlined.
            if not line or frame.file != function.file:
                line = function.line
            known = self.functions.setdefault(function, len(self.functions) + 1)
            parts += message(4, optional(1, known) + optional(2, line))
        return parts

    def _function(self, number: int, function: WeighedFunction) -> bytes:
        return (
            optional(1, number)
            + optional(2, self._text(function.name))
            + optional(3, self._text(function.linked_name or function.name))
            + optional(4, self._text(function.file))
            + optional(5, function.line)
        )


def _places(frames: Sequence[WeighedFrame]) -> Iterator[_Place]:
    """The places of a stack, the innermost first."""
    inner: list[WeighedFrame] = []
    for frame in reversed(frames):
        inner.append(frame)
        if not frame.inlined:
            yield tuple(inner)
            inner = []
    if inner:
        yield tuple(inner)
