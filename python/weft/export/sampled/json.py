"""Sampled time as plain data, for programs."""

from __future__ import annotations

import json
from typing import BinaryIO

from weft.export.sampled.kinds import Kind, StackTime, note, stack_times, wait_name
from weft.model.sampled import SampledTime

__all__ = ["document", "write"]


def write(file: BinaryIO, found: SampledTime, kind: Kind) -> None:
    """Write it on one line."""
    file.write(json.dumps(document(found, kind)).encode() + b"\n")


def document(found: SampledTime, kind: Kind) -> dict[str, object]:
    """Return it as plain data: times of threads are exact, those of stacks are estimates."""
    return {
        "schema": 1,
        "kind": kind,
        "pid": found.pid,
        "name": found.command,
        "seconds": found.seconds,
        "looks": found.looks,
        "stood_still": found.stood_still,
        "threads": [thread.to_json() for thread in found.threads],
        "stacks": [_stack(one) for one in stack_times(found, kind)],
        "notes": [note(found), *found.notes],
    }


def _stack(one: StackTime) -> dict[str, object]:
    place = one.place
    wait: dict[str, object] | None = None
    if one.state == "blocked" and place.samples:
        about = {} if place.wait is None else place.wait.to_json()
        held = [{**holder.to_json(), "samples": count} for holder, count in place.holders]
        wait = {"name": wait_name(place), **about, "call": place.call, "held_by": held}
    return {
        "tid": place.tid,
        "frames": [frame.to_json() for frame in place.frames],
        "seconds": one.seconds,
        "samples": place.samples,
        "state": one.state,
        "wait": wait,
        "truncated": place.cut,
    }
