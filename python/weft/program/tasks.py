"""What the kernel tells of processes and their threads, as files of ``/proc``.

Everything may end or change while it is looked at: what is gone is told as nothing, never as an
error. Names are the program's to choose, so they are made fit to print.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from weft import _native
from weft.base.numbers import printable
from weft.errors import WeftError

__all__ = [
    "Memory",
    "Numbers",
    "Sleep",
    "children",
    "is_kernel",
    "is_kernel_thread",
    "link",
    "name",
    "own_id",
    "pids",
    "reachable",
    "read",
    "sleep",
    "stat",
    "state",
    "status",
    "tids",
]

_MOST_TEXT = 4096
_KERNEL_THREAD = 0x200000
_WORD = 8


def read(path: str) -> str:
    """The text of a file; empty if it cannot be read."""
    try:
        # There are thousands of them, of one line each: what is around the calls is what they cost.
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            return file.readall().decode(errors="replace")
    except OSError:
        return ""


def link(path: str) -> str:
    """Where a link leads to; empty if it cannot be read."""
    try:
        # There may be a hundred thousand, and a path object takes longer than the kernel.
        return os.readlink(path)  # noqa: PTH115
    except OSError:
        return ""


def pids() -> list[int]:
    """All processes."""
    with os.scandir("/proc") as entries:
        return sorted(int(entry.name) for entry in entries if entry.name.isdecimal())


def tids(pid: int) -> list[int]:
    """The threads of a process; not a first one that has ended before the others."""
    found = []
    with suppress(OSError), os.scandir(f"/proc/{pid}/task") as entries:
        found = sorted(int(entry.name) for entry in entries if entry.name.isdecimal())
    return [tid for tid in found if tid != pid or stat(pid)[:1] not in (["Z"], ["X"])]


def reachable(pid: int) -> int:
    """The thread through which the memory of a process is read, and all that its threads share.

    It is the first; where that has ended before the others, the next one.
    """
    if stat(pid)[:1] not in (["Z"], ["X"]):
        return pid
    return next((tid for tid in tids(pid) if state(pid, tid) not in "ZX"), pid)


def processor_time(pid: int) -> int:
    """How many nanoseconds the threads of a process have run, those that have ended included."""
    # What clock_getcpuclockid makes of a process.
    return time.clock_gettime_ns((~pid << 3) | 2)


def idle_time() -> float:
    """For how many seconds the processors that weft may use have done nothing, all together."""
    mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    rows = (line.split() for line in read("/proc/stat").splitlines())
    # The time in which they did nothing, and in which they did nothing because a disk did.
    ticks = sum(int(row[4]) + int(row[5]) for row in rows if row[:1] and row[0] in mine)
    return ticks / os.sysconf("SC_CLK_TCK")


def name(pid: int, tid: int | None = None) -> str:
    """The name of a process, or of a thread."""
    path = f"/proc/{pid}/comm" if tid is None else f"/proc/{pid}/task/{tid}/comm"
    return printable(read(path).rstrip("\n"))


def status(pid: int, tid: int) -> dict[str, str]:
    """The lines of a thread's status, by their first words."""
    lines = (line.partition(":") for line in read(f"/proc/{pid}/task/{tid}/status").splitlines())
    return {word: value.strip() for word, _, value in lines}


def started(pid: int, tid: int) -> float:
    """When a thread was started, by the clock of ``time.monotonic``; 0 if it has ended."""
    fields = read(f"/proc/{pid}/task/{tid}/stat").rpartition(")")[2].split()
    if len(fields) < 20:
        return 0.0
    asleep = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK") - asleep


def sleeps(pid: int, tid: int) -> int | None:
    """How often a thread has given up its processor itself; nothing if that is not known."""
    try:
        return int(status(pid, tid)["voluntary_ctxt_switches"])
    except (KeyError, ValueError):
        return None


def own_id(pid: int, tid: int) -> int | None:
    """What a thread is called in its own PID namespace; none if it has ended."""
    words = status(pid, tid).get("NSpid", "").split()
    return int(words[-1]) if words and words[-1].isdecimal() else None


def stat(pid: int) -> list[str]:
    """The fields of a process's ``stat`` that follow its name; none if it has ended."""
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def state(pid: int, tid: int) -> str:
    """The kernel's letter for what a thread does; empty if it has ended."""
    return read(f"/proc/{pid}/task/{tid}/stat").rpartition(")")[2][1:2]


def is_kernel_thread(pid: int) -> bool:
    """Whether it is a thread of the kernel, which has no program."""
    fields = stat(pid)
    return len(fields) > 6 and bool(int(fields[6]) & _KERNEL_THREAD)


def is_kernel(pid: int) -> bool:
    """Whether it is a thread of the kernel, or no process any more."""
    fields = stat(pid)
    return len(fields) < 7 or is_kernel_thread(pid) or fields[0] in "ZX"


