"""What a target loses to being measured, added up.

There are three ways to lose time: running the code of probes, standing still while code is changed,
and waiting for a processor that weft itself is using.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from weft.metrics.sampling import RunTime
from weft.model.program import Pause

__all__ = ["INTERVAL", "OWN", "Ledger", "Loss"]

INTERVAL = 1.0
"""The time over which a budget is kept, in seconds."""
_WINDOW = 2.0
"""The time over which the overhead is told."""
_ALLOWED = 0.9
"""What part of the budget is given out: what was spent is known only afterwards."""
_BURST = 0.3
"""How much may be spent at once, as a part of what may be lost in an interval."""
OWN = 0.4
"""What part of the budget weft may use up itself by sampling and drawing."""
_LONGEST_DEBT = 10.0
"""What was lost too much is saved again within this time; more than that is forgotten."""
_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE = slice(3, 5)
"""The numbers of /proc/stat that tell how long a processor had nothing to do: idle, iowait."""
_PRESSURE = Path("/proc/pressure/cpu")


@dataclass(frozen=True, slots=True)
class Loss:
    """What was lost in a piece of time, in seconds."""

    passed: float
    ran: float
    """How long the target ran on processors."""
    probes: float
    """How much of that was the code of probes."""
    stopped: float
    """How long it stood still."""
    own: float
    """How long weft used a processor that others were waiting for."""
    seconds: float
    """All of it, as a part of the time that has passed."""


class Ledger:
    """Adds up what a target loses, and says what may still be spent.

    What the target may lose in the first interval is there from the beginning. Later it is given
    out evenly; little of what is not spent is saved, and what is spent too much is missing later.
    """

    def __init__(
        self,
        pid: int,
        share: float,
        pauses: Callable[[int], Sequence[Pause]],
        *,
        counts_process: bool,
    ) -> None:
        self.share = share
        self.run_time = RunTime(pid)
        self._pauses = pauses
        self.own = OwnTime(counts_process=counts_process)
        self._losses: tuple[Loss, ...] = ()
        """Of the last seconds; replaced as a whole, as other threads ask for the overhead."""
        self._known_pauses = len(pauses(0))
        self._began = self._time = time.monotonic()
        self._ran_until = self.run_time.seconds()
        self.balance = share * INTERVAL
        """How many seconds the target may lose right now."""
        self.passed = self.ran = self.probes = self.lost = 0.0
        """What was noted so far, in seconds: how long, how long the target ran on processors, how
        much of that the code of probes did, and everything that was lost."""

    @property
    def burst(self) -> float:
        """How many seconds may be spent at once."""
        return _BURST * self.share * INTERVAL

    def begin(self) -> None:
        """Begin to count now: what was done until now was done once."""
        self._known_pauses += len(self._pauses(self._known_pauses))
        self._ran_until = self.run_time.seconds()
        self.own.take()
        self._began = self._time = time.monotonic()

    def note(self, probes: float) -> Loss:
        """Note that the code of probes has taken so many seconds since the last note."""
        now, ran = time.monotonic(), self.run_time.seconds()
        pauses = self._pauses(self._known_pauses)
        self._known_pauses += len(pauses)
        stopped = sum(pause.seconds for pause in pauses if pause.threads)
        own = self.own.take()
        passed, used = now - self._time, max(ran - self._ran_until, 0.0)
        # Threads that run side by side lose side by side; and what is lost by one that runs now and
        # then is more of its time than of that of the clock.
        all_passed = passed + sum(loss.passed for loss in self._losses)
        all_used = max(used + sum(loss.ran for loss in self._losses), probes)
        threads = all_used / all_passed if all_used > 0 else 1.0
        lost = min(probes / threads + stopped + own / max(threads, 1.0), all_passed)
        loss = Loss(passed, used, probes, stopped, own, lost)
        self._time, self._ran_until = now, ran
        losses = (*self._losses, loss)
        while sum(one.passed for one in losses) - losses[0].passed > _WINDOW:
            losses = losses[1:]
        self._losses = losses
        # What weft uses itself beyond its part is made up for by drawing less: see Budget.pace.
        excess = max(own - OWN * self.share * passed, 0.0) / max(threads, 1.0)
        self.balance -= lost - excess
        if now - self._began > INTERVAL:
            allowed = _ALLOWED * self.share * loss.passed
            self.balance = min(self.balance + allowed, self.burst)
        self.balance = max(self.balance, -self.share * _LONGEST_DEBT)
        self.passed += passed
        self.ran += used
        self.probes += probes
        self.lost += lost
        return loss

    @property
    def overhead(self) -> float:
        """What the target has lost of the last two seconds, or of the first one, from 0 to 1."""
        losses = self._losses
        passed = sum(loss.passed for loss in losses)
        return sum(loss.seconds for loss in losses) / max(passed, INTERVAL)

    @property
    def own_share(self) -> float:
        """What of that is because of weft's own use of processors."""
        losses = self._losses
        passed = sum(loss.passed for loss in losses)
        return sum(loss.own for loss in losses) / max(passed, INTERVAL)


