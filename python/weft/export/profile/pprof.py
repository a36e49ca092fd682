"""pprof: a compressed protocol buffer, which ``go tool pprof`` and many services read.

The messages are those of profile.proto in https://github.com/google/pprof; only the few fields that
an exact profile has are written, so that no library for protocol buffers is needed.
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from typing import BinaryIO

from weft.export.metrics.values import readable
from weft.export.protobuf import message, optional, packed
from weft.tools.callgraph import apportion
from weft.tools.profile import Profile


def write(file: BinaryIO, profile: Profile) -> None:
    """Write the stacks with their source lines; the unit is one instruction."""
    # A time in the file would make two equal profiles differ.
    file.write(gzip.compress(_Writer(profile).message(), mtime=0))


class _Writer:
    """Collects what is named by number in this format: texts, functions, places in them."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.texts: dict[str, int] = {"": 0}
        self.functions: dict[int, int] = {}
        self.places: dict[tuple[int, str, int], int] = {}

    def message(self) -> bytes:
        """The whole profile."""
        profile = self.profile
        value = message(1, self._value_type("instructions", "count"))
        samples = b"".join(message(2, sample) for sample in self._samples())
        mappings = b"".join(
            message(3, self._mapping(number)) for number in range(len(profile.modules))
        )
        places = b"".join(
            message(4, self._location(number, *place)) for place, number in self.places.items()
        )
        functions = b"".join(
            message(5, self._function(number, frame)) for frame, number in self.functions.items()
        )
        period = message(11, self._value_type("instructions", "count")) + optional(12, 1)
        command = optional(13, self._text(" ".join(profile.command)))
        texts = b"".join(message(6, readable(text).encode()) for text in self.texts)
        return value + samples + mappings + places + functions + texts + period + command

    def _samples(self) -> list[bytes]:
        """Of each stack a sample for each line of its last function, exact for each line."""
        stacks = defaultdict(list)
        for stack in self.profile.graph.stacks():
            stacks[stack.frames[-1]].append(stack)
        lines = defaultdict(list)
        for (function, file, line), count in self.profile.line_counts.items():
            lines[function].append((file, line, count))
        samples = []
        for function, inside in stacks.items():
            for file, line, count in lines[function]:
                parts = apportion(count, [stack.cost for stack in inside])
                for stack, part in zip(inside, parts, strict=True):
                    if part:
                        callers = [self._place(frame) for frame in reversed(stack.frames[:-1])]
                        numbers = [self._place(function, file, line), *callers]
                        samples.append(packed(1, numbers) + packed(2, [part]))
        return samples

    def _place(self, frame: int, file: str = "", line: int = 0) -> int:
        return self.places.setdefault((frame, file, line), len(self.places) + 1)

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def _value_type(self, kind: str, unit: str) -> bytes:
        return optional(1, self._text(kind)) + optional(2, self._text(unit))

    def _mapping(self, number: int) -> bytes:
        module = self.profile.modules[number]
        inside = [
            block
            for block in self.profile.blocks
            if self.profile.functions[block.function].module == number
        ]
        start = min((block.offset for block in inside), default=0)
        end = max((block.offset + block.size for block in inside), default=0)
        return (
            optional(1, number + 1)
            + optional(2, module.bias + start)
            + optional(3, module.bias + end)
            + optional(5, self._text(module.path))
            + optional(6, self._text(module.build_id or ""))
            # Functions, files and lines are known: nobody needs to look them up.
            + b"".join(optional(known, 1) for known in (7, 8, 9))
        )

    def _location(self, number: int, frame: int, file: str, line: int) -> bytes:
        parts = optional(1, number)
        if frame >= 0:
            function = self.profile.functions[frame]
            module = self.profile.modules[function.module]
            parts += optional(2, function.module + 1) + optional(3, module.bias + function.offset)
            # A line of another file is one of a function that was inlined.
            if not line or file != function.file:
                line = function.line or 0
        known = self.functions.setdefault(frame, len(self.functions) + 1)
        return parts + message(4, optional(1, known) + optional(2, line))

    def _function(self, number: int, frame: int) -> bytes:
        name = linked = self.profile.frame_name(frame)
        file, line = "", 0
        if frame >= 0:
            function = self.profile.functions[frame]
            linked, file, line = function.name, function.file or "", function.line or 0
        return (
            optional(1, number)
            + optional(2, self._text(name))
            + optional(3, self._text(linked))
            + optional(4, self._text(file))
            + optional(5, line)
        )
