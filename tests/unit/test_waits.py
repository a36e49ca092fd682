"""Waits are read from memory that the program may have written anything to."""

from __future__ import annotations

import os
import random

import pytest

from weft.model.stacks import StackFrame
from weft.model.thread_stacks import SystemCall, ThreadStack
from weft.model.waits import Wait
from weft.program.descriptors import Ends
from weft.program.live_modules import live_modules
from weft.program.system_calls import NUMBERS
from weft.program.tasks import Memory
from weft.program.waits import Waits

FUNCTIONS = [
    *("pthread_mutex_lock", "pthread_rwlock_wrlock", "pthread_rwlock_rdlock", "pthread_join"),
    *(
        "pthread_cond_wait",
        "sem_wait",
        "fputs",
        "malloc",
        "pthread_once",
        "__timedwait_cp",
        "sub_1",
    ),
    *("take_gil", "runtime.lock2", "<std::sys::sync::mutex::futex::Mutex>::lock_contended"),
]


def frame(function: str) -> StackFrame:
    return StackFrame(FUNCTIONS.index(function) << 12, function, 0, "libc.so.6", None)


@pytest.mark.parametrize(
    ("name", "flags", "waits"),
    [("vfork", 0, True), ("fork", 0, False), ("clone", 0x4000, True), ("clone", 0x11, False)],
)
def test_who_starts_a_process_waits_for_it_only_if_they_share_memory(
    name: str, flags: int, waits: bool
) -> None:
    own = os.getpid()
    call = SystemCall(NUMBERS[name], name, (flags, 0, 0, 0, 0, 0))
    (found,) = Waits(own, [], Ends()).of([ThreadStack(own, "own", "D", (), None, call)])
    assert found is not None and (found.kind == "child") == waits, found


@pytest.mark.parametrize("state", ["X", "Z"])
def test_who_has_ended_waits_for_nothing(state: str) -> None:
    own = os.getpid()
    call = SystemCall(NUMBERS["pause"], "pause", (0,) * 6)
    (found,) = Waits(own, [], Ends()).of([ThreadStack(own, "own", state, (), None, call)])
    assert found is None


def test_nothing_in_memory_or_arguments_can_break_it(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(19)
    own = os.getpid()
    numbers = [0, 1, 2, 3, 16, 128, 129, 137, own, own | 1 << 31, 1 << 31, (1 << 32) - 1, 1 << 63]
    numbers += [(1 << 64) - 1, (1 << 64) - 8, 0x4000_0000, 0x1000, 0x1004, 4, 7, 38]

    def any_word() -> int | None:
        low, high = chance.choice(numbers), chance.choice(numbers)
        return chance.choice([None, low, low & 0xFFFFFFFF | (high & 0xFFFFFFFF) << 32])

    monkeypatch.setattr(Memory, "words", lambda _self, wanted: [any_word() for _ in wanted])
    waits = Waits(own, live_modules(own), Ends())
    kinds = set()
    calls = [*NUMBERS, *["futex"] * 400, *["poll", "select", "wait4", "fcntl", "read"] * 20]
    for name in calls:
        arguments = tuple(chance.choice(numbers) for _ in range(6))
        frames = tuple(frame(one) for one in chance.sample(FUNCTIONS, 3))
        state = chance.choice("SD")
        call = SystemCall(NUMBERS[name], name, arguments)
        thread = ThreadStack(own, "own", state, frames, None, call)
        (found,) = waits.of([thread])
        if found is not None:
            assert isinstance(found, Wait) and found.text.isprintable()
            # It runs, as it looks at itself: nothing of this may be called sure.
            assert found.doubt is not None
            assert all(holder.sure != "sure" for holder in found.holders)
            kinds.add(found.kind)
    assert {"lock", "read-write lock", "condition", "descriptor", "timer", "call"} <= kinds
