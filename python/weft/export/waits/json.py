"""Who waits for whom, as plain data."""

from __future__ import annotations

import json
from typing import BinaryIO

from weft.export.sampled.kinds import note
from weft.export.waits.classes import waits_by_thread
from weft.model.contention import contention
from weft.model.sampled import SampledTime

__all__ = ["document", "write"]


def write(file: BinaryIO, found: SampledTime, _title: str) -> None:
    """Write it on one line."""
    file.write(json.dumps(document(found)).encode() + b"\n")


def document(found: SampledTime) -> dict[str, object]:
    """Return it as plain data: times of threads are exact, those of waits are estimates."""
    waits, locks = waits_by_thread(found), contention(found)
    return {
        "schema": 1,
        "pid": found.pid,
        "name": found.command,
        "seconds": found.seconds,
        "looks": found.looks,
        "stood_still": found.stood_still,
        "threads": [
            {
                **thread.to_json(),
                "waits": [
                    {"for": one.name, "seconds": one.seconds, "samples": one.samples}
                    for one in waits[thread.tid]
                ],
            }
            for thread in found.threads
        ],
        "locks": [one.to_json() for one in locks.locks],
        "notes": [note(found), *locks.notes, *found.notes],
    }
