"""Ending what runs beside something else."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["cancelled"]

_AGAIN = 1.0


async def cancelled(*tasks: asyncio.Task[Any], again: float = _AGAIN) -> None:
    """Cancel tasks, and wait until they have ended, however they do.

    Before Python 3.12 a task that is in ``asyncio.wait_for`` goes on if it is cancelled in the
    moment in which it has what it waits for. So those that have not ended are cancelled again after
    so many seconds: longer than it may take them to put things in order.
    """
    left = {*tasks}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=again)
    await asyncio.gather(*tasks, return_exceptions=True)
