"""Says by the kernel's own numbers whether a plant is what it says, on this machine: no search.

A plant that is not what it says is worse than none, and how fast the disk is or how many
processors there are is the machine's. What threads execute is asked of `weft stacks`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bottlenecks.model import Case, Target
from tests.bottlenecks.running import started

STEP = 0.005
LOOKS = 25
TICKS = os.sysconf("SC_CLK_TCK")
BLOCKING_LOCKS = {"202", "73", "72"}
"""futex, flock, fcntl"""
ALLOCATORS = (
    *("malloc", "free", "operator new", "operator delete"),
    *("gcBgMark", "gcAssist", "gcDrain", "bgsweep"),
    *("collect", "MarkSweep"),
)
"""Words in the names of functions that allocate, or that collect what was allocated."""
TELLS_NOTHING = {
    "Go": "goroutines wait, not threads",
    "postgres-row": "a backend waits for a row as it waits for its client: in epoll_wait",
}
"""Locks that do not show as system calls of a thread."""


@dataclass
class Thread:
    """What a thread did in a second: parts of the time, and its page faults."""

    states: Counter[tuple[str, str]]
    run: float
    queued: float
    user: float
    system: float
    faults: float

    def share(self, *kinds: Callable[[str, str], bool]) -> float:
        """How much of its time it was blocked in such a way.

        Time in which it was runnable does not count: that others have the processors is told too.
        """
        blocked = {key: n for key, n in self.states.items() if key[0] != "R"}
        found = sum(n for key, n in blocked.items() if any(kind(*key) for kind in kinds))
        asleep = max(0.0, 1 - self.run - self.queued) / max(1 - self.queued, 0.05)
        return asleep * found / max(1, sum(blocked.values()))


@dataclass
class Looks:
    """What a process did for some seconds."""

    threads: dict[int, Thread]
    at_place: float = 0.0
    """How much of what its threads execute is where it allocates, or where it spins."""

    @property
    def busiest(self) -> Thread:
        return max(self.threads.values(), key=lambda thread: thread.run + thread.queued)


def _numbers(task: Path) -> tuple[float, ...]:
    run, queued, _ = map(int, (task / "schedstat").read_text().split())
    fields = (task / "stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]) / TICKS, int(fields[12]) / TICKS
    return run / 1e9, queued / 1e9, user, system, int(fields[7])


def _tasks(pid: int) -> dict[int, tuple[float, ...]]:
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found[int(task.name)] = _numbers(task)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _state(pid: int, tid: int) -> tuple[str, str] | None:
    task = Path(f"/proc/{pid}/task/{tid}")
    try:
        state = (task / "stat").read_text().rpartition(")")[2].split()[0]
        return state, (task / "syscall").read_text().split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def look(case: Case, target: Target, seconds: float) -> Looks:
    """What a process does, by /proc and by its stacks."""
    before, began = _tasks(target.pid), time.monotonic()
    states: dict[int, Counter[tuple[str, str]]] = {tid: Counter() for tid in before}
    while time.monotonic() - began < seconds:
        for tid, counted in states.items():
            state = _state(target.pid, tid)
            if state is not None:
                counted[state] += 1
        time.sleep(STEP)
    after, took = _tasks(target.pid), time.monotonic() - began
    threads = {}
    for tid in before.keys() & after.keys():
        pairs = zip(after[tid], before[tid], strict=True)
        threads[tid] = Thread(states[tid], *((new - old) / took for new, old in pairs))
    if "allocation" in case.expected:
        return Looks(threads, _share_in(ALLOCATORS, target))
    if "spinning" in case.expected:
        return Looks(threads, _share_in(case.focus, target))
    return Looks(threads)


def _share_in(functions: Sequence[str], target: Target) -> float:
    command = ["stacks", str(target.pid), "--json", "--repeat", str(LOOKS), "--interval", "0.03"]
    done = subprocess.run(
        [sys.executable, "-m", "weft", *command], check=True, capture_output=True, text=True
    )
    words = [word.lower() for word in functions]
    running = found = 0
    for text in done.stdout.splitlines():
        for thread in json.loads(text)["threads"]:
            if thread["state"][:1].upper() == "R":
                running += 1
                names = " ".join(frame["function"] or "" for frame in thread["frames"]).lower()
                found += any(word in names for word in words)
    return found / running if running else 0.0


def _lock(state: str, call: str) -> bool:
    return call in BLOCKING_LOCKS


def _disk(state: str, call: str) -> bool:
    return state == "D"


def _other(state: str, call: str) -> bool:
    return state == "S" and call not in BLOCKING_LOCKS


def evidence(looks: Looks, hypothesis: str) -> tuple[float, float, str]:
    """A number, what it must exceed, and what it is."""
    threads = list(looks.threads.values())
    active = [one for one in threads if one.run + one.queued > 0.002] or threads
    busiest, total = looks.busiest, sum(one.run for one in threads)
    faults = sum(one.faults for one in threads)
    in_kernel = sum(one.system for one in threads) / max(total, 1e-9)
    if hypothesis == "cpu":
        return busiest.user / max(busiest.run, 1e-9), 0.7, "of its running in user mode"
    if hypothesis in ("allocation", "spinning"):
        return looks.at_place, 0.5, "of what runs is there"
    if hypothesis == "lock_wait":
        return sum(one.share(_lock) for one in active) / len(active), 0.4, "in locks, per thread"
    if hypothesis == "io_wait":
        return max(one.share(_disk) for one in threads), 0.4, "in state D"
    if hypothesis == "peer_wait":
        return max(one.share(_other) for one in active), 0.5, "blocked in a call"
    if hypothesis == "page_faults":
        return min(in_kernel, faults / 50_000), 0.5, f"in the kernel, {faults:,.0f} faults/s"
    if hypothesis == "syscalls":
        return in_kernel, 0.5, f"of its running in the kernel, {faults:,.0f} faults/s"
    if hypothesis == "run_queue":
        return sum(one.queued for one in threads) / max(total, 1e-9), 1.5, "waiting over running"
    if hypothesis == "imbalance":
        rest = sorted((one.run for one in active), reverse=True)[1:]
        return busiest.run / max(1e-9, sum(rest) / max(1, len(rest))), 5.0, "times the others"
    return 1 - total, 0.8, "of a processor not used"


def check(case: Case, seconds: float) -> tuple[bool, str]:
    """Whether a case is what it says here, and the numbers."""
    with started(case) as target:
        looks = look(case, target, seconds)
    said, holds = [], []
    for hypothesis in case.expected:
        value, least, what = evidence(looks, hypothesis)
        # Of two bottlenecks, and of two names for one, none needs the greater part.
        least = least if len(case.expected) == 1 else least / 3
        unseen = hypothesis == "lock_wait" and (
            TELLS_NOTHING.get(case.language) or TELLS_NOTHING.get(case.name)
        )
        said.append(f"{hypothesis}: {unseen or f'{value:.2f} {what}'}")
        holds.append(bool(unseen) or value > least)
    queued = sum(one.queued for one in looks.threads.values())
    if queued > 0.3 and "run_queue" not in case.expected:
        said.append(f"others have the processors: {queued:.2f} runnable")
    ok = any(holds) if case.accepts else all(holds)
    return ok, "; ".join(said)


def check_all(cases: Sequence[Case], seconds: float) -> bool:
    """Print a line for each case; whether all are what they say."""
    failed = 0
    for case in cases:
        ok, said = check(case, seconds)
        failed += not ok
        print(f"{case.name:17} {case.planted:26} {'yes' if ok else 'NO':4} {said}", flush=True)
    print(f"as planted: {len(cases) - failed} of {len(cases)}")
    return not failed
