"""Repeats messages of a fleet, late and more than once, as a bad network or somebody else might.

    python -m tests.soak.repeating URL SEED

It listens to requests, registrations and reports, and while the last line of its input was ``go``,
publishes what it has heard, old messages among it; ``rest`` ends that. Most are as they were, with
what they say that they replace; some reports and requests are without, so that the broker takes
them for new. At the end of its input it prints how many it has repeated.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import deque
from typing import TYPE_CHECKING

import nats

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

_SUBJECTS = ("$KV.weft_requests.>", "$KV.weft_hosts.>", "weft.samples.>")
_REMEMBERED = 2000
_REST = 0.02


class _Repeater:
    def __init__(self, client: Client, chance: random.Random) -> None:
        self.goes = asyncio.Event()
        self.repeated = 0
        self._client = client
        self._chance = chance
        self._heard: deque[Msg] = deque(maxlen=_REMEMBERED)

    async def hear(self, message: Msg) -> None:
        # What has been repeated is heard as well.
        if "Repeated" not in (message.headers or {}):
            self._heard.append(message)

    async def repeat(self) -> None:
        while True:
            await self.goes.wait()
            await asyncio.sleep(_REST * self._chance.random())
            if self._heard and self._client.is_connected:
                message = self._chance.choice(self._heard)
                headers = {**(message.headers or {}), "Repeated": "yes"}
                is_of_host = message.subject.startswith("$KV.weft_hosts.")
                if not is_of_host and self._chance.random() < 0.2:
                    headers = {"Repeated": "yes"}
                for _ in range(self._chance.choice([1, 1, 2, 5])):
                    await self._client.publish(message.subject, message.data, headers=headers)
                    self.repeated += 1


async def _leave_alone(_: Exception) -> None:
    """The broker is away now and then."""


async def main() -> int:
    """Do what the input says, until that ends."""
    url, seed = sys.argv[1:]
    client = await nats.connect(
        url, max_reconnect_attempts=-1, reconnect_time_wait=0.2, error_cb=_leave_alone
    )
    repeater = _Repeater(client, random.Random(seed))
    for subject in _SUBJECTS:
        await client.subscribe(subject, cb=repeater.hear)
    await client.flush()
    print("ready", flush=True)
    repeating = asyncio.create_task(repeater.repeat())
    loop = asyncio.get_running_loop()
    while word := await loop.run_in_executor(None, sys.stdin.readline):
        (repeater.goes.set if word.strip() == "go" else repeater.goes.clear)()
    repeating.cancel()
    await client.close()
    print(repeater.repeated)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
