"""What threads do at each moment, in a few classes that have colours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from weft.export.sampled.kinds import wait_name
from weft.model.sampled import Lock, PlaceTime, SampledTime

__all__ = ["CLASSES", "Stretch", "Waited", "class_of", "doing", "stretches", "waits_by_thread"]

CLASSES: Final = {
    "running": "runs, or is ready to",
    "lock": "waits for a lock",
    "input": "waits for input or output",
    "sleep": "sleeps, or waits for something else",
}
"""What each class is. At one look, what runs and what is ready to cannot be told apart."""
_INPUT = ("descriptor", "file", "device", "memory", "message")


class Waited(NamedTuple):
    """What a thread waited for, wherever it did."""

    name: str
    seconds: float
    samples: int


def waits_by_thread(found: SampledTime) -> dict[int, list[Waited]]:
    """Return what each thread waited for, most time first."""
    sums: dict[int, dict[str, Waited]] = {one.tid: {} for one in found.threads}
    for place in found.places:
        if place.is_blocked:
            name = doing(place)
            known = sums[place.tid].get(name, Waited(name, 0.0, 0))
            seconds, samples = known.seconds + place.blocked, known.samples + place.samples
            sums[place.tid][name] = Waited(name, seconds, samples)
    return {
        tid: sorted(waits.values(), key=lambda one: -one.seconds) for tid, waits in sums.items()
    }


class Stretch(NamedTuple):
    """A time in which a thread was found in the same place at each look."""

    tid: int
    begin: int
    """Nanoseconds since the machine was booted."""
    end: int
    place: PlaceTime


def stretches(found: SampledTime) -> Iterator[Stretch]:
    """Return the stretches of all threads; each ends where the next look is."""
    moments = found.moments
    if not moments:
        return
    # The last look stands for as long as the others do on the average.
    last = moments[-1] + (moments[-1] - moments[0]) // max(len(moments) - 1, 1)
    pending: dict[int, Stretch] = {}
    for stay in sorted(found.stays, key=lambda stay: stay.first):
        place = stay.place
        end = moments[stay.end] if stay.end < len(moments) else last
        new = Stretch(place.tid, moments[stay.first], end, place)
        old = pending.get(place.tid)
        if old is not None and old.end == new.begin and old.place is place:
            pending[place.tid] = old._replace(end=new.end)
            continue
        if old is not None:
            yield old
        pending[place.tid] = new
    yield from pending.values()


def class_of(place: PlaceTime) -> str:
    """The class of what a thread does in a place."""
    if not place.is_blocked:
        return "running"
    if Lock.of(place.wait) is not None:
        return "lock"
    is_input = place.wait is not None and place.wait.kind in _INPUT
    return "input" if is_input else "sleep"


def doing(place: PlaceTime) -> str:
    """Say what a thread does in a place: ``runs``, ``lock table_lock``."""
    return wait_name(place).strip("[]") if place.is_blocked else "runs"
