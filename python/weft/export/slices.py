"""Slices on the tracks of a timeline, in Perfetto's format.

The numbers are those of the fields of ``perfetto/trace/trace_packet.proto`` and its neighbours.
Names are written once and referred to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import BinaryIO

from weft.export.protobuf import integer, message, text

__all__ = ["Slice", "SliceWriter"]

# Trace and TracePacket
_PACKET, _TIMESTAMP, _SEQUENCE, _EVENT, _INTERNED, _FLAGS, _TRACK = 1, 8, 10, 11, 12, 13, 60
# TrackDescriptor
_UUID = 1
# TrackEvent, DebugAnnotation, InternedData, EventName
_ANNOTATION, _TYPE, _NAME_ID, _TRACK_UUID, _CATEGORY = 4, 9, 10, 11, 22
_ANNOTATION_INTEGER, _ANNOTATION_POINTER, _ANNOTATION_NAME = 4, 7, 10
_EVENT_NAMES, _ID, _NAME = 2, 1, 2

_BEGIN, _END = 1, 2
_STATE_CLEARED, _STATE_NEEDED = 1, 2


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that begins or ends on a track."""

    time: int
    track: int
    name: str | None
    """What begins; `None` if something ends."""
    category: str = ""
    annotations: tuple[tuple[str, int, bool], ...] = ()
    """Names, values, and whether they are addresses."""


@dataclass
class SliceWriter:
    """Writes slices and the tracks that they are on."""

    file: BinaryIO
    sequence: int = 1
    """Which of the writers of the file it is: each has names of its own."""
    names: dict[str, int] = field(default_factory=dict)
    slices: int = 0

    def packet(self, content: bytes, flags: int = _STATE_NEEDED) -> None:
        """Write a packet."""
        whole = content + integer(_SEQUENCE, self.sequence) + integer(_FLAGS, flags)
        self.file.write(message(_PACKET, whole))

    def track(self, uuid: int, content: bytes) -> None:
        """Write what a track is."""
        self.packet(message(_TRACK, integer(_UUID, uuid) + content), _STATE_CLEARED)

    def slice(self, one: Slice) -> None:
        """Write that something begins, or ends."""
        event = integer(_TYPE, _END if one.name is None else _BEGIN)
        event += integer(_TRACK_UUID, one.track)
        interned = b""
        if one.name is not None:
            self.slices += 1
            if one.name not in self.names:
                self.names[one.name] = len(self.names) + 1
                entry = integer(_ID, self.names[one.name]) + text(_NAME, one.name)
                interned = message(_INTERNED, message(_EVENT_NAMES, entry))
            event += integer(_NAME_ID, self.names[one.name]) + text(_CATEGORY, one.category)
        for name, value, is_address in one.annotations:
            kind = _ANNOTATION_POINTER if is_address else _ANNOTATION_INTEGER
            content = text(_ANNOTATION_NAME, name) + integer(kind, value)
            event += message(_ANNOTATION, content)
        self.packet(integer(_TIMESTAMP, one.time) + message(_EVENT, event) + interned)
