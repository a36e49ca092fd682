"""How long threads waited for a processor, and did not run: what the kernel counts for each."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from weft.base.numbers import printable, quantity
from weft.errors import UnsupportedTarget
from weft.metrics.owners import own_id
from weft.model.completeness import Missing
from weft.program import tasks

if TYPE_CHECKING:
    from weft.control.probing import Probing

__all__ = [
    "ENDED",
    "NAMES",
    "SHORTER",
    "Name",
    "Source",
    "Tasks",
    "ThreadTimes",
    "refuse_uncounted",
]

Name: TypeAlias = Literal["runnable", "off_cpu"]
NAMES: Mapping[str, Name] = {"runnable": "runnable", "off_cpu": "off_cpu"}

SHORTER = "a shorter --interval"
ENDED = "the process had ended before the kernel could be asked again"
_LAST = "what they waited after they were last looked at is not in it"
_ATTEMPTS = 3
_GONE = (FileNotFoundError, ProcessLookupError)


class Source(Protocol):
    """What the kernel says of a process; times are in nanoseconds."""

    def threads(self) -> list[int]:
        """The ids of the threads that it has."""

    def file(self, name: str) -> str:
        """What a file below ``/proc/PID`` says."""

    def processor_time(self) -> int:
        """How long its threads have run, those that have ended included."""

    def now(self) -> int:
        """The time since the machine was booted."""

    def own_id(self, tid: int) -> int:
        """The id that a thread has for itself."""

    @property
    def tick(self) -> int:
        """What a thread's birth is told in."""


