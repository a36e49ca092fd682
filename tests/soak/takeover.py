"""Has busy programs run from a clone and lets them go, again and again; nobody may notice.

    python -m tests.soak.takeover [--seconds N] [--long]

Half of the time is redis-server's under redis-benchmark: the clients must see no error, and get as
much done afterwards as with a server that nobody touched. The other half is that of a program with
16 threads that checks its own invariants: registers, signals, wake-ups, sleeping times; its memory
map, its descriptors and its executable memory must be the same before and after.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import weft
from tests.e2e.builder import Builder
from tests.soak import how_many, probes, unharmed

SHORT, LONG = 20, 600
THREADS, CHURNERS = 16, 2
LONGEST = 0.1
"""How many seconds a program runs from its clone at most."""


def take_over(pid: int, chance: random.Random) -> None:
    """Have a process run from a clone for a moment."""
    with weft.attach(pid, weaver="clone"):
        time.sleep(chance.uniform(0, LONGEST))


def takeovers(chance: random.Random) -> probes.Disturb:
    """Return what takes a process over, once."""

    def disturb(pids: list[int], until: Callable[[], bool]) -> dict[str, int]:
        if not until():
            take_over(pids[0], chance)
        return {"takeover": 1}

    return disturb


def soak(program: Path, seconds: float, chance: random.Random) -> int:
    """Take over a program that checks itself; return how often."""
    count = 0
    with unharmed(program, THREADS, CHURNERS, lambda pid: take_over(pid, chance)) as target:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            take_over(target.pid, chance)
            target.check()
            count += 1
    return count


def main() -> None:
    seconds = how_many(__doc__, "seconds", SHORT, LONG) / 2
    seed = random.getrandbits(32)
    print(f"chance began with {seed}", flush=True)
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        print(f"redis: {probes.soak('redis', folder, seconds, takeovers(chance))}", flush=True)
        program = Builder(folder).build("invariants")
        print(f"{soak(program, seconds, chance)} takeovers: the program is as it was")


if __name__ == "__main__":
    main()
