"""Kills weft while it attaches to, pings and leaves a program, which must not notice.

    python -m tests.soak.kill [--kills N] [--long]

Each victim is a process of its own that attaches, pings and detaches over and over; it is killed
with SIGKILL after a random time. The target checks its own invariants all the while. In the end one
undisturbed weft attaches and detaches, and the target must look as it did at first: what the killed
ones have left behind, it has taken out.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import weft
from tests.e2e.builder import Builder
from tests.e2e.harness import Footprint
from tests.invariants import invariants
from tests.soak import how_many

SHORT, LONG = 60, 1000
SEED = 20261114

#: Loads weft once and forks a victim for every line that it reads: starting Python anew for each
#: would take longer than all the rest, on a machine that the target keeps busy.
NURSERY = """
import os, sys, weft
target = int(sys.argv[1])
for _ in sys.stdin:
    victim = os.fork()
    if victim == 0:
        while True:
            with weft.attach(target) as session:
                session.ping()
    print(victim, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(victim, 0)[1]), flush=True)
"""


class Nursery:
    """Brings up victims for one target."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin and process.stdout
        self._orders, self._answers = process.stdin, process.stdout

    def kill_one(self, after: float) -> None:
        """Have a victim attach, ping and detach, over and over, and kill it after a time."""
        self._orders.write("\n")
        self._orders.flush()
        victim = int(self._answers.readline())
        time.sleep(after)
        os.kill(victim, signal.SIGKILL)
        code = int(self._answers.readline())
        if code != -signal.SIGKILL:
            raise AssertionError(f"the victim ended with {code} before it was killed")


@contextmanager
def nursery(pid: int) -> Iterator[Nursery]:
    """Bring up victims for as long as the block takes."""
    with subprocess.Popen(
        [sys.executable, "-c", NURSERY, str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Nursery(process)
        finally:
            process.kill()


def cycle_time(pid: int) -> float:
    """Return how long an undisturbed attach, ping and detach takes."""
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        with weft.attach(pid) as session:
            session.ping()
        times.append(time.perf_counter() - begin)
    return sorted(times)[2]


def run(kills: int, threads: int, churners: int) -> str:
    """Kill that many wefts at work on one target, and return what was seen in words."""
    moments = random.Random(SEED)
    with tempfile.TemporaryDirectory() as directory:
        program = Builder(Path(directory)).build("invariants")
        with invariants(program, threads, churners) as target:
            typical = cycle_time(target.pid)
            target.rest()
            before = Footprint.of(target.pid)
            target.go()
            left = 0
            with nursery(target.pid) as victims:
                for _ in range(kills):
                    victims.kill_one(moments.uniform(0, 2 * typical))
                    target.check()
                    maps = Path(f"/proc/{target.pid}/maps").read_text()
                    left += "/memfd:weft" in maps
            with weft.attach(target.pid):
                pass
            target.rest()
            differences = before.differences(Footprint.of(target.pid))
            target.go()
            interrupted = target.stop()
    if differences:
        raise AssertionError(f"not as it was: {differences}")
    return (
        f"{kills} kills on {threads} threads ({churners} of them born and joined all the time), "
        f"within {2000 * typical:.0f} ms of the start: target unharmed every time; "
        f"{left} left an agent behind, the next weft took all of them out; "
        f"{interrupted} calls of epoll_wait failed with EINTR"
    )


def main() -> None:
    kills = how_many(__doc__, "kills", SHORT, LONG)
    print(run(kills * 8 // 10, 64, 8), flush=True)
    print(run(kills * 2 // 10, 4, 0), flush=True)


if __name__ == "__main__":
    main()
