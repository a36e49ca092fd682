"""What threads wait for, and the circles of them that can never end, also across processes.

Other processes are looked at only where a thread waits for one and all its threads may be stuck:
most are seen to be well by what ``/proc`` tells, and are left alone.

A circle is told only if, at a last look, all its threads have slept from before until after what
they wait for was read. A thread that is stuck sleeps, so nothing is missed; and threads that come
and go, each time for another lock, are no deadlock.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from weft.errors import WeftError
from weft.model.program import Module
from weft.model.stacks import StackFrame
from weft.model.thread_stacks import Deadlock, Stacks, StuckThread, ThreadStack
from weft.model.waits import Wait
from weft.program import tasks
from weft.program.circles import Node, behind, circles, is_held, stuck
from weft.program.descriptors import Ends
from weft.program.futexes import is_c_library
from weft.program.system_calls import NUMBERS
from weft.program.tasks import Sleep
from weft.program.waits import Waits, has_slept

__all__ = ["explain"]

Read: TypeAlias = "Callable[[int], tuple[Stacks, Sequence[Module]]]"
"""Reads the stacks of another process, and says of what modules it is made."""

_MOST = 16
"""How many processes are looked at."""
_HELD = frozenset(
    NUMBERS[name]
    for name in (
        *("futex", "futex_wait", "read", "readv", "pread64", "recvfrom", "recvmsg", "recvmmsg"),
        *("write", "writev", "pwrite64", "sendto", "sendmsg", "sendmmsg", "poll", "ppoll"),
        *("select", "pselect6", "wait4", "waitid", "flock", "fcntl", "restart_syscall", "vfork"),
    )
)
"""The calls in which a thread may wait for what only others can do."""
_INTERPRETER = re.compile(r"(lib)?python")
_WAITERS = re.compile(
    r"(_*lll_|_*futex|_*pthread_|_*gthread_|_*sem_|_*new_sem_|do_futex|_*timedwait|_*syscall_cp"
    r"|std::|<std::|core::|__gnu_cxx::|_*(GI_)?_*libc_(read|write|recv|send|poll|wait)"
    r"|_*(read|write|recv|recvfrom|recvmsg|send|sendto|sendmsg|poll|select|wait4|waitpid|waitid"
    r"|flock|fcntl|fcntl64)$)"
)
"""Functions that wait for others, where the C library is a part of the program."""


@dataclass(slots=True)
class _Seen:
    stacks: Stacks
    modules: Sequence[Module]
    waits: list[Wait | None]


def explain(
    stacks: Stacks,
    modules: Sequence[Module],
    earlier: Mapping[int, Sleep | None],
    read: Read,
) -> Stacks:
    """Say what the threads of stacks wait for, and which of them can never go on.

    ``earlier`` is how they slept before they were made to stand still.
    """
    found = Waits(stacks.pid, modules, Ends(), earlier)
    waits = found.of(stacks.threads)
    search = _Search(read)
    search.add(_Seen(stacks, modules, waits))
    deadlocks = search.deadlocks()
    threads = tuple(
        replace(thread, call=found.call(thread), waits_for=wait)
        for thread, wait in zip(stacks.threads, waits, strict=True)
    )
    return replace(
        stacks,
        threads=threads,
        deadlocks=tuple(deadlocks),
        notes=(*stacks.notes, *search.notes),
    )


class _Search:
    def __init__(self, read: Read) -> None:
        self._read = read
        self._seen: dict[int, _Seen] = {}
        self._left_out: set[int] = set()
        self.notes: list[str] = []

    def add(self, seen: _Seen) -> None:
        self._seen[seen.stacks.pid] = seen

    def deadlocks(self) -> list[Deadlock]:
        """The circles that the processes seen so far are in, or wait for."""
        self._follow()
        waits, members = self._waits(), self._members()
        found = stuck(waits, members)
        if not circles(found, waits, members):
            return []
        return self._confirmed(found)

    # --- Which processes ----------------------------------------------------------------------

    def _follow(self) -> None:
        """Look at the processes that others wait for, as long as all may be stuck."""
        while True:
            waits, members = self._waits(), self._members()
            unknown = {
                holder.pid
                for wait in waits.values()
                if wait is not None and is_held(wait)
                for holder in wait.holders
                if holder.pid not in self._seen and holder.pid not in self._left_out
            }
            if not unknown:
                return
            found = stuck(waits, members, unknown)
            wanted = {
                holder.pid
                for node in found
                if (wait := waits[node]) is not None
                for holder in wait.holders
                if holder.pid in unknown
            }
            if not wanted:
                return
            for pid in sorted(wanted):
                self._look(pid)

    def _look(self, pid: int) -> None:
        self._left_out.add(pid)
        if not _may_be_stuck(pid):
            return
        if len(self._seen) >= _MOST:
            note = f"deadlocks: no more than {_MOST} processes were looked at"
            if note not in self.notes:
                self.notes.append(note)
            return
        try:
            stacks, modules = self._read(pid)
        except WeftError as error:
            name = tasks.name(pid)
            self.notes.append(f"deadlocks: process {pid} '{name}' was not looked at: {error}")
            return
        self.add(_Seen(stacks, modules, Waits(pid, modules, Ends()).of(stacks.threads)))

    # --- The graph ----------------------------------------------------------------------------

    def _waits(self) -> dict[Node, Wait | None]:
        return {
            (pid, thread.tid): wait
            for pid, seen in self._seen.items()
            for thread, wait in zip(seen.stacks.threads, seen.waits, strict=True)
        }

    def _members(self) -> dict[int, list[int]]:
        return {pid: tasks.tids(pid) for pid in self._seen}

    def _confirmed(self, found: Iterable[Node]) -> list[Deadlock]:
        """Look once more at the threads that seem to be stuck, while all of them sleep."""
        nodes = sorted(found)
        threads = {
            (pid, thread.tid): thread
            for pid, seen in self._seen.items()
            for thread in seen.stacks.threads
        }
        before = {node: tasks.sleep(*node) for node in nodes}
        waits: dict[Node, Wait | None] = {}
        ends = Ends()
        for pid, seen in self._seen.items():
            here = [threads[node] for node in nodes if node[0] == pid]
            again = Waits(pid, seen.modules, ends).of(here)
            waits |= {(pid, one.tid): wait for one, wait in zip(here, again, strict=True)}
        members = self._members()
        for node in nodes:
            # One that is stopped, as by a debugger, sleeps too, and may be let go by anybody.
            sleeps = tasks.state(*node) in ("S", "D")
            if not sleeps or not has_slept(threads[node], before[node], tasks.sleep(*node)):
                waits[node] = None
        still = stuck(waits, members)
        return [
            self._deadlock(ring, still, waits, members, threads)
            for ring in circles(still, waits, members)
        ]

    def _deadlock(
        self,
        ring: Sequence[Node],
        found: set[Node],
        waits: Mapping[Node, Wait | None],
        members: Mapping[int, list[int]],
        threads: Mapping[Node, ThreadStack],
    ) -> Deadlock:
        stuck_threads, doubts = [], []
        for pid, tid in ring:
            wait, thread = waits[pid, tid], threads[pid, tid]
            if wait is None:
                continue
            if wait.doubt is not None:
                doubts.append(f"thread {tid}: {wait.doubt}")
            if wait.timeout is not None:
                doubts.append(f"thread {tid} waits for {wait.timeout:.3g} s at most")
            name = tasks.name(pid, tid) or thread.name
            stuck_threads.append(
                StuckThread(pid, tid, name, tasks.name(pid), wait, _place(thread.frames))
            )
        return Deadlock(
            "likely" if doubts else "certain",
            tuple(stuck_threads),
            tuple(doubts),
            tuple(behind(ring, found, waits, members)),
        )


def _may_be_stuck(pid: int) -> bool:
    """Whether all threads of a process sleep in calls in which they may wait for others."""
    threads = tasks.tids(pid)
    if pid == os.getpid() or not threads:
        return False
    sleeps = [tasks.sleep(pid, tid) for tid in threads]
    # Nothing is known of one that may not be looked at, and that is found when it is tried.
    return all(one is None or one.number in _HELD for one in sleeps) and any(sleeps)


def _place(frames: Sequence[StackFrame]) -> StackFrame | None:
    """Where in the program a thread waits."""
    own = [frame for frame in frames if frame.function and not is_c_library(frame.module)]
    named = (frame for frame in own if not _WAITERS.match(frame.function or ""))
    found = next(named, own[0] if own else None)
    if found is not None and _INTERPRETER.match(found.module or ""):
        # The program is the one that is interpreted.
        return next((frame for frame in frames if frame.language == "python"), found)
    return found
