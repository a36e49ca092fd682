"""Watch where the threads of a process spend their time. Nothing is put into the process.

The threads that run are seen by a clock of the kernel's, many times a second, or else stopped for
some ten microseconds; those that sleep are not touched. The kernel counts for how long each thread
runs and waits for a processor: so only how that time is divided among places is a matter of
samples.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from weft import _native
from weft.errors import NoSuchProcess, TargetGone, WeftError
from weft.model.program import Module
from weft.model.sampled import HeldWait, Lock, PlaceTime, SampledTime, Stay, ThreadTime
from weft.model.stacks import StackFrame
from weft.model.thread_stacks import SystemCall, ThreadStack
from weft.model.waits import Holder, Wait
from weft.program import tasks
from weft.program.descriptors import Ends
from weft.program.frames import Names
from weft.program.live_modules import live_modules
from weft.program.python_frames import find_python, mixed
from weft.program.stacks import cut_short, end_of_go
from weft.program.system_calls import name_of
from weft.program.waits import Waits

__all__ = ["ThreadSampler"]

_RATE = 99.0
_BUDGET = 0.01
_LAST_MOMENT = 0.02
_FRESH = 1.0
"""For how many seconds what is known of modules and descriptors is believed."""
_MOST_WAITS = 200
"""How many waits are looked into in that time, beside those of places that are new."""
_MOST_LOCKS = 16
"""Of how many locks the holders are looked for at a look."""
_UNSEEN = 0.02
"""For which share of the time watched threads may have run that were not seen, unsaid."""
_MOST_KEPT = 1_000_000
"""For how many samples it is kept when they were."""
_NANO = 1e-9
_SLACK = 0.001
"""By how many seconds a wait may be longer than the time it was in: both are not read at once."""

_Call: TypeAlias = "tuple[int, tuple[int, ...]] | None"
_State: TypeAlias = Literal["awake", "ready", "asleep"]
"""What a thread was found to do: to run; to wait for a processor, in a system call that it was
woken from or that gave its processor away; to sleep. One that waits and is in no call was taken off
its processor wherever it ran, so where it is found is where it runs."""
_Spot: TypeAlias = "tuple[int, _State, _Call]"
"""The number of a stack, what the thread did there, and the system call it was in."""


@dataclass(slots=True)
class _Thread:
    name: str
    since: float
    ran: int = 0
    """Nanoseconds, before it was watched."""
    waited: int = 0
    ran_until: int = 0
    waited_until: int = 0
    until: float = 0.0
    spot: _Spot | None = None
    """Where it sleeps, and has since the look of this number."""
    since_look: int = 0
    ran_at: tuple[int, _Spot] | None = None
    """The look at which it was last found awake, and where."""
    found: Counter[_Spot] = field(default_factory=Counter)
    stood_still: float = 0.0
    """Seconds: that it did not run then is weft's doing."""
    last: tuple[int, int] = (0, 0)
    """Nanoseconds that it had run and waited for a processor, when these were last seen to grow."""
    grew: float = 0.0
    """When that was."""
    is_ready: bool = False
    """Whether it was then, or has been since, found awake."""
    foreign: float = 0.0
    """Seconds of its waits that belong to the time before it was watched."""
    sleeps: int | None = None
    """How often it had given up its processor itself; nothing if that is not known."""
    stays: list[tuple[int, int, _Spot]] = field(default_factory=list)
    """From which look to which it was found where, if that is kept."""

    def see_times(self, ran: int, waited: int, now: float, *, is_awake: bool) -> None:
        """Take note of its times. A wait counts for the kernel when it is over, and then all of it.

        So one that is longer than the time since its times last grew began before that, and one
        that is under way has not been counted.
        """
        self.is_ready = is_awake
        grown = (ran - self.last[0]) * _NANO, (waited - self.last[1]) * _NANO
        if not any(grown):
            return
        excess = grown[1] - max(now - self.grew - grown[0], 0.0)
        self.foreign += excess if excess > _SLACK else 0.0
        self.last, self.grew = (ran, waited), now

    def runnable(
        self, running: float, seconds: float, gap: float, sleeps: Callable[[], int | None]
    ) -> float:
        """For how long it was ready to run and had no processor, of so many seconds.

        ``gap`` is how far apart looks were at most: when a wait has begun that is under way is not
        known any better. ``sleeps`` says how often it has given up its processor itself until now:
        one that has not since it is watched was never blocked.
        """
        counted = (self.waited_until - self.waited) * _NANO - self.foreign
        under_way = max(self.until - self.grew, 0.0) if self.is_ready else 0.0
        found = max(counted + under_way, 0.0)
        rest = max(seconds - running, 0.0)
        if rest < found or any(state == "asleep" for _, state, _ in self.found) or self.spot:
            return min(rest, found)
        is_awake = rest - found < 2 * gap or (self.sleeps is not None and self.sleeps == sleeps())
        return rest if is_awake else found

    def settle(self, look: int, *, keep: bool) -> None:
        """Count the looks before this one at which it slept where it did."""
        if self.spot is not None and look > self.since_look:
            self.found[self.spot] += look - self.since_look
            if keep:
                self.stays.append((self.since_look, look, self.spot))
        self.spot = None


