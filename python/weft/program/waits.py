"""What the threads of a process wait for: the system call that each is in, made plain.

All of this is read while the process runs. Who holds something is sure only if the thread that
waits for it has slept from before until after that was read, and that is looked at.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from weft import _native
from weft.model.program import Module
from weft.model.thread_stacks import SystemCall, ThreadStack
from weft.model.waits import Descriptor, Holder, Sureness, Wait
from weft.program import file_locks, tasks
from weft.program.descriptors import Descriptors, Direction, Ends
from weft.program.futexes import Futexes
from weft.program.system_calls import NUMBERS, name_of
from weft.program.tasks import Memory, Sleep

__all__ = ["Waits", "has_slept"]

Arguments: TypeAlias = "tuple[int, ...]"

_RESTART: Final = NUMBERS["restart_syscall"]
_SHOWN = 4
"""How many of several descriptors a text names."""
_MOST_POLLED = 1024
_MOST_SIGNALS = 3
"""How many signals are named."""

_READS = "read pread64 readv preadv preadv2 recvfrom recvmsg recvmmsg accept accept4 getdents64"
_WRITES = "write pwrite64 writev pwritev pwritev2 sendto sendmsg sendmmsg connect sendfile"
_DIRECTIONS: Final[dict[str, Direction]] = {
    **dict.fromkeys(_READS.split(), "read"),
    **dict.fromkeys(_WRITES.split(), "write"),
}
_VERBS = {
    "accept": "a connection at",
    "accept4": "a connection at",
    "connect": "the connection of",
}
_OPENS = {"open": 0, "creat": 0, "openat": 1, "openat2": 1}
_QUEUES = "semop semtimedop msgsnd msgrcv mq_timedsend mq_timedreceive"
_DISKS = "fsync fdatasync sync syncfs msync sync_file_range"
_BIRTHS = "fork vfork clone clone3"
_CLONE_VFORK = 0x4000
_TIMED_BY_SOCKETS = "read readv recvfrom recvmsg accept accept4 connect write writev sendto sendmsg"
_IN, _OUT = 0x1 | 0x2 | 0x40, 0x4 | 0x100
_SET_WAIT, _SET_WAIT_OFD = 7, 38


class Waits:
    """What the threads of one process wait for."""

    def __init__(
        self,
        pid: int,
        modules: Sequence[Module],
        ends: Ends,
        earlier: Mapping[int, Sleep | None] | None = None,
    ) -> None:
        """``earlier`` is how its threads slept before they were made to stand still."""
        self._pid = pid
        self._earlier = earlier or {}
        self._ends = ends
        self._memory = Memory(pid)
        self._descriptors = Descriptors(pid)
        self._futexes = Futexes(pid, modules)

    def of(self, threads: Sequence[ThreadStack]) -> list[Wait | None]:
        """Say what threads wait for; nothing of those that run."""
        before = {thread.tid: tasks.sleep(self._pid, thread.tid) for thread in threads}
        found = [self._of(thread, before[thread.tid]) for thread in threads]
        after = {thread.tid: tasks.sleep(self._pid, thread.tid) for thread in threads}
        return [
            wait
            if wait is None or has_slept(thread, before[thread.tid], after[thread.tid])
            else _unsure(wait)
            for thread, wait in zip(threads, found, strict=True)
        ]

    def _of(self, thread: ThreadStack, now: Sleep | None) -> Wait | None:
        call = thread.call
        if thread.state in ("X", "Z"):
            return None
        if thread.state == "T":
            # Whatever call it was on its way out of.
            return Wait("signal", "a signal to go on (SIGCONT): it is stopped")
        if call is None:
            return self._in_no_call(thread)
        if thread.state == "R" and (now is None or not _is_same(call, now)):
            return None
        going_on = self.call(thread) or call
        if going_on.number == _RESTART:
            text = "a call that was interrupted, and goes on; nothing tells which"
            return Wait("call", text, doubt="nothing tells which call it is")
        return self._in_call(thread, going_on.name, call.arguments)

    def call(self, thread: ThreadStack) -> SystemCall | None:
        """The system call that a thread is in, also where it was interrupted, and goes on."""
        call = thread.call
        if call is None or call.number != _RESTART:
            return call
        name = self._restarted(thread)
        number = None if name is None else NUMBERS.get(name)
        return call if name is None or number is None else replace(call, number=number, name=name)

    def _restarted(self, thread: ThreadStack) -> str | None:
        """The call that the kernel goes on with after the thread stood still.

        Its arguments are still in their registers, and the instructions in front of where it
        returns to have its number.
        """
        earlier = self._earlier.get(thread.tid)
        if (
            earlier is not None
            and earlier.number != _RESTART
            and thread.call is not None
            and earlier.arguments == thread.call.arguments
        ):
            return name_of(earlier.number)
        if not thread.frames:
            return None
        code = self._memory.data(thread.frames[0].address - 8, 8)
        # mov eax, NUMBER; syscall
        if code is not None and code[1] == 0xB8 and code[6:] == b"\x0f\x05":
            return name_of(int.from_bytes(code[2:6], "little"))
        known = ("nanosleep", "clock_nanosleep", "poll", "futex")
        near = [(frame.function or "").strip("_") for frame in thread.frames[:2]]
        return next((name for name in near if name in known), None)

    def _in_no_call(self, thread: ThreadStack) -> Wait | None:
        """One that sleeps and is in no call is at an instruction: a page is not there."""
        if thread.state not in ("D", "S") or tasks.sleep(self._pid, thread.tid) is None:
            return None
        return self._by_channel(thread.tid, "a page of its memory")

    def _by_channel(self, tid: int, otherwise: str) -> Wait:
        where = tasks.read(f"/proc/{self._pid}/task/{tid}/wchan").strip("\0\n ")
        if not where or where == "0":
            return Wait("memory", otherwise, doubt="the kernel does not say what it waits for")
        is_memory = any(word in where for word in ("fault", "page", "folio", "swap", "mmap"))
        if is_memory:
            return Wait("memory", f"{otherwise} (the kernel is in {where})")
        return Wait("device", f"the kernel, which is in {where}")

    # --- System calls -------------------------------------------------------------------------

    def _in_call(self, thread: ThreadStack, name: str, arguments: Arguments) -> Wait | None:
        tid, first = thread.tid, _signed(arguments[0])
        if name.startswith("futex"):
            return self._futexes.wait(name, arguments, thread.frames)
        if name in _DIRECTIONS:
            return self._on_descriptors(tid, [(first, _DIRECTIONS[name])], None, name)
        if name in _CALLS:
            return _CALLS[name](self, tid, arguments)
        if name in _OPENS:
            path = self._memory.text(arguments[_OPENS[name]])
            return Wait("file", f"{path or 'a file'} to be opened")
        if name in _QUEUES.split():
            wait = Wait("message", f"a queue or semaphore of the kernel, in {name}")
            is_timed = name == "semtimedop"
            timeout = self._memory.pair(arguments[3], 1e-9) if is_timed else None
            return self._with_timeout(wait, timeout)
        if name in _BIRTHS.split():
            if self._shares_stack(name, arguments):
                return self._for_children(tasks.children(self._pid), "to run a program, or end")
            return Wait("call", f"what it starts to be made, in {name}")
        if name in _DISKS.split():
            number = first if name not in ("sync", "msync") else None
            if number is None:
                return Wait("device", f"data to be written, in {name}")
            one = self._descriptors.describe(tid, number, "write")
            return Wait("device", f"data of {one} to be written", descriptors=(one,))
        if name in ("ioctl", "io_getevents", "io_pgetevents", "io_uring_enter", "splice", "close"):
            if name.startswith("io_"):
                return Wait("device", f"input or output to end, in {name}")
            one = self._descriptors.describe(tid, first, None)
            return Wait("descriptor", f"descriptor {one}, in {name}", descriptors=(one,))
        if thread.state == "D":
            return replace(self._by_channel(tid, f"the kernel, in {name}"), kind="device")
        return Wait("call", f"the system call {name}", doubt="nothing is known of its waits")

    def _shares_stack(self, name: str, arguments: Arguments) -> bool:
        """Whether a thread waits until what it has started no longer needs its memory."""
        if name == "vfork":
            return True
        # clone3 has a structure, and the flags in front.
        flags = self._memory.word(arguments[0]) if name == "clone3" else arguments[0]
        return bool((flags or 0) & _CLONE_VFORK)

    def _poll(self, tid: int, arguments: Arguments) -> Wait:
        count = min(arguments[1], _MOST_POLLED)
        rows = self._memory.words(range(arguments[0], arguments[0] + 8 * count, 8))
        wanted: list[tuple[int, Direction | None]] = []
        for row in rows:
            if row is not None and (number := _signed(row & 0xFFFFFFFF)) >= 0:
                wanted.append((number, _direction(row >> 32 & 0xFFFF)))
        timeout = _signed(arguments[2])
        return self._on_descriptors(
            tid, wanted, timeout / 1000 if timeout >= 0 else None, "poll", count < arguments[1]
        )

    def _ppoll(self, tid: int, arguments: Arguments) -> Wait:
        wait = self._poll(tid, (*arguments[:2], (1 << 32) - 1))
        return self._with_timeout(wait, self._memory.pair(arguments[2], 1e-9))

    def _select(self, tid: int, arguments: Arguments, scale: float = 1e-6) -> Wait:
        count = min(arguments[0], _MOST_POLLED)
        read, write, other = (self._bits(address, count) for address in arguments[1:4])
        wanted: list[tuple[int, Direction | None]] = [
            (
                number,
                "both" if number in read & write else "read" if number in read else "write",
            )
            for number in sorted(read | write | other)
        ]
        timeout = self._memory.pair(arguments[4], scale)
        return self._on_descriptors(tid, wanted, timeout, "select", count < arguments[0])

    def _pselect(self, tid: int, arguments: Arguments) -> Wait:
        return self._select(tid, arguments, 1e-9)

    def _bits(self, address: int, count: int) -> set[int]:
        if not address:
            return set()
        words = self._memory.words(range(address, address + (count + 63) // 64 * 8, 8))
        return {number for number in range(count) if (words[number // 64] or 0) >> number % 64 & 1}

    def _epoll(self, tid: int, arguments: Arguments) -> Wait:
        timeout = _signed(arguments[3])
        return self._in_epoll(tid, arguments, timeout / 1000 if timeout >= 0 else None)

    def _epoll2(self, tid: int, arguments: Arguments) -> Wait:
        return self._in_epoll(tid, arguments, self._memory.pair(arguments[3], 1e-9))

    def _in_epoll(self, tid: int, arguments: Arguments, timeout: float | None) -> Wait:
        one = self._descriptors.describe(tid, _signed(arguments[0]), "read")
        watched = _listed(one.watches) if one.watches else "none"
        text = f"one of the descriptors that epoll {one.number} watches: {watched}"
        return self._with_timeout(Wait("descriptor", text, descriptors=(one,)), timeout)

    def _nanosleep(self, _tid: int, arguments: Arguments) -> Wait:
        return _timer(self._memory.pair(arguments[0], 1e-9))

    def _clock_nanosleep(self, _tid: int, arguments: Arguments) -> Wait:
        seconds = self._memory.pair(arguments[2], 1e-9)
        clock = _signed(arguments[0])
        if seconds is not None and arguments[1] & 1:
            if clock < 0:
                return Wait("timer", "a moment on a clock of processor time")
            try:
                seconds = max(0.0, seconds - time.clock_gettime(clock))
            except OSError:
                seconds = None
        return _timer(seconds)

    def _pause(self, _tid: int, _arguments: Arguments) -> Wait:
        return Wait("signal", "a signal")

    def _signal_wait(self, _tid: int, arguments: Arguments) -> Wait:
        mask = self._memory.word(arguments[0]) or 0
        wanted = [_signal(number) for number in range(1, 65) if mask >> number - 1 & 1]
        text = f"one of {len(wanted)} signals, such as {wanted[0]}" if wanted else "a signal"
        if 0 < len(wanted) <= _MOST_SIGNALS:
            text = " or ".join(wanted)
        timeout = self._memory.pair(arguments[2], 1e-9)
        return self._with_timeout(Wait("signal", text), timeout)

    def _wait4(self, _tid: int, arguments: Arguments) -> Wait:
        number = _signed(arguments[0])
        known = tasks.children(self._pid)
        if number > 0:
            known = [one for one in known if tasks.own_id(one, one) == number]
            return self._for_children(known, "to end", str(number))
        if number < -1:
            known = [one for one in known if tasks.stat(one)[2:3] == [str(-number)]]
        return self._for_children(known, "to end")

    def _waitid(self, tid: int, arguments: Arguments) -> Wait:
        kind, number = arguments[0], _signed(arguments[1])
        if kind == 3:  # P_PIDFD
            one = self._descriptors.describe(tid, number, "read")
            return Wait("child", f"the end of the process of {one}", descriptors=(one,))
        wanted = {0: -1, 1: number, 2: -number}.get(kind, -1)
        return self._wait4(tid, (wanted % (1 << 64), *arguments[1:]))

    def _for_children(self, found: Sequence[int], what: str, wanted: str = "") -> Wait:
        if not found:
            text = f"process {wanted} {what}" if wanted else f"a child {what}; none was found"
            return Wait("child", text, doubt="the child was not found")
        sure: Sureness = "sure" if len(found) == 1 else "possible"
        holders = tuple(Holder(one, None, tasks.name(one), sure) for one in found)
        if len(holders) == 1:
            text = f"child {holders[0]} {what}"
        else:
            text = f"one of {len(holders)} children {what}: {_listed(holders)}"
        return Wait("child", text, holders=holders, only_holders=True)

    def _flock(self, tid: int, arguments: Arguments) -> Wait:
        return self._file_lock(tid, _signed(arguments[0]), "FLOCK")

    def _fcntl(self, tid: int, arguments: Arguments) -> Wait:
        number, command = _signed(arguments[0]), _signed(arguments[1])
        if command in (_SET_WAIT, _SET_WAIT_OFD):
            return self._file_lock(tid, number, "POSIX" if command == _SET_WAIT else "OFDLCK")
        one = self._descriptors.describe(tid, number, None)
        return Wait("descriptor", f"descriptor {one}, in fcntl", descriptors=(one,))

    def _file_lock(self, tid: int, number: int, kind: str) -> Wait:
        one = self._descriptors.describe(tid, number, None)
        text = f"a lock on {one.text} (descriptor {number})"
        if one.inode is None:
            unseen = "the file could not be looked at"
            return Wait("file lock", f"{text}; {unseen}", descriptors=(one,), doubt=unseen)
        link = self._descriptors.link(tid, number)
        found, are_all = file_locks.holders(self._pid, one.inode, link, kind, self._ends)
        doubt: str | None = None
        if not found:
            doubt = "who holds it could not be found"
            text += f"; {doubt}"
        else:
            text += f" held by {_listed(found)}"
            if not are_all:
                doubt = "others may hold it too"
            elif kind != "POSIX":
                doubt = self._hidden()
        return Wait(
            "file lock",
            text,
            descriptors=(one,),
            holders=tuple(found),
            only_holders=bool(found) and are_all,
            doubt=doubt,
        )

    # --- Descriptors --------------------------------------------------------------------------

    def _on_descriptors(
        self,
        tid: int,
        wanted: Sequence[tuple[int, Direction | None]],
        timeout: float | None,
        name: str,
        is_cut: bool = False,
    ) -> Wait:
        found = [self._descriptors.describe(tid, number, way) for number, way in wanted]
        if not found:
            # Programs sleep in such calls too.
            return _timer(timeout) if timeout is not None else Wait("signal", "a signal")
        if len(found) > 1 or is_cut:
            text = f"one of {len(found)} descriptors: {_listed(found)}"
            return self._with_timeout(Wait("descriptor", text, descriptors=tuple(found)), timeout)
        return self._with_timeout(self._on_one(tid, found[0], name), timeout)

    def _on_one(self, tid: int, one: Descriptor, name: str) -> Wait:
        verb = _VERBS.get(name) or {"read": "data from", "write": "room in"}.get(
            one.direction or "", "input or output of"
        )
        text = f"{verb} descriptor {one}"
        wait = self._from_other_end(tid, Wait("descriptor", text, descriptors=(one,)), one, name)
        is_timed = one.kind == "socket" and name in _TIMED_BY_SOCKETS.split()
        return self._with_socket_timeout(wait, one) if is_timed else wait

    def _from_other_end(self, tid: int, wait: Wait, one: Descriptor, name: str) -> Wait:
        """Say who can end a wait for a descriptor."""
        if one.direction not in ("read", "write") or name in _VERBS:
            return wait
        link = self._descriptors.link(tid, one.number)
        if link.startswith("pipe:"):
            other: Direction = "write" if one.direction == "read" else "read"
            return self._from_others(wait, self._ends.holders(link, other))
        if one.kind == "socket" and one.inode is not None:
            inode, doubt = self._descriptors.sockets.other_end(one.inode)
            if doubt is not None:
                return replace(wait, text=f"{wait.text}; {doubt}", doubt=doubt)
            holders = self._ends.holders(f"socket:[{inode}]", "both") if inode else []
            return self._from_others(wait, holders)
        return wait

    def _from_others(self, wait: Wait, holders: Sequence[Holder]) -> Wait:
        doubt = self._hidden()
        if not holders:
            said = "nobody has the other end open" if doubt is None else doubt
            return replace(wait, text=f"{wait.text}; {said}", doubt=doubt)
        # A process may well write to a pipe of its own where no thread of it is seen to: in a
        # handler of signals.
        is_closed = any(one.pid != self._pid for one in holders)
        return replace(
            wait,
            text=f"{wait.text}; its other end is open in {_listed(holders)}",
            holders=tuple(holders),
            only_holders=is_closed,
            doubt=doubt,
        )

    def _with_socket_timeout(self, wait: Wait, one: Descriptor) -> Wait:
        """Sockets have time-outs that no call shows."""
        found = _native.socket_timeouts(self._pid, one.number)
        if found is None:
            if not wait.only_holders:
                return wait
            doubt = "whether the socket has a time-out is not known"
            return replace(wait, doubt=wait.doubt or doubt)
        seconds = found[one.direction == "write"]
        return self._with_timeout(wait, seconds or None)

    def _hidden(self) -> str | None:
        if not self._ends.hidden:
            return None
        return f"{self._ends.hidden} processes could not be looked into"

    @staticmethod
    def _with_timeout(wait: Wait, timeout: float | None) -> Wait:
        if timeout is None:
            return wait
        return replace(wait, timeout=timeout, only_holders=False)


_Method: TypeAlias = "Callable[[Waits, int, Arguments], Wait]"
_CALLS: Final[dict[str, _Method]] = {
    "poll": Waits._poll,
    "ppoll": Waits._ppoll,
    "select": Waits._select,
    "pselect6": Waits._pselect,
    "epoll_wait": Waits._epoll,
    "epoll_pwait": Waits._epoll,
    "epoll_pwait2": Waits._epoll2,
    "nanosleep": Waits._nanosleep,
    "clock_nanosleep": Waits._clock_nanosleep,
    "pause": Waits._pause,
    "rt_sigsuspend": Waits._pause,
    "rt_sigtimedwait": Waits._signal_wait,
    "wait4": Waits._wait4,
    "waitid": Waits._waitid,
    "flock": Waits._flock,
    "fcntl": Waits._fcntl,
}


def has_slept(thread: ThreadStack, before: Sleep | None, after: Sleep | None) -> bool:
    """Whether a thread has slept all the while, in the call that its stack was read in."""
    return before is not None and before == after and _is_same(thread.call, before)


def _is_same(call: SystemCall | None, now: Sleep) -> bool:
    if call is None:
        return now.number == -1
    # A call that was interrupted, as when the process stood still, goes on under another number.
    return now.arguments == call.arguments and (now.number == call.number or now.number == _RESTART)


def _unsure(wait: Wait) -> Wait:
    holders = tuple(
        replace(one, sure="shortly after") if one.sure == "sure" else one for one in wait.holders
    )
    doubt = wait.doubt or "the thread may have gone on before this was read"
    text = f"{wait.text} (as of shortly after)" if holders else wait.text
    return replace(wait, text=text, holders=holders, doubt=doubt)


def _signed(value: int) -> int:
    """A C ``int`` that a register has."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _direction(events: int) -> Direction | None:
    if events & _IN:
        return "both" if events & _OUT else "read"
    return "write" if events & _OUT else None


def _signal(number: int) -> str:
    """What a signal is called."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}" if number > signal.SIGRTMIN else f"{number}"


def _timer(seconds: float | None) -> Wait:
    if seconds is None:
        return Wait("timer", "time to pass", doubt="it could not be read how long")
    return Wait("timer", f"{round(seconds, 3):.10g} s to pass", timeout=seconds)


def _listed(items: Sequence[object]) -> str:
    shown = ", ".join(map(str, items[:_SHOWN]))
    return f"{shown} and {len(items) - _SHOWN} more" if len(items) > _SHOWN else shown
