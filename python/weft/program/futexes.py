"""Locks and the like: which one a thread waits for in the kernel's ``futex``, and who holds it.

The kernel knows a word of memory only. What the word belongs to is told by the functions that the
thread is in, and by what lies around it; where neither tells, it is a futex and no more.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from weft.errors import WeftError
from weft.model.program import Module
from weft.model.stacks import StackFrame
from weft.model.waits import Holder, Wait, WaitKind
from weft.program import tasks
from weft.program.tasks import Memory, Numbers
from weft.program.variables import Variables

__all__ = ["Futexes", "is_c_library"]

_WAIT, _LOCK_PI, _WAIT_BITSET, _WAIT_REQUEUE_PI, _LOCK_PI2 = 0, 6, 9, 11, 13
_COMMANDS = (_WAIT, _LOCK_PI, _WAIT_BITSET, _WAIT_REQUEUE_PI, _LOCK_PI2)
_PRIVATE = 128
_REALTIME = 256
_OWNER = 0x3FFFFFFF
"""The bits of a lock that has its owner in its word."""
_CONTENDED = 2
"""What the word of a lock of glibc is while somebody waits for it."""
_NEAR = 16
"""How many calls are looked at: further out is the program's own business."""

_C_LIBRARY = re.compile(r"(libc|libpthread|ld)([-.]|$)|ld-linux|ld-musl|libc\.musl")

_RUST = r"<?(std::sys\w*|std::sync|std::thread|parking_lot\w*)::.*"
_PYTHON_LOCK = "a lock of Python"
_PYTHON_NEWS = {
    "threading.py": re.compile(
        r"(\w+\.)?(wait|wait_for|join|_wait_for_tstate_lock|_wait|_shutdown)"
    ),
    "thread.py": re.compile("_worker"),
}
"""Functions of Python's library that wait for another thread to do something, by their files: all
of that is made of locks there."""
_RUNTIMES: Final[list[tuple[str, WaitKind, str]]] = [
    (r"take_gil|PyEval_(Restore|Acquire)Thread", "lock", "the interpreter lock of Python"),
    (r"_?PyMutex_Lock\w*|_PyRawMutex_LockSlow", "lock", _PYTHON_LOCK),
    (r"PyThread_acquire_lock(_timed)?", "lock", _PYTHON_LOCK),
    (_RUST + r"Mutex>?::lock_(contended|slow)", "lock", "a mutex of Rust"),
    (
        _RUST + r"RwLock>?::((read|write)_contended|lock_\w*slow)",
        "read-write lock",
        "a read-write lock of Rust",
    ),
    (_RUST + r"Condvar>?::wait\w*", "condition", "a condition of Rust"),
    (_RUST + r"Parker>?::park\w*", "condition", "an unpark of Rust"),
    (_RUST + r"Once>?::(call|wait)", "lock", "a one-time initialisation of Rust"),
    (r"runtime\.lock(2|WithRank)", "lock", "a lock of Go's runtime"),
    (r"runtime\.(notet?sleep\w*|stopm|mPark)", "condition", "work, in Go's scheduler"),
]
"""Functions of runtimes that wait; none of their locks says who holds it."""
_WITHIN = 3
"""How near to a semaphore or a condition of the C library they are that are made of one."""
_FUNCTIONS: Final[list[tuple[str, WaitKind]]] = [
    (r"_*pthread_mutex_(timedlock|clocklock|lock|cond_lock)\w*|_*mtx_(timed)?lock", "lock"),
    (r"_*pthread_rwlock_\w*lock\w*", "read-write lock"),
    (r"_*pthread_cond_\w*wait\w*|_*cnd_(timed)?wait", "condition"),
    (r"_*(new_|old_)?sem_(timed|clock)?wait\w*|do_futex_wait", "semaphore"),
    (r"_*pthread_barrier_wait", "barrier"),
    (r"_*pthread_(clock|timed)?join\w*|_*thrd_join", "thread"),
]
_MATERIALS: Final[tuple[WaitKind, ...]] = ("semaphore", "condition")
_ONCE = re.compile(r"_*(pthread_once\w*|call_once|cxa_guard_acquire)")
_ALLOCATORS = re.compile(
    r"_*(libc_)?(malloc|free|calloc|realloc|memalign|aligned_alloc|posix_memalign)|_int_\w+|arena_get2"
)
_STREAMS = re.compile(
    r"_IO_\w+|f?puts\w*|f?put[cs]\w*|putchar\w*|f?get[cs]\w*|getchar\w*|v?f?printf\w*|fwrite\w*"
    r"|fread\w*|fflush\w*|flockfile|_*funlockfile|fclose\w*|fseek\w*|getline|getdelim|ungetc|perror"
)

