"""What a host makes of what the broker has, without one."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.simulated import MadeUpMeasures, MadeUpProcesses
from weft.fleet.audit import Audit
from weft.fleet.broker import Access, Stored, bucket_subject
from weft.fleet.host import Host
from weft.fleet.names import REQUESTS, request_key
from weft.fleet.policy import Policy
from weft.fleet.protocol import Ask, Request
from weft.fleet.service import HostOptions

REQUEST = Request("r", "tests", (Ask("calls"),), "*", 10.0)
SUBJECT = bucket_subject(REQUESTS, request_key("tests", "r"))


@pytest.mark.parametrize(
    ("age", "is_served"), [(0, True), (60, True), (80, False), (10_000, False)]
)
def test_a_request_that_was_over_long_ago_is_none(
    tmp_path: Path, age: float, is_served: bool
) -> None:
    """Nobody waits for it: it is with the broker until that forgets it."""

    async def consider() -> bool:
        options = HostOptions("host-1", {}, Policy(), tmp_path)
        processes, measures = MadeUpProcesses(1, 1), MadeUpMeasures(1)
        host = Host(
            Access("nats://127.0.0.1"),
            options,
            Audit("host-1", None),
            processes=processes,
            weaver=measures,
        )
        host.broker.clock = time.time()
        host._consider(SUBJECT, Stored(SUBJECT, REQUEST.encode(), 1, host.broker.clock - age))
        tasks = [*host._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        host.machine.close()
        return bool(tasks)

    assert asyncio.run(consider()) == is_served