def children(pid: int) -> list[int]:
    """The processes that any thread of a process has started and that it has not waited for."""
    found = [
        int(word)
        for tid in tids(pid)
        for word in read(f"/proc/{pid}/task/{tid}/children").split()
        if word.isdecimal()
    ]
    if found or Path(f"/proc/self/task/{os.getpid()}/children").exists():
        return sorted(set(found))
    # Not every kernel has such lists.
    return [one for one in pids() if stat(one)[1:2] == [str(pid)]]


@dataclass(frozen=True, slots=True)
class Sleep:
    """A thread that sleeps, as it was found: the same twice, if it has slept all the while."""

    number: int
    """Of the system call that it sleeps in; -1 if in none."""
    arguments: tuple[int, ...]
    turns: int
    """How often it has had its turn on a processor."""


def sleep(pid: int, tid: int) -> Sleep | None:
    """How a thread sleeps; nothing if it runs, or if that may not be known."""
    words = read(f"/proc/{pid}/task/{tid}/syscall").split()
    if len(words) < 3 or words[0] == "running":
        return None
    try:
        turns = int(read(f"/proc/{pid}/task/{tid}/schedstat").split()[2])
        # A kernel that does not count them has nought, of one that has run.
        if turns == 0:
            turns = int(status(pid, tid)["voluntary_ctxt_switches"])
        arguments = tuple(int(word, 16) for word in words[1:-2])
        return Sleep(int(words[0]), arguments, turns)
    except (KeyError, ValueError, IndexError):
        return None


class Memory:
    """The memory of a process. What it holds is the program's to write: nothing in it is sure."""

    def __init__(self, pid: int) -> None:
        self._pid = reachable(pid)

    def words(self, addresses: Sequence[int]) -> list[int | None]:
        """The 64-bit words at addresses; nothing where there is no memory."""
        wanted = [address % (1 << 64) for address in addresses]
        try:
            return list(_native.read_words(self._pid, wanted))
        except WeftError:
            return [None] * len(wanted)

    def word(self, address: int) -> int | None:
        """The 64-bit word at an address."""
        return self.words([address])[0]

    def half(self, address: int) -> int | None:
        """The 32-bit word at an address, which need have no memory behind it."""
        if (word := self.word(address)) is not None:
            return word & 0xFFFFFFFF
        word = self.word(address - 4)
        return None if word is None else word >> 32

    def data(self, address: int, size: int) -> bytes | None:
        """Some bytes, if they are all there."""
        found = self.words(range(address, address + size - _WORD + 1, _WORD))
        if size % _WORD:
            found.append(self.word(address + size - _WORD))
        if None in found or size < _WORD:
            return None
        whole = b"".join((one or 0).to_bytes(_WORD, "little") for one in found)
        rest = size % _WORD
        return whole[: size - rest] + whole[len(whole) - rest :] if rest else whole

    def text(self, address: int) -> str | None:
        """A text that ends with a zero, fit to print."""
        found = b""
        while len(found) < _MOST_TEXT:
            # By what a page boundary cannot cut: words that are aligned.
            start = (address + len(found)) // _WORD * _WORD
            word = self.word(start)
            if word is None:
                return None
            found += word.to_bytes(_WORD, "little")[address + len(found) - start :]
            if b"\0" in found:
                break
        return printable(found.partition(b"\0")[0].decode(errors="replace"))

    def pair(self, address: int, scale: float) -> float | None:
        """A ``timespec`` (the scale is 1e-9) or a ``timeval`` (1e-6), in seconds."""
        if not address:
            return None
        seconds, rest = self.words([address, address + _WORD])
        if seconds is None or rest is None or seconds >= 1 << 62 or rest * scale > 1:
            return None
        return seconds + rest * scale


class Numbers:
    """By which ids a process knows threads: it may live in a namespace of its own."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._space = link(f"/proc/{pid}/ns/pid")

    @cached_property
    def _threads(self) -> dict[int, int]:
        found = ((own_id(self._pid, tid), tid) for tid in tids(self._pid))
        return {own: tid for own, tid in found if own is not None}

    def thread(self, number: int) -> int | None:
        """The thread of the process that it knows by a number."""
        return self._threads.get(number)

    def anywhere(self, number: int) -> tuple[int, int] | None:
        """The process and the thread, of all in its namespace, that go by a number."""
        if (tid := self.thread(number)) is not None:
            return self._pid, tid
        if number <= 0 or not self._space:
            return None
        with suppress(KeyError, ValueError):
            if link("/proc/self/ns/pid") == self._space:
                return int(status(number, number)["Tgid"]), number
        for pid in pids():
            if link(f"/proc/{pid}/ns/pid") == self._space:
                for tid in tids(pid):
                    if own_id(pid, tid) == number:
                        return pid, tid
        return None