@dataclass(slots=True)
class _WaitSeen:
    wait: Wait | None
    holders: Counter[Holder] = field(default_factory=Counter)


class _Crowding:
    """How much of what weft works is time that a program lacks."""

    def __init__(self) -> None:
        self._seen = time.monotonic(), tasks.idle_time()
        self._processors = len(os.sched_getaffinity(0))
        self.share = 1 / self._processors
        """The part of its work: none where a processor is idle. Where none is, all that run give
        the same part of theirs."""

    def see(self, now: float) -> None:
        """Look how long processors were idle since this was last seen."""
        (then, before), idle = self._seen, tasks.idle_time()
        # The kernel counts in ticks.
        if now - then < _FRESH / 2:
            return
        self._seen = now, idle
        free = min(max((idle - before) / (now - then), 0.0), 1.0)
        self.share = (1 - free) / self._processors


class ThreadSampler:
    """Looks at the threads of a process many times, and adds up where they were."""

    def __init__(
        self, pid: int, *, waits: bool = True, keep: bool = False, is_new: bool = False
    ) -> None:
        """``waits`` is whether to find out what blocked threads wait for.

        ``keep`` is whether to keep when they were found where, for a timeline. With ``is_new`` the
        process is held where it begins, may end soon, and is watched from :meth:`begin` on.
        """
        self.pid = pid
        self._keep = keep
        self._kept = 0
        """How many samples were kept with their times."""
        self._moments: list[int] = []
        self._with_waits = waits
        self._is_new = is_new
        # The first thread may have ended before the others.
        self._at = tasks.reachable(pid)
        self._modules: list[Module] = live_modules(self._at, may_end=is_new)
        self._mapped = _mapped(self._at)
        self._names = Names.now(self._at, self._modules)
        self._notes: list[str] = []
        self._native = _native.StackSampler(self._at, self._find_python())
        self._threads: dict[int, _Thread] = {}
        self._ended: list[tuple[int, _Thread]] = []
        self._stacks: dict[int, tuple[tuple[StackFrame, ...], str | None]] = {}
        self._waits: dict[tuple[int, _Call], _WaitSeen] = {}
        self._finder: Waits | None = None
        self._fresh_until = 0.0
        self._waits_left = _MOST_WAITS
        self._began = self._now = time.monotonic()
        """The moments at which it was begun to count, and of the last look."""
        self._command = tasks.name(pid)
        self._together: Counter[tuple[int, ...]] = Counter()
        self._held: Counter[tuple[int, _Spot, Lock, Holder | None, _Spot | None]] = Counter()
        self._queues: defaultdict[Lock, Counter[int]] = defaultdict(Counter)
        self._work = 0.0
        """For how many seconds weft itself has worked in looks."""
        self._taken = 0.0
        """For how many seconds it has worked in all, as far as others lacked the processor."""
        self._crowding = _Crowding()
        self._gap = 0.0
        """How far apart two looks were at most, in seconds."""
        self._shortened = 0
        """How many system calls may have been cut short."""
        self._stopped = 0
        """At how many looks the process was stopped, by a signal or a debugger."""
        self._all_ran = self._all_ran_until = 0
        """Nanoseconds on processors until it was watched, and until now, also of threads that have
        ended."""
        self.looks = 0
        self.stood_still = 0.0
        self.look()
        # To read names may take longer than all looks: so that is done before they count.
        self._name_all()
        self.look()
        self._count_from(self._now)

    # --- Looking ------------------------------------------------------------------------------

    def watch(
        self,
        seconds: float,
        *,
        rate: float = _RATE,
        budget: float = _BUDGET,
        counts_work: bool = False,
        every: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Look for some seconds; return whether the process is still there.

        ``rate`` is how often a second at most, ``budget`` the share of the time for which its
        threads may stand still; with ``counts_work`` all that weft works meanwhile may take no more
        than as much, where no processor is free. ``every`` is called after each look and says
        whether to go on.
        """
        due = time.monotonic()
        end = due + seconds
        worked = time.thread_time()
        while True:
            try:
                # The last moment is waited for where it is not missed.
                time.sleep(max(due - time.monotonic() - _LAST_MOMENT, 0.0))
                before = max(due, time.monotonic())
                self.look(max(due - time.monotonic(), 0.0))
            except (NoSuchProcess, TargetGone):
                self._end()
                return False
            goes_on = every()
            worked, work = time.thread_time(), time.thread_time() - worked
            self._taken += work * self._crowding.share
            if not goes_on or before >= end:
                return True
            # On the average: what is seen for the first time takes longer.
            work = self._taken if counts_work else self._work
            cost = max(self.stood_still, work) / self.looks
            interval = max(1 / rate, cost / budget)
            # Never in step with what the program does at intervals.
            due = min(before + interval * random.uniform(0.5, 1.5), end)

    def look(self, rest: float = 0.0) -> None:
        """Look once, after a rest."""
        now = time.monotonic()
        if now > self._fresh_until:
            self._refresh(now)
            now = time.monotonic()
        # By another than weft: that lets go of threads at the end of a look.
        self._stopped += tasks.state(self.pid, self.pid) in ("T", "t")
        with suppress(OSError):
            # Before those of its threads: what it has run since then is in one of these.
            self._all_ran_until = tasks.processor_time(self.pid)
        work = time.thread_time()
        moment, rows, ended, pause, shortened, is_replaced = self._native.look(rest)
        # Weft's own work is done on another processor where there is one.
        self._work += (time.thread_time() - work) / 2
        # When the times of threads were read: on a busy machine the rest of a look may take long.
        seen_before, self._now = self._now, moment
        self._gap = max(self._gap, self._now - seen_before)
        self.looks += 1
        self.stood_still += pause
        self._shortened += shortened
        if is_replaced:
            self._see_program()
        for tid, ran, waited in ended:
            if (thread := self._threads.pop(tid, None)) is not None:
                thread.settle(self.looks, keep=self._keep)
                thread.see_times(ran, waited, seen_before, is_awake=False)
                # What it did since then, and when it ended, nobody knows.
                thread.ran_until, thread.waited_until = ran, waited
                thread.until = seen_before
                self._ended.append((tid, thread))
        self._together[tuple(sorted(row[0] for row in rows if not row[1]))] += 1
        for tid, is_asleep, is_ready, stack, call, ran, waited in rows:
            thread = self._threads.get(tid)
            if thread is None:
                # It has done all its work since the last look.
                since = max(seen_before, min(tasks.started(self.pid, tid), moment))
                thread = self._threads[tid] = _Thread(tasks.name(self.pid, tid), since, grew=since)
            thread.see_times(ran, waited, self._now, is_awake=not is_asleep)
            thread.settle(self.looks, keep=self._keep)
            at: _Call = None if call is None else (call[0], tuple(call[1]))
            if is_asleep:
                spot: _Spot = stack, "asleep", at
                thread.spot, thread.since_look = spot, self.looks
                if self._with_waits:
                    self._see_wait(tid, thread, spot)
            else:
                thread.stood_still += pause
                # Most of what its call was called with says where it was blocked, not where it ran.
                is_elsewhere = at is not None or not self._is_seen(stack)
                state: _State = "ready" if is_ready and is_elsewhere else "awake"
                ran_at: _Spot = stack, state, at and (at[0], at[1][:1])
                thread.found[ran_at] += 1
                thread.ran_at = self.looks, ran_at
                if self._keep:
                    thread.stays.append((self.looks, self.looks + 1, ran_at))
        if self._with_waits:
            work = time.thread_time()
            self._see_holders()
            self._work += (time.thread_time() - work) / 2
        if self._keep:
            self._keep_moment(moment)

    def _see_program(self) -> None:
        """Begin with another program, which the process has become.

        What was found before has to be named by what was there then.
        """
        self._name_all()
        for thread in self._threads.values():
            thread.settle(self.looks, keep=self._keep)
        self._modules = live_modules(self._at, may_end=True)
        self._mapped = _mapped(self._at)
        self._names = Names.now(self._at, self._modules)
        self._waits_left = _MOST_WAITS
        self._finder = None
        self._native.expect(self._find_python())

    def _find_python(self) -> _native.PythonLayout | None:
        python = find_python(self._at, self._modules)
        if python is not None and python.problem is not None:
            self._notes.append(python.problem)
        return None if python is None else python.layout

    def _keep_moment(self, moment: float) -> None:
        """Keep when the last look was, as long as there is room for its samples."""
        if len(self._moments) == self.looks - 1:
            self._kept += len(self._threads)
            if self._kept <= _MOST_KEPT:
                self._moments.append(round(moment / _NANO))

    def _end(self) -> None:
        """Count what has been done since the last look by threads that the kernel still knows.

        That is the first thread of a process that nobody has waited for yet.
        """
        for tid, thread in list(self._threads.items()):
            words = tasks.read(f"/proc/{self.pid}/task/{tid}/schedstat").split()
            if len(words) >= 2:
                self._now = time.monotonic()
                thread.settle(self.looks + 1, keep=self._keep)
                thread.ran_until, thread.waited_until = int(words[0]), int(words[1])
                thread.until = self._now
                thread.see_times(thread.ran_until, thread.waited_until, self._now, is_awake=False)
                self._ended.append((tid, self._threads.pop(tid)))

    def begin(self) -> None:
        """Count from now on: until now the process was held, and it still is."""
        self._count_from(time.monotonic())

    def _count_from(self, moment: float) -> None:
        self._began = self._now = moment
        self._work = self._taken = self.stood_still = self._gap = 0.0
        self._stopped = self._shortened = 0
        with suppress(OSError):
            self._all_ran = tasks.processor_time(self.pid)
        times = {tid: (ran, waited) for tid, ran, waited in self._native.times()}
        for tid, thread in self._threads.items():
            thread.since, thread.stood_still = self._now, 0.0
            thread.ran, thread.waited = thread.last = times.get(tid, (0, 0))
            thread.grew, thread.foreign = self._now, 0.0
            # Of one that sleeps it is known that it does.
            thread.sleeps = tasks.sleeps(self.pid, tid) if thread.spot is None else None
        self.looks = self._kept = 0
        for counted in (self._moments, self._ended, self._together, self._held, self._queues):
            counted.clear()
        for thread in self._threads.values():
            thread.found.clear()
            thread.stays.clear()
            thread.since_look = 1

    def _refresh(self, now: float) -> None:
        self._fresh_until = now + _FRESH
        self._waits_left = _MOST_WAITS
        self._crowding.see(now)
        mapped = _mapped(self._at)
        if mapped != self._mapped:
            # What was found before has to be named by what was there then.
            self._name_all()
            self._mapped = mapped
            self._modules = live_modules(self._at, may_end=self._is_new)
            self._names.see(self._at, self._modules)
        self._finder = None

    @property
    def modules(self) -> Sequence[Module]:
        """The modules of the process, as they were when it was last looked for them."""
        return self._modules

    def spins(self, address: int) -> bool:
        """Whether the code at an address is a loop that only waits for another thread."""
        return self._native.spins(address)

    # --- What was seen ------------------------------------------------------------------------

    def _stack(self, number: int) -> tuple[tuple[StackFrame, ...], str | None]:
        if number not in self._stacks:
            found = self._native.stack(number)
            if found is None:
                return (), None
            rows, cut, python, is_python_cut, codes = found
            frames = [frame for row in rows for frame in self._names.frames(*row)]
            if python:
                frames, _ = mixed(frames, python, codes, is_whole=cut is None)
                if is_python_cut and cut is None:
                    cut = "there are more frames of Python than were read"
            cut = end_of_go(frames, cut)
            self._stacks[number] = tuple(frames), cut
        return self._stacks[number]

    def _is_seen(self, number: int) -> bool:
        """Whether anything is known of a stack: nothing is of a thread that did not stop."""
        found = self._native.stack(number)
        return found is not None and bool(found[0])

    def _name_all(self) -> None:
        for thread in [*self._threads.values(), *(thread for _, thread in self._ended)]:
            spots = [*thread.found, *([] if thread.spot is None else [thread.spot])]
            for number, *_ in spots:
                self._stack(number)

    def _see_wait(self, tid: int, thread: _Thread, spot: _Spot) -> None:
        stack, _, call = spot
        key = stack, call
        seen = self._waits.get(key)
        if seen is not None and (self._waits_left <= 0 or seen.wait is not None):
            return
        self._waits_left -= 1
        wait = self._find_wait(tid, thread, spot)
        if wait is not None and tasks.state(self.pid, tid) in ("T", "t"):
            # What it waits for when it goes on is another matter.
            return
        seen = self._waits.setdefault(key, _WaitSeen(wait))
        seen.wait = wait
        if wait is not None and Lock.of(wait) is None:
            seen.holders.update(wait.holders)

    def _find_wait(self, tid: int, thread: _Thread, spot: _Spot) -> Wait | None:
        """What a thread waits for now, and who holds that."""
        stack, _, call = spot
        if self._finder is None:
            self._finder = Waits(self.pid, self._modules, Ends())
        known = None if call is None else SystemCall(call[0], name_of(call[0]), call[1])
        # To read names takes long, and the process may end meanwhile.
        is_told_by_frames = known is not None and known.name.startswith(("futex", "restart"))
        frames, cut = self._stack(stack) if is_told_by_frames else ((), None)
        state = tasks.state(self.pid, tid)
        if call is None and state != "D":
            # It woke before its call could be read.
            return None
        with suppress(WeftError):
            shown = ThreadStack(tid, thread.name, state, frames, cut, known)
            return self._finder.of([shown])[0]
        return None

    def _see_holders(self) -> None:
        """Find out who holds the locks that threads wait for now, and where these are."""
        waiting: dict[Lock, list[tuple[int, _Thread, _Spot, _WaitSeen]]] = {}
        for tid, thread in self._threads.items():
            spot = thread.spot
            seen = None if spot is None else self._waits.get((spot[0], spot[2]))
            if spot is not None and seen is not None and (lock := Lock.of(seen.wait)) is not None:
                waiting.setdefault(lock, []).append((tid, thread, spot, seen))
        ranked = sorted(waiting.items(), key=lambda entry: -len(entry[1]))
        for number, (lock, waiters) in enumerate(ranked):
            self._queues[lock][len(waiters)] += 1
            # One that waits tells of all: a lock has the same holder for all of them.
            tid, thread, spot, _ = waiters[0]
            wait = self._find_wait(tid, thread, spot) if number < _MOST_LOCKS else None
            holders = wait.holders if wait is not None and Lock.of(wait) == lock else ()
            for tid, _, spot, seen in waiters:
                others = [one for one in holders if one.tid != tid]
                seen.holders.update(others)
                holder = others[0] if len(others) == 1 else None
                self._held[tid, spot, lock, holder, self._spot_now(holder)] += 1

    def _spot_now(self, holder: Holder | None) -> _Spot | None:
        """Where a thread was at this look."""
        if holder is None or holder.pid != self.pid or holder.tid is None:
            return None
        thread = self._threads.get(holder.tid)
        if thread is None or thread.spot is not None:
            return None if thread is None else thread.spot
        is_now = thread.ran_at is not None and thread.ran_at[0] == self.looks
        return thread.ran_at[1] if thread.ran_at is not None and is_now else None

    # --- What comes of it ---------------------------------------------------------------------

    def result(self) -> SampledTime:
        """Return where the threads were until now."""
        for tid, ran, waited in self._native.times():
            if (thread := self._threads.get(tid)) is not None:
                thread.ran_until, thread.waited_until, thread.until = ran, waited, self._now
        threads: list[ThreadTime] = []
        places: list[PlaceTime] = []
        stays: list[Stay] = []
        placed: dict[tuple[int, _Spot], PlaceTime] = {}
        for tid, thread in [*self._ended, *self._threads.items()]:
            found = Counter(thread.found)
            if thread.spot is not None:
                found[thread.spot] += self.looks + 1 - thread.since_look
            seconds = thread.until - thread.since - thread.stood_still
            running = (thread.ran_until - thread.ran) * _NANO
            times = ThreadTime(
                tid,
                tasks.name(self.pid, tid) or thread.name,
                seconds,
                running,
                thread.runnable(running, seconds, self._gap, partial(tasks.sleeps, self.pid, tid)),
            )
            threads.append(times)
            found_there = self._places(times, found)
            places += found_there
            # What was not seen stands behind.
            by_spot = dict(zip(found, found_there, strict=False))
            placed |= {(tid, spot): place for spot, place in by_spot.items()}
            if self._keep:
                stays += self._stays(thread, by_spot)
        notes = [*self._notes, *self._losses(threads)]
        if self._keep and len(self._moments) < self.looks:
            kept = f"of the first {len(self._moments):,} of {self.looks:,} looks"
            notes.append(f"the timeline ends early: only the samples {kept} were kept for it")
        return SampledTime(
            self.pid,
            self._command,
            self._now - self._began,
            self.looks,
            self.stood_still,
            tuple(sorted(threads, key=lambda one: one.tid)),
            tuple(places),
            tuple(self._together.most_common()),
            tuple(notes),
            tuple(self._moments),
            tuple(stays),
            tuple(self._held_waits(placed)),
            tuple((lock, tuple(sorted(sizes.items()))) for lock, sizes in self._queues.items()),
        )

    def _losses(self, threads: Sequence[ThreadTime]) -> Iterator[str]:
        """Say what was not seen, and what is not the program's doing."""
        if self._shortened:
            yield cut_short(self._shortened)
        if self._stopped:
            share = f"at {self._stopped:,} of {self.looks:,} looks"
            yield f"the process was stopped {share}, by a signal or a debugger; it shows as waiting"
        ended = len(self._ended)
        if ended and self._threads:
            what = f"{ended:,} threads" if ended > 1 else "one thread"
            yield f"{what} ended meanwhile; what they did after the last look at them is not known"
        ran = (self._all_ran_until - self._all_ran) * _NANO
        missing = ran - sum(one.running for one in threads)
        if missing > _UNSEEN * (self._now - self._began) and self._threads:
            yield (
                f"threads have run for {missing:.3g} s that were not seen: they came and went "
                "between two looks, or ended; what they waited for is not in this"
            )

    def _held_waits(self, placed: dict[tuple[int, _Spot], PlaceTime]) -> Iterator[HeldWait]:
        for (tid, spot, lock, holder, holder_spot), count in self._held.most_common():
            # The id of a thread that has ended may be another's by now.
            if (place := placed.get((tid, spot))) is None:
                continue
            where = None
            if holder is not None and holder.tid is not None and holder_spot is not None:
                where = placed.get((holder.tid, holder_spot))
            yield HeldWait(place, lock, holder, where, count)

    def _stays(self, thread: _Thread, places: dict[_Spot, PlaceTime]) -> Iterator[Stay]:
        rows = list(thread.stays)
        if thread.spot is not None:
            rows.append((thread.since_look, self.looks + 1, thread.spot))
        for first, end, spot in rows:
            # Looks are counted from 1 on.
            last = min(end - 1, len(self._moments))
            if first <= last:
                yield Stay(first - 1, last, places[spot])

    def _places(self, times: ThreadTime, found: Counter[_Spot]) -> list[PlaceTime]:
        counts: Counter[_State] = Counter()
        for (_, state, _), count in found.items():
            counts[state] += count
        asleep, awake = counts["asleep"], counts["awake"]
        ready = awake + counts["ready"]
        places = []
        for (stack, state, call), count in found.items():
            frames, cut = self._stack(stack)
            is_asleep = state == "asleep"
            seen = self._waits.get((stack, call)) if is_asleep else None
            places.append(
                PlaceTime(
                    times.tid,
                    is_asleep,
                    frames,
                    cut,
                    None if call is None else name_of(call[0]),
                    None if call is None or is_asleep else call[1][0] & 0xFFFFFFFF,
                    None if seen is None else seen.wait,
                    () if seen is None else tuple(seen.holders.most_common()),
                    count,
                    times.running * count / awake if state == "awake" else 0.0,
                    0.0 if is_asleep else times.runnable * count / ready,
                    times.blocked * count / asleep if is_asleep else 0.0,
                )
            )
        unseen = (0.0 if awake else times.running, 0.0 if ready else times.runnable)
        if any(unseen):
            places.append(_unseen(times.tid, *unseen, 0.0))
        if not asleep and times.blocked > 0:
            places.append(_unseen(times.tid, 0.0, 0.0, times.blocked))
        return places


def _unseen(tid: int, running: float, runnable: float, blocked: float) -> PlaceTime:
    is_blocked = blocked > 0
    return PlaceTime(tid, is_blocked, (), None, None, None, None, (), 0, running, runnable, blocked)


def _mapped(pid: int) -> list[tuple[str, int, int]]:
    return [(one["file"], one["start"], one["bias"]) for one in _native.modules(pid)]
