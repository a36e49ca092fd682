"""Kills weft while it attaches to, pings and leaves a program, which must not notice.

    python -m tests.soak.kill [--kills N] [--long]

Each victim is a weft of its own that attaches, pings and detaches over and over; it is killed with
SIGKILL after a random time. The target checks its own invariants all the while. In the end one
undisturbed weft attaches and detaches, and the target must look as it did at first: what the killed
ones have left behind, it has taken out.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import weft
from tests.e2e.builder import Builder
from tests.e2e.harness import Footprint
from tests.invariants import invariants

SHORT, LONG = 60, 1000
SEED = 20261114

VICTIM = """
import sys, weft
pid = int(sys.argv[1])
print("ready", flush=True)
while True:
    with weft.attach(pid) as session:
        session.ping()
    print("cycle", flush=True)
"""


def kill_while_at_work(pid: int, after: float) -> int:
    """Start a victim, kill it, and return how many whole cycles it made."""
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(pid)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as victim:
        assert victim.stdout is not None
        ready = victim.stdout.readline()
        if ready == "ready\n":
            time.sleep(after)
        victim.kill()
        cycles, errors = victim.communicate()
        if ready != "ready\n" or victim.returncode != -signal.SIGKILL:
            raise AssertionError(f"the victim ended before it was killed: {errors}")
    return cycles.count("cycle")


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
            for _ in range(kills):
                kill_while_at_work(target.pid, moments.uniform(0, 2 * typical))
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help=f"{LONG} kills instead of {SHORT}")
    parser.add_argument("--kills", type=int)
    options = parser.parse_args()
    kills = options.kills or (LONG if options.long else SHORT)
    print(run(kills * 8 // 10, 64, 8))
    print(run(kills * 2 // 10, 4, 0))


if __name__ == "__main__":
    main()
