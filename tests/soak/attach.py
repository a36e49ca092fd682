"""Attaches to, pings and leaves a busy program thousands of times; it must not notice.

    python -m tests.soak.attach [--cycles N] [--long]

The program has 64 threads, 8 of which create and join others all the time, and checks its own
invariants: registers, signals, wake-ups, sleeping times. Its memory map, its descriptors and all of
its executable memory must be the same before and after. Prints how long it stood still, and how
that grows with the number of threads.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import weft
from tests.e2e.builder import Builder
from tests.soak import how_many, unharmed

SHORT, LONG = 100, 5000
THREADS, CHURNERS = 64, 8


@dataclass
class Times:
    """How long a target stood still, in milliseconds, for each of the things done to it."""

    load: list[float]
    ping: list[float]
    leave: list[float]

    def add(self, session: weft.Session) -> None:
        """Take note of one attach, ping and detach."""
        for times, pause in zip((self.load, self.ping, self.leave), session.pauses(), strict=True):
            times.append(1000 * pause.seconds)

    def __str__(self) -> str:
        parts = []
        for name in ("load", "ping", "leave"):
            times = sorted(getattr(self, name))
            middle, late = (
                times[len(times) // 2],
                times[min(len(times) - 1, len(times) * 99 // 100)],
            )
            parts.append(f"{name} p50 {middle:6.2f} p99 {late:6.2f} max {times[-1]:6.2f}")
        return "   ".join(parts)


def soak(program: Path, cycles: int, threads: int, churners: int) -> Times:
    """Attach, ping and detach that often, and fail if the target noticed."""
    times = Times([], [], [])

    def visit(pid: int) -> None:
        with weft.attach(pid):
            time.sleep(0.5)

    with unharmed(program, threads, churners, visit) as target:
        for _ in range(cycles):
            with weft.attach(target.pid) as session:
                pongs = session.ping()
            assert all(pong.answered for pong in pongs), pongs
            times.add(session)
            target.check()
    return times


def main() -> None:
    cycles = how_many(__doc__, "cycles", SHORT, LONG)
    with tempfile.TemporaryDirectory() as directory:
        program = Builder(Path(directory)).build("invariants")
        begin = time.monotonic()
        times = soak(program, cycles, THREADS, CHURNERS)
        took = time.monotonic() - begin
        print(f"{cycles} cycles of attach, ping and detach, {took:.0f} s: the target is as it was")
        print("how long it stood still, in milliseconds, by the number of its threads:")
        print(f"{THREADS:5} {times}")
        for threads in (1, 4, 16, 64, 128, 256, 512):
            # Most of the threads are busy, so that a cycle with hundreds of them takes its time.
            few = soak(program, 100 if threads <= THREADS else 20, threads, 0)
            print(f"{threads:5} {few}   (none of them churning)")


if __name__ == "__main__":
    main()
