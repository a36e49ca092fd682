"""Hypotheses are files; what they claim, how sure they are, and what they are narrowed down to."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from weft.errors import InvalidArgument
from weft.model.program import SourceLocation
from weft.model.sampled import PlaceTime, SampledTime, ThreadTime
from weft.model.stacks import StackFrame
from weft.model.waits import Descriptor, Holder, Wait
from weft.program.futexes import _is_for_news
from weft.why.focus import narrow
from weft.why.hypotheses import load
from weft.why.measures import Counters, faults, imbalance, processors
from weft.why.search import _interval
from weft.why.spots import Spot, spots

NAMES = {
    *("cpu", "lock_wait", "io_wait", "peer_wait", "allocation", "page_faults", "syscalls"),
    *("run_queue", "imbalance", "spinning"),
}

OWN = """
name = "logging"
title = "writing the log"
threshold = 0.1
text = "{share} of its time goes into the log, in {focus}."
[[time]]
state = "running"
functions = ["log_*"]
"""


def frame(function: str, module: str = "prog") -> StackFrame:
    return StackFrame(0x1000, function, 0, module, None)


def spot(*functions: str, **more: object) -> Spot:
    frames = tuple(frame(name) for name in functions)
    base = Spot("running", 1.0, 10, 7, "worker", frames, functions)
    return replace(base, **more)  # type: ignore[arg-type]


def owner(one: Spot) -> str | None:
    return next((known.name for known in load() if known.claims(one)), None)


def test_all_are_there() -> None:
    found = load()
    assert {one.name for one in found} == NAMES
    assert all(one.advice and one.title for one in found)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (spot("compute", "main"), "cpu"),
        (spot("_int_malloc", "malloc", "parse", "main"), "allocation"),
        (spot("operator new(unsigned long)", "parse"), "allocation"),
        (spot("write", "log", call="write"), "syscalls"),
        (spot("wait_for_it", spins=True), "spinning"),
        (spot("sched_yield", "spin", call="sched_yield"), "spinning"),
        (spot("f", state="blocked", wait=Wait("lock", "mutex m")), "lock_wait"),
        (spot("epoll_wait", "ProcSleep", "LockAcquire", state="blocked"), "lock_wait"),
        (spot("f", state="blocked", wait=Wait("device", "data")), "io_wait"),
        (spot("f", state="blocked", asks=True), "peer_wait"),
        (spot("f", state="blocked", wait=Wait("memory", "a page")), "page_faults"),
        (spot("f", state="blocked", wait=Wait("condition", "work")), None),
        (spot("f", state="blocked", wait=Wait("timer", "1 s to pass")), None),
        # What it would do, if it had its turn.
        (spot("malloc", "parse", state="runnable"), "allocation"),
    ],
)
def test_time_speaks_for_one(one: Spot, expected: str | None) -> None:
    assert owner(one) == expected


def test_a_user_adds_one(tmp_path: Path) -> None:
    (tmp_path / "logging.toml").write_text(OWN)
    found = {one.name: one for one in load([tmp_path])}
    assert set(found) == NAMES | {"logging"}
    assert found["logging"].claims(spot("log_write", "main"))
    # Time belongs to one hypothesis: the user's come first.
    assert next(iter(load([tmp_path]))).name == "logging"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("threshold = 0.1", "", "threshold"),
        ("threshold = 0.1", "threshold = 7", "share"),
        ('state = "running"', 'state = "asleep"', "running, blocked"),
        ("[[time]]", "colour = 3\n[[time]]", "colour"),
        ("functions", "funktions", "funktions"),
        ('["log_*"]', '"log_*"', "list of texts"),
        ("{share}", "{shore}", "shore"),
        ("name = ", "name", "is no hypothesis"),
        (OWN[OWN.index("[[time]]") :], "", "[[time]]"),
        ("threshold", 'focus = "moon"\nthreshold', "focus is one of"),
        ("threshold", 'measure = "moon"\nthreshold', "measure is one of"),
    ],
)
def test_one_that_is_wrong_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    path = tmp_path / "logging.toml"
    path.write_text(OWN.replace(old, new, 1))
    with pytest.raises(InvalidArgument) as refused:
        load([tmp_path])
    assert why in str(refused.value) and str(path) in str(refused.value)


def test_a_folder_that_is_none() -> None:
    with pytest.raises(InvalidArgument, match="no folder"):
        load([Path("/nowhere/at/all")])


def test_intervals_shrink_with_looks() -> None:
    few, many = _interval(0.5, 10), _interval(0.5, 1000)
    assert few[0] < many[0] < 0.5 < many[1] < few[1]
    assert _interval(0.0, 100)[0] == 0.0 and _interval(1.0, 100)[1] <= 1.0
    assert _interval(0.3, 0) == (0.0, 1.0)


def hypothesis(name: str):  # type: ignore[no-untyped-def]
    return next(one for one in load() if one.name == name)


def test_a_function_is_named_with_its_callers() -> None:
    claimed = [
        replace(spot("dictNext", "keysCommand", "call", "main"), seconds=6.0),
        replace(spot("readQuery", "main"), seconds=1.0),
    ]
    (first, share), *_ = narrow(hypothesis("cpu"), claimed)
    assert first == "dictNext (prog), called by keysCommand from call" and share == 6 / 7


def test_an_allocation_is_its_callers() -> None:
    stack = (frame("_int_malloc", "libc.so.6"), frame("malloc", "libc.so.6"), frame("parse"))
    one = replace(spot(), frames=stack, names=tuple(one.function or "" for one in stack))
    assert narrow(hypothesis("allocation"), [one])[0][0].startswith("parse (prog)")


def test_many_small_functions_are_those_of_one() -> None:
    claimed = [spot(f"leaf_{number}", "render", "main") for number in range(10)]
    assert narrow(hypothesis("cpu"), claimed)[0][0] == "render (prog) and what it calls"


@pytest.mark.parametrize(
    "stub",
    [
        "_complete_monitor_locking_Java",
        "C2 Runtime complete_monitor_locking_blob",
        "monitorenter_nofpu Runtime1 stub",
    ],
)
def test_a_lock_of_java_is_that_of_a_method(stub: str) -> None:
    """Code of the virtual machine lies between its libraries and the method that has called it."""
    machine = ("__futex_abstimed_wait_common", "libc.so.6"), ("ObjectMonitor::enter", "libjvm.so")
    compiled = (stub, ""), ("void Accounts.book(long)", "")
    stack = tuple(frame(*one) for one in machine + compiled)
    one = replace(spot(state="blocked"), frames=stack, names=tuple(f.function or "" for f in stack))
    (first, _), *_ = narrow(hypothesis("lock_wait"), [one])
    assert first == "a lock, by ObjectMonitor::enter in void Accounts.book(long)"


def test_a_lock_has_a_holder() -> None:
    wait = Wait("lock", "mutex m held by thread 9 'w'", holders=(Holder(1, 9, "w"),))
    one = spot("update", state="blocked", wait=wait, holders=(("thread 9 'w'", 3),))
    assert narrow(hypothesis("lock_wait"), [one])[0][0] == (
        "mutex m, in update (prog), held by thread 9 'w'"
    )


def sampled(
    threads: list[ThreadTime],
    waits: dict[int, tuple[str, str]],
    together: dict[tuple[int, ...], int],
) -> SampledTime:
    places = [
        PlaceTime(
            thread.tid,
            True,
            (frame("wait"), frame(waits[thread.tid][0])),
            None,
            "futex",
            None,
            Wait(waits[thread.tid][1], "it"),  # type: ignore[arg-type]
            (),
            10,
            0.0,
            0.0,
            max(thread.blocked, 0.01),
        )
        for thread in threads
    ]
    return SampledTime(1, "p", 10.0, 100, 0.0, tuple(threads), tuple(places), (*together.items(),))


def thread(tid: int, running: float) -> ThreadTime:
    return ThreadTime(tid, f"w{tid}", 10.0, running, 0.0)


def test_one_of_a_kind_has_all_the_work() -> None:
    threads = [thread(2, 9.5), thread(3, 1.0), thread(4, 1.0), thread(5, 1.0)]
    waits = {one.tid: ("work", "barrier") for one in threads}
    found = imbalance(sampled(threads, waits, {(2,): 90, (2, 3, 4, 5): 10}))
    assert found is not None and found.busy.tid == 2
    assert found.share == pytest.approx(1 - (9.5 + 3) / 4 / 9.5)


def test_a_serial_part_while_a_pool_waits() -> None:
    threads = [thread(1, 8.0), thread(2, 2.0), thread(3, 2.0)]
    waits = {1: ("main", "condition"), 2: ("work", "condition"), 3: ("work", "condition")}
    found = imbalance(sampled(threads, waits, {(1,): 80, (2, 3): 20}))
    assert found is not None and found.busy.tid == 1


@pytest.mark.parametrize(
    "loads",
    [
        (5.0, 5.0, 5.0),
        (9.0, 0.0, 0.0),
        (1.0, 0.5, 0.2),
    ],
    ids=["even", "others never work", "nobody is busy"],
)
def test_no_imbalance(loads: tuple[float, ...]) -> None:
    threads = [thread(2 + number, load) for number, load in enumerate(loads)]
    waits = {one.tid: ("work", "condition") for one in threads}
    assert imbalance(sampled(threads, waits, {(2, 3, 4): 100})) is None


def test_processors_are_those_that_may_be_used() -> None:
    before = os.sched_getaffinity(0)
    assert processors(os.getpid()) == len(before)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert processors(os.getpid()) == 1
    finally:
        os.sched_setaffinity(0, before)


def test_faults_take_what_is_not_in_calls() -> None:
    before = Counters(0.0, 0, 0.0, 0.0)
    assert faults(before, Counters(10.0, 500, 5.0, 5.0), 0.0).seconds == 0.0
    many = faults(before, Counters(10.0, 4_000_000, 2.0, 8.0), 3.0)
    assert many.rate == 400_000 and 0 < many.seconds <= 8.0


@pytest.mark.parametrize(
    ("one", "served", "asks"),
    [
        (
            Descriptor(3, "socket", "tcp socket", 5, "tcp", "1.1.1.1:40000", "2.2.2.2:80"),
            False,
            True,
        ),
        (
            Descriptor(3, "socket", "tcp socket", 5, "tcp", "1.1.1.1:80", "2.2.2.2:4000"),
            True,
            False,
        ),
        (Descriptor(3, "socket", "udp socket", 5, "udp", "0.0.0.0:53"), False, False),
        (Descriptor(3, "socket", "udp socket", 5, "udp", "0.0.0.0:45000"), False, True),
        (Descriptor(0, "pipe", "pipe 7", 7), False, True),
        (Descriptor(0, "terminal", "/dev/pts/0"), False, False),
    ],
)
def test_who_asks(one: Descriptor, served: bool, asks: bool) -> None:
    place = PlaceTime(
        *(7, True, (frame("read"),), None, "read", None),
        *(Wait("descriptor", "data", descriptors=(one,)), (), 1, 0.0, 0.0, 1.0),
    )
    found = SampledTime(1, "p", 1.0, 10, 0.0, (), (place,))
    (result,) = spots(found, lambda _: False, lambda _: served, lambda _: False)
    assert result.asks == asks


def python_frame(function: str, file: str) -> StackFrame:
    return replace(frame(function), language="python", location=SourceLocation(file, 3))


@pytest.mark.parametrize(
    ("function", "file", "is_news"),
    [
        ("Condition.wait", "/usr/lib/python3.11/threading.py", True),
        ("Thread._wait_for_tstate_lock", "/usr/lib/python3.11/threading.py", True),
        ("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py", True),
        ("Cache.read_row", "/srv/cache.py", False),
        ("wait", "/srv/threads.py", False),
    ],
)
def test_what_python_makes_of_locks(function: str, file: str, is_news: bool) -> None:
    """Conditions, queues and the end of threads are no locks that somebody holds for long."""
    frames = (frame("PyThread_acquire_lock_timed"), python_frame(function, file))
    assert _is_for_news(frames) == is_news


def test_of_a_call_of_unknown_number_the_caller_is_named() -> None:
    (hypothesis,) = (one for one in load() if one.name == "syscalls")
    functions = ("runtime/internal/syscall.Syscall6", "syscall.fstatat", "main.main")
    (part,) = narrow(hypothesis, [spot(*functions, call="a system call")])
    assert part[0] == "a system call from main.main (prog)"
    (part,) = narrow(hypothesis, [spot(*functions, call="newfstatat")])
    assert part[0] == "newfstatat from runtime/internal/syscall.Syscall6 (prog)"
