"""The search: watch a program, test all hypotheses, and narrow down those that are confirmed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from weft.base.interrupts import Interrupted
from weft.errors import NoSuchProcess, TargetGone, WeftError
from weft.model.answers import Answer, Answers, Evidence, Tested
from weft.model.sampled import SampledTime
from weft.model.waits import Descriptor
from weft.program import tasks
from weft.program.descriptors import flags, info
from weft.program.goroutines import Goroutines
from weft.program.outgoing import Outgoing
from weft.program.sampler import ThreadSampler
from weft.program.sockets import Sockets
from weft.why import hypotheses as files
from weft.why.focus import Part, narrow, own_frame
from weft.why.hypotheses import Hypothesis
from weft.why.measures import Counters, Faults, Idle, faults, imbalance, processors
from weft.why.spots import Spot, spots, total

__all__ = ["NOTHING", "why"]

NOTHING = "none"
"""What the answer is called if nothing stands out."""

_LOCKS = "lock_wait"
_WITHOUT_LOCKS = " without the waiting for locks"
_STEP = 0.5
_ASK = 0.1
"""How often to look at connections, in seconds."""
_BUSY = 0.3
"""Up to what share of the time a program is idle, whatever it does then."""
_BUSY_TOGETHER = 0.6
"""The same of all its threads together."""
_STAYS = 0.5
"""For how long a child has to be there, in seconds, to be watched."""
_FIRST = 1.0
"""For how many seconds a process is watched before its children are, if it does nothing itself."""
_CONFIDENCE = 1.96
_NONBLOCKING = 0o4000
_PARTS = 3
"""How many places of each answer are named."""
_MOST = 0.5
"""From what share on a place has most of the time."""
_SINGLE = frozenset({"lock", "descriptor", "peer"})
"""Whose places are named alone: for functions the text says how much of the time is there."""
_MOST_ANSWERS = 4
_OTHERS = 0.7
"""The weight of waiting for processors that others have: that changes from hour to hour."""
_INDEPENDENT = 4
"""How many threads are taken to be found independently at most."""


@dataclass(frozen=True, slots=True)
class _Judged:
    hypothesis: Hypothesis
    claimed: list[Spot]
    share: float
    low: float
    high: float
    is_confirmed: bool
    weight: float = 1.0
    """By how much it is put before others, beside what the hypothesis says."""
    basis: str = ""
    """Of what part of the active time the share is, if not of all."""

    @property
    def rank(self) -> float:
        # What is behind a lock comes after it.
        echo = 0.5 if self.basis else 1.0
        return self.share / self.hypothesis.threshold * self.hypothesis.weight * self.weight * echo

    @property
    def tested(self) -> Tested:
        one = self.hypothesis
        return Tested(
            one.name, one.title, self.share, self.low, self.high, one.threshold, self.is_confirmed
        )


def why(
    pid: int,
    *,
    seconds: float = 10.0,
    budget: float = 0.02,
    folders: Sequence[Path] = (),
    progress: Callable[[Sequence[Tested], float], None] = lambda _tested, _share: None,
    begin: Callable[[], object] | None = None,
) -> Answers:
    """Find out why a process is slow.

    It is watched from outside, for ``seconds``; ``budget`` is the share of its time that this may
    take. ``folders`` have further hypotheses. ``progress`` is told how they do, and what share of
    the time has passed. ``begin`` is called when all is ready: it lets a program go that was
    started and is held where it begins.
    """
    hypotheses = files.load(folders)
    search = _Search(pid, hypotheses, budget)
    if begin is not None:
        search.begin()
        begin()
    began = time.monotonic()
    notes: list[str] = []
    # Who ends it early wants to know what was seen so far.
    with suppress(Interrupted):
        while (left := began + seconds - time.monotonic()) > 0:
            if not search.step(min(_STEP, left)):
                notes.append(f"the process ended after {time.monotonic() - began:.1f} s")
                break
            judged = search.judge()
            passed = time.monotonic() - began
            if passed > _FIRST and search.pid == pid and search.is_idle(with_children=True):
                child = _busiest_child(pid)
                # One that has ended meanwhile is not what the time goes into.
                with suppress(NoSuchProcess, TargetGone):
                    if child is not None:
                        search = _Search(child, hypotheses, budget)
                        notes.append(
                            f"process {pid} is idle; its busiest child {child} was watched"
                        )
                        began = time.monotonic()
            progress([one.tested for one in judged], passed / seconds)
    return search.answers(notes)


class _Search:
    """The search in one process."""

    def __init__(self, pid: int, hypotheses: Sequence[Hypothesis], budget: float) -> None:
        self.pid = pid
        self._hypotheses = hypotheses
        # The other half is for what a stop does to caches and to other threads.
        self._budget = budget / 2
        self._sampler = ThreadSampler(pid)
        self._before = Counters.now(pid)
        self._after = self._before
        self._outgoing = Outgoing(pid)
        self._goroutines = Goroutines(pid, self._sampler.modules)
        self._asked = 0.0
        self._found: SampledTime | None = None
        self._spots: list[Spot] = []
        self._claimed: list[Spot] = []
        """Those that speak for any hypothesis."""
        self._faults = Faults(0.0, 0.0)
        self._idle: Idle | None = None
        self._spinning: dict[int, bool] = {}

    def begin(self) -> None:
        """Count from now on: until now the process was held, and it still is."""
        self._before = Counters.now(self.pid)
        self._sampler.begin()

    def step(self, seconds: float) -> bool:
        """Watch for a while; return whether the process is still there."""

        def every() -> bool:
            now = time.monotonic()
            if now - self._asked > _ASK:
                self._asked = now
                self._outgoing.look()
                if self._goroutines.are_known:
                    self._goroutines.look()
            return True

        is_there = self._sampler.watch(seconds, budget=self._budget, counts_work=True, every=every)
        with suppress(NoSuchProcess, TargetGone, OSError):
            self._after = Counters.now(self.pid) or self._after
        return is_there

    # --- What was seen ------------------------------------------------------------------------

    def judge(self) -> list[_Judged]:
        """Test all hypotheses with what was seen so far; the best first."""
        found = self._found = self._sampler.result()
        sockets = Sockets(self.pid)

        def is_served(one: Descriptor) -> bool:
            known = None if one.inode is None else sockets.find(one.inode)
            return known is not None and (known.listens or sockets.is_served(known))

        self._spots = spots(found, self._spins, is_served, self._is_nonblocking)
        self._spots += self._asking(found)
        self._spots += [
            Spot(
                "blocked",
                count * found.seconds,
                round(count * found.looks),
                self.pid,
                "goroutine",
                frames,
                tuple(frame.function or "" for frame in frames),
            )
            for frames, count in self._goroutines.result()
        ]
        claims: dict[str, list[Spot]] = {one.name: [] for one in self._hypotheses}
        for spot in self._spots:
            owner = next((one for one in self._hypotheses if one.claims(spot)), None)
            if owner is not None:
                claims[owner.name].append(spot)
        self._claimed = [one for some in claims.values() for one in some]
        active, is_idle = max(total(self._claimed), 1e-9), self.is_idle()
        in_calls = total([one for one in self._spots if one.state == "running" and one.kernel])
        if self._before is not None and self._after is not None:
            self._faults = faults(self._before, self._after, in_calls)
        self._idle = imbalance(found)
        # Threads are found each on its own, but what several of them do is not independent.
        count = found.looks * min(max(round(active / max(found.seconds, 1e-9)), 1), _INDEPENDENT)
        locked = min(total(claims.get(_LOCKS, [])) / active, 0.9)
        judged = []
        for one in self._hypotheses:
            basis = ""
            share = total(claims[one.name]) / active
            claimed = claims[one.name]
            if one.measure == "page_faults":
                share += self._faults.seconds / active
                claimed = claimed + [
                    spot for spot in self._spots if spot.state == "running" and not spot.kernel
                ]
            elif one.measure == "run_queue":
                # Beside all others: it is known what these threads would do.
                claimed = [spot for spot in self._spots if spot.state == "runnable"]
                share = total(claimed) / active
            elif one.measure == "imbalance":
                share = self._idle.share if self._idle else 0.0
                claimed = [
                    spot
                    for spot in self._spots
                    if self._idle and spot.tid == self._idle.busy.tid and spot.state == "running"
                ]
            elif one.name == "cpu":
                share = max(share - self._faults.seconds / active, 0.0)
            low, high = _interval(share, count)
            # Who waits for a lock waits for what its holder does: that is not to hide the latter.
            is_echo = not one.measure and one.name != _LOCKS
            if is_echo and low <= one.threshold and locked > 0:
                alone = _interval(share / (1 - locked), count)
                if alone[0] > one.threshold and share > one.threshold / 2:
                    share, (low, high), basis = share / (1 - locked), alone, _WITHOUT_LOCKS
            is_confirmed = low > one.threshold and not is_idle
            weight = _OTHERS if one.measure == "run_queue" and not self._is_crowded(found) else 1.0
            share = min(share, 1.0)
            judged.append(_Judged(one, claimed, share, low, high, is_confirmed, weight, basis))
        return sorted(judged, key=lambda one: (-one.is_confirmed, -one.rank))

    def _is_crowded(self, found: SampledTime) -> bool:
        """Whether its own threads are more than the processors that it may use."""
        return _wanting(found) > processors(self.pid)

    def _asking(self, found: SampledTime) -> list[Spot]:
        """The time in which it waited for answers on connections that several threads may read."""
        share, peers = self._outgoing.result()
        direct = total([one for one in self._spots if one.state == "blocked" and one.asks])
        # While it has something else to do, it does not wait.
        rest = found.seconds - found.running - found.runnable
        seconds = min(share * found.seconds, rest) - direct
        if not peers or seconds <= 0:
            return []
        whole = sum(value for _, value in peers)
        return [
            Spot(
                "blocked",
                seconds * value / whole,
                round(value * found.looks),
                self.pid,
                found.command,
                (),
                (),
                asks=True,
                peer=peer,
            )
            for peer, value in peers
        ]

    def _spins(self, address: int) -> bool:
        if address not in self._spinning:
            self._spinning[address] = self._sampler.spins(address)
        return self._spinning[address]

    def _is_nonblocking(self, number: int) -> bool:
        return bool((flags(info(self.pid, self.pid, number)) or 0) & _NONBLOCKING)

    def is_idle(self, *, with_children: bool = False) -> bool:
        """Whether the program does, and waits for, hardly anything; but for its children."""
        busy, together = self._busy(with_children)
        return busy < _BUSY and together < _BUSY_TOGETHER

    def _busy(self, with_children: bool = False) -> tuple[float, float]:
        if self._found is None or not self._found.seconds:
            return 0.0, 0.0
        by_thread: dict[int, float] = {}
        for spot in self._claimed:
            if not with_children or spot.wait_kind != "child":
                by_thread[spot.tid] = by_thread.get(spot.tid, 0.0) + spot.seconds
        shares = [value / self._found.seconds for value in by_thread.values()]
        return min(max(shares, default=0.0), 1.0), sum(shares)

    # --- What comes of it ---------------------------------------------------------------------

    def answers(self, notes: Sequence[str]) -> Answers:
        """Return what was found, the most important first."""
        judged = self.judge()
        found = self._found
        assert found is not None
        confirmed = [self._answer(one, found) for one in judged if one.is_confirmed]
        return Answers(
            self.pid,
            found.command,
            found.seconds,
            self._busy()[0],
            tuple(confirmed[:_MOST_ANSWERS]) or (self._nothing(judged, found),),
            tuple(one.tested for one in judged),
            (*notes, *self._outgoing.notes, *self._goroutines.notes, *found.notes),
        )

    def _answer(self, judged: _Judged, found: SampledTime) -> Answer:
        one = judged.hypothesis
        # Who is busy is known: what matters is with what.
        axis = replace(one, focus="function") if one.measure == "imbalance" else one
        parts = narrow(axis, judged.claimed)
        focus, part = parts[0] if parts else (f"process {self.pid}", 1.0)
        if one.measure == "imbalance" and self._idle is not None:
            busy = self._idle.busy
            function = f" in {parts[0][0]}" if parts else ""
            focus, part = f"thread {busy.tid} '{busy.name}'{function}", 1.0
        text = one.text.format(
            share=f"{judged.share:.0%}",
            focus=focus if part >= _MOST or one.focus not in _SINGLE else _first_of(parts),
            most="most" if part >= _MOST else f"{part:.0%}",
            rate=f"{self._faults.rate:,.0f}",
        )
        command = one.command.format(pid=self.pid)
        where = f"process {self.pid}"
        first = Evidence(
            f"{one.title}: {judged.share:.0%} of its active time{judged.basis} "
            f"(between {judged.low:.0%} and {judged.high:.0%}; {one.threshold:.0%} would do)",
            *(one.title, where, judged.share, "share", found.seconds),
            *(judged.low, judged.high, one.threshold, command),
        )
        rest = [
            Evidence(f"{share:.0%} of that: {name}", one.title, name, share, "share", found.seconds)
            for name, share in parts[:_PARTS]
        ]
        stack = self._deepest(judged)
        return Answer(
            one.name,
            focus,
            judged.share,
            part,
            f"{text} {one.advice}".strip(),
            (first, *rest, *stack, *self._more(one, found)),
        )

    def _deepest(self, judged: _Judged) -> list[Evidence]:
        """The stack with most of the time."""
        shown = [spot for spot in judged.claimed if spot.frames]
        if not shown:
            return []
        best = max(shown, key=lambda spot: spot.seconds)
        share = best.seconds / max(total(judged.claimed), 1e-9)
        names = [name or "?" for name in reversed(best.names)]
        text = ";".join(names[-12:])
        return [
            Evidence(
                f"most often in thread {best.tid} '{best.thread}', at {text}",
                *("stack", text, share, "share", best.seconds),
            )
        ]

    def _more(self, one: Hypothesis, found: SampledTime) -> list[Evidence]:
        where = f"process {self.pid}"
        if one.measure == "page_faults":
            rate = self._faults.rate
            text = f"{rate:,.0f} page faults a second"
            return [Evidence(text, "page_faults", where, rate, "1/s", found.seconds)]
        if one.measure == "imbalance" and self._idle is not None:
            rows = [self._idle.busy, *self._idle.others[:4]]
            return [
                Evidence(
                    f"thread {thread.tid} '{thread.name}' runs "
                    f"{thread.running / max(thread.seconds, 1e-9):.0%} of the time",
                    *("running", f"thread {thread.tid}", thread.running, "s", thread.seconds),
                )
                for thread in rows
            ]
        if one.name == "run_queue":
            got = found.running / found.seconds
            text = f"{_wanting(found)} threads want to run; they got {got:.1f} processors"
            return [Evidence(text, "running", where, got, "processors", found.seconds)]
        return []

    def _nothing(self, judged: Sequence[_Judged], found: SampledTime) -> Answer:
        busy, _ = self._busy()
        shares = [
            Evidence(
                f"{one.hypothesis.title}: {one.share:.0%} of its active time",
                *(one.hypothesis.title, f"process {self.pid}", one.share, "share", found.seconds),
                *(one.low, one.high, one.hypothesis.threshold),
            )
            for one in sorted(judged, key=lambda one: -one.share)[:_PARTS]
        ]
        if busy < _BUSY:
            text = (
                f"Nothing stands out: its busiest thread does, or waits for, something in only "
                f"{busy:.0%} of the time. In the rest it sleeps: for work, a time, a condition, or "
                "what weft cannot tell from these."
            )
        else:
            text = "Nothing stands out: no single cause has a large share of its time."
        if {tasks.state(self.pid, thread.tid) for thread in found.threads} == {"T"}:
            text = f"Nothing stands out: it is stopped; `kill -CONT {self.pid}` lets it go on."
        whole = f"process {self.pid}"
        return Answer(NOTHING, whole, 1 - busy, 1.0, text, (*self._sleeps(), *shares))

    def _sleeps(self) -> list[Evidence]:
        """Where its threads sleep: what looks like waiting for work may be something else."""
        asleep = [spot for spot in self._spots if spot.state == "blocked"]
        whole = max(total(asleep), 1e-9)
        places: dict[str, float] = {}
        for spot in asleep:
            frame = own_frame(spot.frames, lambda _: False)
            name = "" if frame is None else frame.function or ""
            wait = "" if spot.wait is None else f" for {spot.wait.text}"
            text = f"sleeps in {name or spot.call or 'the kernel'}{wait}"
            places[text] = places.get(text, 0.0) + spot.seconds
        first = sorted(places.items(), key=lambda row: -row[1])[:_PARTS]
        return [
            Evidence(
                f"{seconds / whole:.0%} of the rest: {text}",
                *("blocked", text, seconds, "s", seconds),
            )
            for text, seconds in first
        ]


def _first_of(parts: Sequence[Part]) -> str:
    """The first of several that share the time, none of which has most of it."""
    focus, share = parts[0]
    return f"{len(parts)} things, most often {focus} ({share:.0%} of that)"


def _wanting(found: SampledTime) -> int:
    """How many threads want to run, for much of the time."""
    return sum(
        thread.running + thread.runnable > _BUSY * thread.seconds for thread in found.threads
    )


def _interval(share: float, count: int) -> tuple[float, float]:
    """Between what values a share lies with 95% confidence that was found by so many looks."""
    if count <= 0:
        return 0.0, 1.0
    share = min(max(share, 0.0), 1.0)
    square = _CONFIDENCE**2 / count
    middle = (share + square / 2) / (1 + square)
    width = (
        _CONFIDENCE / (1 + square) * math.sqrt(share * (1 - share) / count + square / (4 * count))
    )
    return max(middle - width, 0.0), min(middle + width, 1.0)


def _busiest_child(pid: int) -> int | None:
    """The child that has most work, of those that stay."""
    before = {child: Counters.now(child) for child in _descendants(pid)}
    time.sleep(_STAYS)
    best: tuple[float, int] | None = None
    for child, first in before.items():
        with suppress(WeftError, OSError):
            now = Counters.now(child)
            if first is None or now is None:
                continue
            ran = now.user + now.system - first.user - first.system
            if best is None or ran > best[0]:
                best = ran, child
    return None if best is None else best[1]


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < 256:
        for child in tasks.children(waiting.pop()):
            found.append(child)
            waiting.append(child)
    return found
