"""Ending tasks that may go on."""

from __future__ import annotations

import asyncio

from weft.fleet.tasks import cancelled


def test_what_goes_on_when_it_is_cancelled_is_cancelled_again() -> None:
    async def run() -> None:
        times = 0

        async def stubborn() -> None:
            nonlocal times
            while times < 3:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    times += 1
            raise ValueError

        async def tame() -> None:
            await asyncio.sleep(60)

        tasks = [asyncio.create_task(one()) for one in (stubborn, tame)]
        await asyncio.sleep(0)
        await cancelled(*tasks, again=0.01)
        assert times == 3 and all(one.done() for one in tasks)

    asyncio.run(run())