_GLIBC = re.compile(r"libc(\.so\.6|-2\.\d+\.so)$")
_WORDS: Final[dict[WaitKind, str]] = {"lock": "mutex", "thread": "thread that is to end"}

_TYPES = {0: "", 1: "recursive ", 2: "error-checking ", 3: "adaptive "}
_ROBUST, _INHERITS, _PROTECTS, _SHARED = 16, 32, 64, 128
_KINDS = 0x3FF
"""All bits that the type of a mutex of glibc may have."""

_DESCRIPTOR_TID = 0x2D0
_DESCRIPTOR_SELF = 0x10
"""Where glibc keeps a thread's id, and the address of it all, in what it keeps for a thread."""


def is_c_library(module: str | None) -> bool:
    """Whether a module is the C library, or a part of it."""
    return module is not None and _C_LIBRARY.match(module) is not None


@dataclass(frozen=True, slots=True)
class _Call:
    address: int
    command: int
    value: int
    private: bool
    timeout: float | None


class Futexes:
    """The locks of a process."""

    def __init__(self, pid: int, modules: Sequence[Module]) -> None:
        self._pid = pid
        self._modules = modules
        self._memory = Memory(pid)
        self._numbers = Numbers(pid)
        self._names: dict[tuple[int, ...], list[str]] = {}
        self._variables = Variables(pid, modules)

    def wait(
        self, name: str, arguments: Sequence[int], frames: Sequence[StackFrame]
    ) -> Wait | None:
        """Say what a thread waits for that is in a call of these arguments; nothing if it wakes."""
        if name == "futex_waitv":
            return Wait("futex", "one of several futexes", doubt="nothing tells which they are")
        call = self._call(name, arguments)
        if call is None:
            return None
        wait = replace(self._kind(call, frames), timeout=call.timeout)
        if wait.kind == "lock" and wait.text.startswith(_PYTHON_LOCK) and _is_for_news(frames):
            text = wait.text.replace(_PYTHON_LOCK, "a condition of Python", 1)
            return replace(wait, kind="condition", text=text, doubt=None)
        # A lock that says who holds it, and waits for ever: only that one can let it go.
        return replace(
            wait, only_holders=bool(wait.holders) and call.timeout is None and wait.doubt is None
        )

    def _call(self, name: str, arguments: Sequence[int]) -> _Call | None:
        memory = self._memory
        if name == "futex_wait":
            address, value, _, flags, timeout, clock = arguments
            return _Call(
                address, _WAIT_BITSET, value, bool(flags & _PRIVATE), self._left(timeout, clock & 1)
            )
        if name != "futex":
            return None
        address, operation, value, timeout = arguments[:4]
        command = operation & 0x7F
        if command not in _COMMANDS:
            return None
        if command == _WAIT:
            seconds = memory.pair(timeout, 1e-9)
        else:
            is_real = command == _LOCK_PI or operation & _REALTIME
            seconds = self._left(timeout, not is_real)
        is_private = bool(operation & _PRIVATE)
        return _Call(address, command, value & 0xFFFFFFFF, is_private, seconds)

    def _left(self, address: int, is_monotonic: object) -> float | None:
        """What is left of a deadline."""
        deadline = self._memory.pair(address, 1e-9)
        clock = time.CLOCK_MONOTONIC if is_monotonic else time.CLOCK_REALTIME
        return None if deadline is None else max(0.0, deadline - time.clock_gettime(clock))

    # --- Which kind ---------------------------------------------------------------------------

    def _kind(self, call: _Call, frames: Sequence[StackFrame]) -> Wait:
        key = tuple(frame.address for frame in frames[:_NEAR])
        if key not in self._names:
            self._names[key] = self._near(frames)
        near = self._names[key]
        if call.command in (_LOCK_PI, _LOCK_PI2):
            # The kernel knows nothing of what is around the word, and musl has the type before it.
            base = call.address - 4 if self._library == "musl" else call.address
            word = self._memory.half(call.address)
            owner = None if word is None else word & _OWNER
            return self._held(call, base, "mutex with priority inheritance", owner)
        if self._library == "musl" and (wait := self._musl(call)) is not None:
            return wait
        for at, name in enumerate(near):
            if (wait := self._of_runtime(call, name)) is not None:
                return wait
            for pattern, kind in _FUNCTIONS:
                if re.fullmatch(pattern, name):
                    around = [other for other in near[at + 1 :] if not _is_library(other)]
                    if kind not in _MATERIALS:
                        around = []
                    made = (self._of_runtime(call, other) for other in around[:_WITHIN])
                    return next(filter(None, made), None) or self._of_library(call, kind)
            if _ONCE.fullmatch(name):
                text = "a one-time initialisation"
                return self._plain(call, "lock", text, "it does not say who does it")
            if call.command == _WAIT and call.value == _CONTENDED:
                if _ALLOCATORS.fullmatch(name):
                    text = "a lock of the allocator of the C library"
                    return self._plain(call, "lock", text, "it does not say who holds it")
                if _STREAMS.fullmatch(name) and self._library == "glibc":
                    return self._stream(call)
        # The C library has no names for all of its functions.
        if (
            self._library != "musl"
            and frames
            and (is_c_library(frames[0].module) or frames[0].module is None)
        ):
            if (joined := self._joined(call)) is not None:
                return joined
            if self._is_mutex(call):
                return self._mutex(call)
        return self._plain(call, "futex", "a futex", "nothing tells what it belongs to")

    def _of_runtime(self, call: _Call, name: str) -> Wait | None:
        for pattern, kind, text in _RUNTIMES:
            if re.fullmatch(pattern, name):
                # Nobody holds a condition.
                doubt = None if kind == "condition" else "it does not say who holds it"
                return self._plain(call, kind, text, doubt)
        return None

    def _near(self, frames: Sequence[StackFrame]) -> list[str]:
        """The functions that a thread is in, the innermost first.

        Those of the C library often end in a jump to another, and are in no frame then: so what the
        program has called is one of them too.
        """
        names = []
        is_inside = False
        for frame in frames[:_NEAR]:
            if frame.is_guess:
                break
            if frame.language != "native":
                continue
            if is_c_library(frame.module):
                is_inside = True
            elif is_inside:
                is_inside = False
                if called := self._called(frame.address):
                    names.append(_plain(called))
            if frame.function:
                names.append(_plain(frame.function))
        return names

    def _called(self, after: int) -> str | None:
        """The function that the call in front of an address is of."""
        word = self._memory.word(after - 8)
        if word is None:
            return None
        code = word.to_bytes(8, "little")
        target: int | None = after + int.from_bytes(code[4:], "little", signed=True)
        if code[2:4] == b"\xff\x15":  # call [rip + offset]
            target = self._memory.word(target or 0)
        elif code[3] != 0xE8:
            return None
        if target is None or (module := self._variables.module(target)) is None:
            return None
        try:
            function = module.function_at(target - module.bias)
        except (WeftError, OverflowError):
            return None
        return None if function is None else function.name

    def _of_library(self, call: _Call, kind: WaitKind) -> Wait:
        if self._library == "musl":
            return self._of_musl(call, kind)
        if self._library is None and not self._is_mutex(call):
            known = kind in ("condition", "semaphore", "barrier")
            doubt = None if known else "which C library it is of is not known"
            return self._plain(call, kind, f"a {_WORDS.get(kind, kind)}", doubt)
        if kind == "condition" and call.command == _WAIT and call.value == _CONTENDED:
            # It was woken, and now waits for its mutex.
            kind = "lock"
        if kind == "lock":
            return self._mutex(call)
        if kind == "read-write lock":
            return self._read_write(call)
        if kind == "thread":
            if (joined := self._joined(call)) is not None:
                return joined
            return self._plain(call, "thread", "the end of a thread", "nothing tells which")
        return self._plain(call, kind, f"a {kind}", None)

    def _of_musl(self, call: _Call, kind: WaitKind) -> Wait:
        """What is not a mutex, or was none any more when it was looked at."""
        if kind != "read-write lock":
            doubt = {"lock": "it was let go meanwhile", "thread": "nothing tells which"}.get(kind)
            return self._plain(call, kind, f"a {_WORDS.get(kind, kind)}", doubt)
        count = (self._memory.half(call.address) or 0) & 0x7FFFFFFF
        who = "a writer" if count == 0x7FFFFFFF else "readers" if count else "nobody any more"
        doubt = f"it is held by {who}, and does not say by which thread"
        return self._plain(call, kind, "a read-write lock", doubt)

    @cached_property
    def _library(self) -> str | None:
        """The C library, which is a part of programs that are linked statically."""
        for one in self._modules:
            # The file of musl has two names, one of which is the loader's.
            if "musl" in one.path or one.name == "libc.so":
                return "musl"
            if _GLIBC.match(one.name):
                return "glibc"
        for one in self._modules:
            with suppress(WeftError):
                if one.is_program:
                    is_musl, is_glibc = one.find("__timedwait"), one.find("__libc_setup_tls")
                    return "musl" if is_musl else "glibc" if is_glibc else None
        return None

    def _plain(self, call: _Call, kind: WaitKind, text: str, doubt: str | None) -> Wait:
        symbol = self.symbol(call.address)
        where = f"{symbol} ({call.address:#x})" if symbol else f"{call.address:#x}"
        shown = f"{text} at {where}"
        if doubt is not None:
            shown += f"; {doubt}"
        return Wait(kind, shown, call.address, symbol, doubt=doubt)

    # --- Who holds it -------------------------------------------------------------------------

    def _held(
        self, call: _Call, address: int, what: str, owner: int | None, kind: WaitKind = "lock"
    ) -> Wait:
        symbol = self._variables.place(address)
        text = f"{what} {self._variables.shown(address)}"
        if not owner:
            doubt = "nobody was said to hold it when it was looked at"
            return Wait(kind, f"{text}; {doubt}", address, symbol, doubt=doubt)
        if call.private:
            tid = self._numbers.thread(owner)
            found = None if tid is None else (self._pid, tid)
        else:
            found = self._numbers.anywhere(owner)
        if found is None:
            doubt = f"its owner, thread {owner}, is not there any more"
            return Wait(kind, f"{text}; {doubt}", address, symbol, doubt=doubt)
        holder = Holder(*found, tasks.name(*found))
        of = "" if found[0] == self._pid else f" of process {found[0]}"
        return Wait(kind, f"{text} held by {holder}{of}", address, symbol, holders=(holder,))

    def _mutex(self, call: _Call) -> Wait:
        at = call.address
        if call.command not in (_LOCK_PI, _LOCK_PI2) and call.value == 0:
            # Nobody waits for a mutex that is free. This is how glibc waits for ever, for a word of
            # its own, where the kernel has refused one with priority inheritance.
            text = "a mutex with priority inheritance that it never gets"
            doubt = "it would wait for itself, or the owner has ended; which it is, nothing tells"
            return Wait("lock", f"{text}: {doubt}", doubt=doubt)
        first, second, third = self._memory.words([at, at + 8, at + 16])
        if first is None or second is None or third is None:
            return self._plain(call, "lock", "mutex", "its memory cannot be read")
        kind = third & 0xFFFFFFFF
        if kind & ~_KINDS or kind & 15 not in _TYPES:
            return self._plain(call, "lock", "a lock", "it is not the mutex that it seems to be")
        owner = first & _OWNER if kind & (_ROBUST | _INHERITS) else second & 0xFFFFFFFF
        what = _TYPES[kind & 15]
        # All robust ones are marked as shared.
        what += "robust " if kind & _ROBUST else "process-shared " if kind & _SHARED else ""
        what += "mutex" + (" with priority inheritance" if kind & _INHERITS else "")
        return self._held(call, at, what, owner)

    def _is_mutex(self, call: _Call) -> bool:
        """Whether what is around the word is as in a mutex of glibc that somebody holds."""
        at = call.address
        first, second, third = self._memory.words([at, at + 8, at + 16])
        if first is None or second is None or third is None or at % 8:
            return False
        lock, count, owner, users = (
            first & 0xFFFFFFFF,
            first >> 32,
            second & 0xFFFFFFFF,
            second >> 32,
        )
        kind = third & 0xFFFFFFFF
        if kind & ~_KINDS or kind & 15 not in _TYPES or count > 1 << 16:
            return False
        is_word = lock & _OWNER == owner if kind & _ROBUST else lock == _CONTENDED
        is_value = call.value == (lock if kind & _ROBUST else _CONTENDED)
        is_live = (self._numbers.thread if call.private else self._numbers.anywhere)(owner)
        return is_word and is_value and is_live is not None and 1 <= users < 1 << 16

    def _read_write(self, call: _Call) -> Wait:
        # Threads wait for three words of it: that of its readers, which comes first, and two more.
        if call.address % 8:
            base = call.address - 12
        else:
            base = call.address - 8 if call.value in (2, 3) else call.address
        readers = self._memory.half(base)
        writer = self._memory.half(base + 24)
        if readers is None or writer is None:
            return self._plain(call, "read-write lock", "read-write lock", "it cannot be read")
        if writer:
            return self._held(call, base, "read-write lock", writer, "read-write lock")
        symbol = self._variables.place(base)
        where = self._variables.shown(base)
        count = readers >> 3
        who = "a reader" if count == 1 else f"{count} readers"
        doubt = f"it is held by {who}, and does not say by which thread"
        return Wait(
            "read-write lock", f"read-write lock {where}; {doubt}", base, symbol, doubt=doubt
        )

    def _joined(self, call: _Call) -> Wait | None:
        """The end of a thread, if the word is what glibc has the kernel clear at its end."""
        tid = self._thread_of(call.address - _DESCRIPTOR_TID)
        if tid is None or call.private:
            return None
        holder = Holder(self._pid, tid, tasks.name(self._pid, tid))
        return Wait("thread", f"the end of {holder}", call.address, holders=(holder,))

    def _thread_of(self, descriptor: int) -> int | None:
        """The thread that glibc keeps this for."""
        head, own = self._memory.words([descriptor, descriptor + _DESCRIPTOR_SELF])
        if head != descriptor or own != descriptor:
            return None
        return self._numbers.thread(self._memory.half(descriptor + _DESCRIPTOR_TID) or 0)

    def _stream(self, call: _Call) -> Wait:
        what = "a lock of a stream of the C library"
        owner = self._memory.word(call.address + 8)
        tid = self._thread_of(owner) if owner else None
        if tid is None:
            return self._plain(call, "lock", what, "nobody was seen to hold it")
        holder = Holder(self._pid, tid, tasks.name(self._pid, tid))
        text = f"{what} at {call.address:#x} held by {holder}"
        return Wait("lock", text, call.address, self.symbol(call.address), holders=(holder,))

    def _musl(self, call: _Call) -> Wait | None:
        """A mutex of musl: its word follows its type, and has its owner unless it is plain."""
        kind = self._memory.half(call.address - 4)
        word = self._memory.half(call.address)
        if kind is None or word is None or call.address % 8 != 4 or kind & ~0x8F:
            return None
        if not call.value >> 31:
            return None
        base = call.address - 4
        owner = call.value & _OWNER
        if kind & 15 == 0:
            if owner != 16:  # EBUSY
                return None
            wait = self._held(call, base, "mutex", None)
            doubt = "a plain mutex of musl does not say who holds it"
            text = wait.text.partition(";")[0]
            return replace(wait, text=f"{text}; {doubt}", doubt=doubt)
        if kind & 3 not in _TYPES or self._numbers.anywhere(owner) is None:
            return None
        what = _TYPES[kind & 3] + ("robust " if kind & 4 else "")
        return self._held(call, base, f"{what}mutex", word & _OWNER)

    # --- Names --------------------------------------------------------------------------------

    def symbol(self, address: int) -> str | None:
        """The variable of a module that an address lies in."""
        return self._variables.symbol(address)


def _is_for_news(frames: Sequence[StackFrame]) -> bool:
    """Whether a lock of Python is what a condition, a queue or the end of a thread is made of."""
    for frame in frames:
        if (frame.function or "").startswith("_queue_SimpleQueue_get"):
            return True
        if frame.language == "python":
            file = "" if frame.location is None else frame.location.file.rpartition("/")[2]
            known = _PYTHON_NEWS.get(file)
            return known is not None and known.fullmatch(frame.function or "") is not None
    return False


def _is_library(name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern, _ in _FUNCTIONS)


def _plain(name: str) -> str:
    """A name without its parameters, version, and what compilers add to it."""
    name = re.sub(r"::h[0-9a-f]{16}$|\.(constprop|part|isra|cold|lto_priv)\b.*$", "", name)
    return name.partition("@")[0].partition("(")[0].strip() or name
