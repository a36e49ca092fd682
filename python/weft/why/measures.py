"""What hypotheses need beside where threads are found: page faults, and work of one alone."""

from __future__ import annotations

import mmap
import os
import re
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import cache

from weft.model.sampled import SampledTime, ThreadTime
from weft.model.waits import Wait
from weft.program import tasks

__all__ = ["Counters", "Faults", "Idle", "faults", "imbalance", "processors"]

_TICKS = os.sysconf("SC_CLK_TCK")
_FEW_FAULTS = 1000.0
"""Up to how many page faults a second are nobody's concern."""
_BUSY = 0.4
"""From what share of the time on a thread is busy."""
_WORKS = 0.02
"""From what share of the time on a thread has any work."""
_HALF = 0.5
_SERVANTS = re.compile(
    r"GC Thread#|G1 |VM |C[12] Compiler|Signal Dispatch|Finalizer|Reference Handl|Common-Cleaner"
    r"|Service Thread|Monitor Deflat|Sweeper thread|Notification|V8Worker|DelayedTask|jemalloc_bg"
)
"""Threads of runtimes, which have work of their own."""
_STARTERS = re.compile(r"_*(start|clone3?|start_thread|libc_start\w*|thread_start|pthread_\w+)$")
_PATIENT = ("condition", "barrier", "futex", "thread", "semaphore", "lock", "timer")


@dataclass(frozen=True, slots=True)
class Counters:
    """What the kernel has counted for a process."""

    time: float
    faults: int
    user: float
    system: float

    @classmethod
    def now(cls, pid: int) -> Counters | None:
        """Read them; nothing of one that has ended."""
        fields = tasks.stat(pid)
        if len(fields) < 13:
            return None
        return cls(
            time.monotonic(),
            int(fields[7]) + int(fields[9]),
            int(fields[11]) / _TICKS,
            int(fields[12]) / _TICKS,
        )


def processors(pid: int) -> int:
    """How many processors a process may use."""
    allowed = tasks.status(pid, pid).get("Cpus_allowed_list", "")
    ranges = [part.partition("-") for part in allowed.split(",") if part]
    try:
        count = sum(int(last or first) - int(first) + 1 for first, _, last in ranges)
    except ValueError:
        count = 0
    return min(count or 1, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Faults:
    """The page faults of a process."""

    seconds: float
    """For how long the kernel was at work for them, estimated."""
    rate: float
    """How many there were in a second."""


def faults(before: Counters, after: Counters, in_calls: float) -> Faults:
    """Estimate how long page faults took.

    The kernel counts them, and how long it worked for the process in all. What of that is not in
    system calls is in faults, for the most part; and each takes as long as one of weft's own.
    """
    seconds = max(after.time - before.time, 1e-3)
    count = after.faults - before.faults
    rate = count / seconds
    if rate < _FEW_FAULTS:
        return Faults(0.0, rate)
    outside = max(after.system - before.system - in_calls, 0.0)
    least = count * _fault_cost()
    # One fault may take far longer than weft's own, but not everything is one; and all of them
    # together do not take longer than the kernel has worked.
    worked = after.system - before.system
    return Faults(min(max(min(outside, 8 * least), least), worked), rate)


@cache
def _fault_cost() -> float:
    """How many seconds a page fault takes here."""
    size = 4 << 20
    best = 1.0
    for _ in range(3):
        with mmap.mmap(-1, size) as memory:
            began = time.thread_time()
            for place in range(0, size, mmap.PAGESIZE):
                memory[place] = 1
            touched = time.thread_time() - began
            began = time.thread_time()
            for place in range(0, size, mmap.PAGESIZE):
                memory[place] = 1
            again = time.thread_time() - began
        best = min(best, (touched - again) * mmap.PAGESIZE / size)
    return max(best, 1e-7)


@dataclass(frozen=True, slots=True)
class Idle:
    """Threads that wait for one that works."""

    share: float
    """What share of what they could all do is lost."""
    busy: ThreadTime
    others: tuple[ThreadTime, ...]


def imbalance(found: SampledTime) -> Idle | None:
    """Find a thread that works while others, which also work, wait for it."""
    entries, waits = _entries(found), _waits(found)
    groups: defaultdict[str, list[ThreadTime]] = defaultdict(list)
    for thread in found.threads:
        is_short = thread.seconds < _HALF * found.seconds
        if not is_short and not _SERVANTS.match(thread.name):
            groups[entries.get(thread.tid, "")].append(thread)
    candidates = [_uneven(group, waits) for group in groups.values()]
    candidates.append(_serial(found, groups, waits))
    return max(filter(None, candidates), key=lambda one: one.share, default=None)


def _load(thread: ThreadTime) -> float:
    return (thread.running + thread.runnable) / max(thread.seconds, 1e-9)


def _uneven(group: list[ThreadTime], waits: dict[int, bool]) -> Idle | None:
    """Threads of the same kind, of which one has most of the work."""
    busy = max(group, key=_load)
    others = tuple(
        thread for thread in group if thread is not busy and waits.get(thread.tid, False)
    )
    if not others or len(others) < len(group) - 1 or _load(busy) < _BUSY:
        return None
    # Those that never work may be for other work than this.
    if max(map(_load, others)) < _WORKS / 4 or max(map(_load, others)) > _HALF * _load(busy):
        return None
    mean = (sum(map(_load, others)) + _load(busy)) / len(group)
    return Idle(1 - mean / _load(busy), busy, others)


def _serial(
    found: SampledTime, groups: dict[str, list[ThreadTime]], waits: dict[int, bool]
) -> Idle | None:
    """A thread that works while all of a pool wait, and waits while they work."""
    everybody = [thread for group in groups.values() for thread in group]
    if not everybody:
        return None
    busy = max(everybody, key=_load)
    pools = [
        group
        for group in groups.values()
        if len(group) > 1
        and busy not in group
        and all(waits.get(thread.tid, False) and _load(thread) >= _WORKS for thread in group)
    ]
    if not pools or _load(busy) < _BUSY:
        return None
    pool = max(pools, key=len)
    members = {thread.tid for thread in pool}
    alone = sum(
        count for tids, count in found.together if busy.tid in tids and not members & {*tids}
    )
    both = sum(count for tids, count in found.together if busy.tid in tids and members & {*tids})
    looks = max(sum(count for _, count in found.together), 1)
    if both > alone / 4:
        return None
    return Idle(alone / looks * len(pool) / (len(pool) + 1), busy, tuple(pool))


def _entries(found: SampledTime) -> dict[int, str]:
    """The functions that threads were started with."""
    entries: dict[int, str] = {}
    for place in found.places:
        if place.tid in entries or place.cut is not None:
            continue
        names = [frame.function for frame in reversed(place.frames) if frame.function]
        own = [name for name in names if not _STARTERS.match(name)]
        if own:
            entries[place.tid] = own[0] if place.tid != found.pid else "main"
    return entries


def _waits(found: SampledTime) -> dict[int, bool]:
    """Which threads wait, where they wait, for other threads."""
    seconds: defaultdict[int, dict[bool, float]] = defaultdict(lambda: {True: 0.0, False: 0.0})
    for place in found.places:
        if place.blocked > 0:
            seconds[place.tid][_is_patient(place.wait)] += place.blocked
    return {tid: parts[True] > parts[False] for tid, parts in seconds.items()}


def _is_patient(wait: Wait | None) -> bool:
    return wait is not None and wait.kind in _PATIENT
