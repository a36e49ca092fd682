"""Perfetto: what threads do, as slices on a track below each, with all samples of their stacks.

The file opens in https://ui.perfetto.dev. The stacks are samples of the threads themselves, which
Perfetto makes flame graphs of.
"""

from __future__ import annotations

from typing import BinaryIO

from weft.base.numbers import readable
from weft.export.protobuf import integer, text
from weft.export.sampled.kinds import weighed
from weft.export.slices import Slice, SliceWriter
from weft.export.stacks import perfetto
from weft.export.waits.classes import class_of, doing, stretches
from weft.model.sampled import SampledTime

__all__ = ["write"]

# TrackDescriptor
_NAME, _PARENT = 2, 5
_SEQUENCE = 2
"""The samples are the first."""


def write(file: BinaryIO, found: SampledTime, title: str) -> None:
    """Write it."""
    perfetto.write(file, weighed(found, "wall", title))
    writer = SliceWriter(file, _SEQUENCE)
    tids = dict.fromkeys(stay.place.tid for stay in found.stays)
    for tid in tids:
        # The samples have a track for each thread, of which its id is the number.
        writer.track(_track(tid), text(_NAME, "what it does") + integer(_PARENT, tid))
    for one in stretches(found):
        name = readable(doing(one.place))
        writer.slice(Slice(one.begin, _track(one.tid), name, class_of(one.place)))
        writer.slice(Slice(one.end, _track(one.tid), None))


def _track(tid: int) -> int:
    """The number of the track of slices: none of threads, nor of processes."""
    return 2 << 32 | tid
