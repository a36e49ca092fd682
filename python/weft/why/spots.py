"""The time of threads in places, with what hypotheses ask of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from weft.model.sampled import PlaceTime, SampledTime, ThreadState
from weft.model.stacks import StackFrame
from weft.model.waits import Descriptor, Wait

__all__ = ["Spot", "spots"]

_POLLS = frozenset(
    ["poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"]
)
_READS = frozenset(["read", "readv", "recvfrom", "recvmsg", "accept", "accept4"])
_NEVER = 0.05
"""Up to what share of its time a thread may sleep that is said never to sleep."""
_MOSTLY = 0.7
_FIRST_OF_OWN_CHOICE = 32768
"""The first port that the kernel gives to sockets that have not asked for one."""


@dataclass(frozen=True, slots=True)
class Spot:
    """The time of a thread in one place and one state."""

    state: ThreadState
    seconds: float
    samples: int
    tid: int
    thread: str
    frames: tuple[StackFrame, ...]
    names: tuple[str, ...] = field(repr=False)
    """Its functions, the innermost first."""
    call: str | None = None
    wait: Wait | None = None
    holders: tuple[tuple[str, int], ...] = ()
    spins: bool = False
    """Whether it runs a loop that only waits for another thread."""
    never_sleeps: bool = False
    """Whether the thread asks the kernel for news all the time, and never waits for any."""
    fails: bool = False
    """Whether it reads what is set to return at once."""
    asks: bool = False
    """Whether it waits for an answer, or for data, of another process."""
    peer: str | None = None
    """Whose answer, if that is known otherwise than by what it waits for."""

    @property
    def kernel(self) -> bool:
        """Whether it is in a system call."""
        return self.call is not None

    @property
    def wait_kind(self) -> str | None:
        """The kind of what it waits for."""
        return None if self.wait is None else self.wait.kind

    @property
    def descriptor_kinds(self) -> set[str]:
        """The kinds of the descriptors that it waits for."""
        return set() if self.wait is None else {one.kind for one in self.wait.descriptors}


def spots(
    found: SampledTime,
    spins: Callable[[int], bool],
    is_served: Callable[[Descriptor], bool],
    is_nonblocking: Callable[[int], bool],
) -> list[Spot]:
    """Return the time of all threads; ``spins`` is asked of instructions, the others of sockets."""
    names = {thread.tid: thread.name for thread in found.threads}
    polling = _polling(found)
    result = []
    for place in found.places:
        functions = tuple(frame.function or "" for frame in place.frames)
        states: tuple[ThreadState, ...] = (
            ("blocked",) if place.is_blocked else ("running", "runnable")
        )
        for state in states:
            if (seconds := place.seconds(state)) <= 0:
                continue
            is_running = state != "blocked"
            asks = False if place.wait is None else _asks(place.wait, is_served, found.pid)
            result.append(
                Spot(
                    state,
                    seconds,
                    place.samples,
                    place.tid,
                    names.get(place.tid, ""),
                    place.frames,
                    functions,
                    place.call,
                    place.wait,
                    tuple((str(holder), count) for holder, count in place.holders),
                    spins=is_running and _spins(place, spins),
                    never_sleeps=polling.get(place.tid, False),
                    fails=is_running
                    and place.call in _READS
                    and place.descriptor is not None
                    and is_nonblocking(place.descriptor),
                    asks=asks,
                )
            )
    return result


def _spins(place: PlaceTime, spins: Callable[[int], bool]) -> bool:
    native = next((frame for frame in place.frames if frame.language != "python"), None)
    # What Python's interpreter is in says nothing of the program's loops.
    is_python = any(frame.language == "python" for frame in place.frames)
    return native is not None and place.call is None and not is_python and spins(native.address)


def _polling(found: SampledTime) -> dict[int, bool]:
    """Which threads do nothing but ask for news, and never sleep."""
    asleep: Counter[int] = Counter()
    everything: Counter[int] = Counter()
    calls: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for place in found.places:
        everything[place.tid] += place.samples
        if place.is_blocked:
            asleep[place.tid] += place.samples
        elif place.call is not None:
            calls[place.tid][place.call] += place.samples
    result = {}
    for tid, count in everything.items():
        made = calls[tid]
        news = sum(found for call, found in made.items() if call in _POLLS | _READS)
        result[tid] = asleep[tid] <= _NEVER * count and news > _MOSTLY * max(made.total(), 1)
    return result


def _asks(wait: Wait, is_served: Callable[[Descriptor], bool], pid: int) -> bool:
    """Whether a thread waits for another process that it has asked, or that feeds it."""
    if wait.kind != "descriptor" or len(wait.descriptors) != 1:
        return False
    (one,) = wait.descriptors
    if one.kind == "pipe":
        return any(holder.pid != pid for holder in wait.holders) or not wait.holders
    if one.kind != "socket" or "that listens" in one.text:
        return False
    if one.protocol is not None and one.protocol.startswith("udp"):
        return one.peer is not None or _port(one.local) >= _FIRST_OF_OWN_CHOICE
    return not is_served(one)


def _port(address: str | None) -> int:
    port = (address or "").rpartition(":")[2]
    return int(port) if port.isdecimal() else 0


def total(some: Iterator[Spot] | list[Spot]) -> float:
    """Return the seconds of them all."""
    return sum(one.seconds for one in some)