class OwnTime:
    """The processor time of weft itself, as far as others had to do without.

    With ``counts_process`` all that this process does is weft's; otherwise only what threads say.
    """

    def __init__(self, *, counts_process: bool) -> None:
        self._counts_process = counts_process
        self._machine = _Machine()
        self._lock = threading.Lock()
        self._noted = 0.0
        self._last = self._used()
        self._displaced = 0.0
        self._taken = 0.0

    def _used(self) -> float:
        return (time.process_time() if self._counts_process else 0.0) + self._noted

    def seconds(self) -> float:
        """How long so far."""
        with self._lock:
            used = self._used()
            self._displaced += max(used - self._last, 0.0) * self._machine.contention()
            self._last = used
            return self._displaced

    @property
    def contention(self) -> float:
        """What part of what weft uses others have to do without, from 0 to 1."""
        return self._machine.contention()

    def take(self) -> float:
        """How long since this was last asked for."""
        seconds = self.seconds()
        taken, self._taken = self._taken, seconds
        return seconds - taken

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count what this thread does, where not all of the process is counted anyway."""
        yield from self._noting(0.0 if self._counts_process else 1.0)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Do not count what this thread does: it prepares what is measured, once."""
        yield from self._noting(-1.0 if self._counts_process else 0.0)

    def _noting(self, sign: float) -> Iterator[None]:
        began = time.thread_time()
        try:
            yield
        finally:
            with self._lock:
                self._noted += sign * (time.thread_time() - began)


class _Machine:
    """Tells whether a processor was free for weft."""

    def __init__(self) -> None:
        names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        self._names = names
        self._time = time.monotonic()
        self._idle, self._waited = self._idle_seconds(), _waited_seconds()
        self._contention = 1.0

    def contention(self) -> float:
        """The part of the last second in which weft kept other threads waiting, from 0 to 1.

        That is when no processor was idle and, where the kernel reports it, a thread waited for
        one: a processor that is busy with nothing but weft is one that nothing else wants.
        """
        passed = time.monotonic() - self._time
        if passed >= INTERVAL:
            idle, waited = self._idle_seconds(), _waited_seconds()
            busy = 1 - (idle - self._idle) / passed
            if waited is not None and self._waited is not None:
                busy = min(busy, (waited - self._waited) / passed)
            self._contention = min(max(busy, 0.0), 1.0)
            self._time, self._idle, self._waited = time.monotonic(), idle, waited
        return self._contention

    def _idle_seconds(self) -> float:
        """How long the processors that weft can use had nothing to do; 0 where that is not told."""
        ticks = 0
        try:
            for line in Path("/proc/stat").read_text().splitlines():
                name, *fields = line.split(maxsplit=6)
                if name in self._names:
                    ticks += sum(map(int, fields[_IDLE]))
                elif not name.startswith("cpu"):
                    break
        except (OSError, ValueError):
            return 0.0
        return ticks / _TICKS


def _waited_seconds() -> float | None:
    """How long threads have waited for a processor; `None` where the kernel does not report it."""
    try:
        found = re.search(r"^some .*total=(\d+)", _PRESSURE.read_text())
    except OSError:
        return None
    return int(found[1]) / 1e6 if found else None