class Tasks:
    """The threads of a living process."""

    def __init__(self, session: Probing) -> None:
        self._session = session
        self._has_own_ids = own_id(session.pid) != session.pid
        self.tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

    def threads(self) -> list[int]:
        """The ids of the threads that it has."""
        return [int(one.name) for one in Path(f"/proc/{self._session.pid}/task").iterdir()]

    def file(self, name: str) -> str:
        """What a file below ``/proc/PID`` says."""
        # What is kept of a program that has ended is of no use: its threads are not.
        return Path(f"/proc/{self._session.pid}/{name}").read_text(errors="replace")

    def processor_time(self) -> int:
        """How long its threads have run, those that have ended included."""
        return tasks.processor_time(self._session.pid)

    def now(self) -> int:
        """The time since the machine was booted, as births of threads are told."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def own_id(self, tid: int) -> int:
        """The id that a thread has for itself."""
        return own_id(tid) if self._has_own_ids else tid


def refuse_uncounted(source: Source, name: str) -> None:
    """Raise an error if the kernel does not count for how long threads wait."""
    what = f"the kernel does not count {name}"
    try:
        counts = source.file("schedstat").split()
    except FileNotFoundError:
        with suppress(OSError):
            source.file("stat")
            raise UnsupportedTarget(
                what,
                "it has no /proc/PID/schedstat",
                "a kernel that was built with CONFIG_SCHED_INFO, as those of distributions are",
            ) from None
        return
    except ProcessLookupError:
        return
    with suppress(OSError):
        if not any(map(int, counts)) and source.processor_time():
            raise UnsupportedTarget(
                what,
                "/proc/PID/schedstat has only zeros although the process has run",
                "as root: sysctl kernel.task_delayacct=1",
            )


class _Look(NamedTuple):
    """A thread as it was at a moment."""

    name: str
    is_over: bool
    born: int
    ran: int
    waited: int
    at: int


@dataclass(slots=True)
class _Thread:
    tid: int
    own: int
    born: int
    name: str
    since: int
    """From when on it counts: when it was first looked at, or its birth."""
    until: int
    ran_before: int
    waited_before: int
    ran: int
    waited: int
    off: int = 0
    has_ended: bool = False
    is_cut: bool = False
    """Whether something of it was lost."""

    def see(self, look: _Look) -> None:
        self.name, self.ran, self.waited = look.name, look.ran, look.waited
        if look.is_over:
            # When it ended is not known.
            self.has_ended = True
            return
        self.until = look.at
        # How long a thread has run is told late, by a tick at most, if it runs just then.
        self.off = max(self.off, self.until - self.since - (self.ran - self.ran_before))


class ThreadTimes:
    """What threads have waited for a processor, or not run, since it was made.

    The kernel keeps nothing of threads that have ended. So what is known is what was read before,
    and what they did since is lost; it is told by :meth:`lost`.
    """

    def __init__(self, source: Source, name: Name) -> None:
        self._source = source
        self._name = name
        self._threads: dict[int, _Thread] = {}
        """Those that live, by their ids."""
        self._ended: list[_Thread] = []
        self._over: set[tuple[int, int]] = set()
        """The ids and births of those whose remains may still be there."""
        self._process: int | None = None
        """When the process was started: another may be given its id."""
        self._is_cut = False
        self._looked = 0
        self._gaps = 0
        """How long threads that have ended may have run after they were last looked at."""
        self._unseen = 0
        """How long threads have run that no reading has seen."""
        self._before = 0
        for _ in range(_ATTEMPTS):
            self._begin()
            with suppress(OSError):
                # Whatever runs in between would count as what nobody has seen.
                first, self._before = self._before, source.processor_time()
                if first == self._before:
                    break

    def _begin(self) -> None:
        self._threads.clear()
        with suppress(OSError):
            self._before = self._source.processor_time()
        self._looked = self._source.now()
        for tid, look in self._look({}).items():
            # The first thread of a process may have ended before the others.
            if look.is_over:
                self._over.add((tid, look.born))
            else:
                self._add(tid, look, look.at, look.ran, look.waited)

    def read(self) -> dict[int, int]:
        """Look at all threads, and return the nanoseconds of each by the id it has for itself."""
        began, ran = self._source.now(), None
        with suppress(OSError):
            ran = self._source.processor_time()
        looks = self._look(self._threads)
        self._is_cut = not looks
        for tid, look in looks.items():
            if (thread := self._threads.get(tid)) is not None and thread.born != look.born:
                self._end(thread, began)
            if tid in self._threads:
                self._threads[tid].see(look)
            elif (tid, look.born) not in self._over:
                self._add(tid, look, self._birth(look), 0, 0)
        for thread in list(self._threads.values()):
            if thread.tid not in looks or thread.has_ended:
                self._end(thread, began)
        if ran is not None and looks:
            seen = sum(one.ran - one.ran_before for one in self._all())
            self._unseen = max(self._unseen, ran - self._before - seen)
        self._looked = began
        return self._values()

    def names(self) -> dict[int, str]:
        """The names of all threads that were seen, by the ids that they have for themselves."""
        return {one.own: one.name for one in self._all()}

    def lost(self, wanted: set[int] | None, focus: str, *, is_one: bool = False) -> list[Missing]:
        """Say what is not in the values of some threads, or of all.

        Whoever was never seen may have been one of them, unless ``is_one`` says which one it is.
        """
        if self._is_cut:
            return [Missing("time", focus, ENDED, None, SHORTER)]
        cut = [one for one in self._all() if one.is_cut]
        if wanted is not None:
            cut = [one for one in cut if one.own in wanted]
        is_short = self._unseen > 0 and not is_one
        found = []
        if cut:
            others = ", and others may have come and gone" if is_short else ""
            why = f"they have ended{others}; {_LAST}"
            found.append(Missing("threads", focus, why, len(cut), SHORTER))
        if is_short and (self._unseen > self._gaps or not cut):
            why = f"without being looked at; {quantity(self._unseen, 'ns')} are not accounted for"
            # Those that have ended, and are none of these, may have run for as long.
            is_sure = self._unseen > self._gaps
            why = f"they {'' if is_sure else 'may '}have come and gone {why}"
            found.append(Missing("threads", focus, why, None, SHORTER))
        return found

    def _all(self) -> list[_Thread]:
        return [*self._ended, *self._threads.values()]

    def _values(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for one in self._all():
            value = one.off if self._name == "off_cpu" else one.waited - one.waited_before
            found[one.own] = found.get(one.own, 0) + value
        return found

    def _add(self, tid: int, look: _Look, since: int, ran: int, waited: int) -> None:
        own = self._source.own_id(tid)
        thread = _Thread(tid, own, look.born, look.name, since, since, ran, waited, ran, waited)
        thread.see(look)
        self._threads[tid] = thread

    def _birth(self, look: _Look) -> int:
        """When a thread was born that came since the reading before: a tick is long."""
        tick = self._source.tick
        first = max(look.born * tick, self._looked)
        last = min((look.born + 1) * tick, look.at - look.ran - look.waited)
        return (first + last) // 2 if first < last else last

    def _end(self, thread: _Thread, now: int) -> None:
        del self._threads[thread.tid]
        # Of one that is still there, if only as what is left of it, the counts are the last.
        thread.is_cut = not thread.has_ended or self._name == "off_cpu"
        if not thread.has_ended:
            self._gaps += max(0, now - thread.until)
        self._ended.append(thread)
        self._over.add((thread.tid, thread.born))

    def _look(self, known: Mapping[int, _Thread]) -> dict[int, _Look]:
        """Look at the threads of the process; at none if it has ended, or is another one."""
        found: dict[int, _Look] = {}
        asked: set[int] = set()
        with suppress(*_GONE):
            born = _parts(self._source.file("stat"))[2]
            self._process = born if self._process is None else self._process
            if born != self._process:
                return {}
            # Threads that end while they are listed make the kernel leave out others.
            for _ in range(_ATTEMPTS):
                fresh = {*known, *self._source.threads()} - asked
                if not fresh:
                    break
                asked |= fresh
                for tid in fresh:
                    with suppress(*_GONE):
                        found[tid] = self._look_at(tid)
        return found

    def _look_at(self, tid: int) -> _Look:
        ran, waited, _ = self._source.file(f"task/{tid}/schedstat").split()
        at = self._source.now()
        name, state, born = _parts(self._source.file(f"task/{tid}/stat"))
        return _Look(name, state in "ZX", born, int(ran), int(waited), at)


def _parts(stat: str) -> tuple[str, str, int]:
    """The name, the state, and the birth in a file ``stat``."""
    start, end = stat.index("("), stat.rindex(")")
    words = stat[end + 2 :].split()
    return printable(stat[start + 1 : end]), words[0], int(words[19])
