"""Calls that do not return: their times end where they are left, and nothing stays inside."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

import weft
from tests.clone import session_of

Build = Callable[[str], Path]
Truth: TypeAlias = dict[str, int]
Weaver: TypeAlias = Literal["patch", "clone"]

ROUNDS = 20
RUNS = 4

COUNTED = """
    import "constraints.mdl";
    list counted_only is procedure { items { "counted" }; }
    metric counted_calls {
      constraint procedure;
      base is counter {
        foreach func in counted_only append preInsn func.entry constrained (* counted_calls++; *)
      }
    }
"""

WAYS = {
    "returns": "r",
    "longjmp": "j",
    "siglongjmp out of a handler": "s",
    "an exception": "t",
    "an exception through several": "n",
    "pthread_exit": "x",
    "pthread_cancel": "c",
}


class Leaving:
    """The program: see ``leaving.cpp``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process

    def work(self) -> Truth:
        """Have it do its rounds, and return what it knows of them."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        truth: Truth = json.loads(self._process.stdout.readline())
        return truth


@contextmanager
def leaving(program: Path, how: str) -> Iterator[Leaving]:
    with subprocess.Popen(
        [program, how, str(ROUNDS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "ready\n"
        try:
            yield Leaving(process)
            process.stdin.write("\n")
            process.stdin.close()
            assert process.wait(timeout=60) == 7
        finally:
            process.kill()


def is_close(measured: object, truth: Truth) -> bool:
    """Whether a time is the program's own, but for what the program does between its two clocks."""
    assert isinstance(measured, float)
    seconds = truth["ns"] / 1e9
    return seconds * 0.5 < measured < seconds * 1.5 + 5e-3


def agrees_once(measure: Callable[[], bool]) -> bool:
    """Whether the times agree in one of a few runs.

    A thread that loses its processor between the program's clock and weft's makes them differ; a
    call whose time does not end where it is left makes them differ in every run.
    """
    return any(measure() for _ in range(RUNS))


@pytest.mark.alone
@pytest.mark.parametrize("weaver", ["patch", "clone"])
@pytest.mark.parametrize("how", WAYS)
def test_times_and_constraints_end_with_the_call(how: str, weaver: Weaver, build: Build) -> None:
    def measure() -> bool:
        with (
            leaving(build("leaving"), WAYS[how]) as program,
            session_of(program.pid, weaver) as session,
        ):
            session.load_metrics(COUNTED)
            focus = "/Code/leaving/timed"
            inclusive = session.metric("inclusive_time", focus)
            latency = session.metric("latency", focus)
            calls = session.metric("calls", focus)
            counted = session.metric("counted_calls", focus)
            truth = program.work()
            assert counted.value == truth["inside"]
            once, again = inclusive.value, inclusive.value
            assert once == again, "it still runs"
            assert inclusive.left == counted.left == 0
            # Latencies are those of calls that returned; how many did not is known.
            assert isinstance(latency.value, weft.Histogram)
            assert latency.value.count == truth["returned"]
            assert isinstance(calls.value, int)
            assert latency.left == calls.value - truth["returned"]
            return is_close(once, truth)

    assert agrees_once(measure)


@pytest.mark.alone
@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_what_is_left_on_one_stack_is_not_left_on_another(weaver: Weaver, build: Build) -> None:
    def measure() -> bool:
        with leaving(build("leaving"), "k") as program, session_of(program.pid, weaver) as session:
            focus = "/Code/leaving/timed_coroutine"
            names = ("inclusive_time", "latency")
            inclusive, latency = (session.metric(name, focus) for name in names)
            truth = program.work()
            assert isinstance(latency.value, weft.Histogram)
            assert latency.value.count == truth["returned"]
            assert inclusive.left == latency.left == 0
            return is_close(inclusive.value, truth)

    assert agrees_once(measure)


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_what_cannot_be_seen_is_counted(weaver: Weaver, build: Build) -> None:
    """A jump that the compiler makes itself passes no function that weft knows."""
    with leaving(build("leaving"), "b") as program, session_of(program.pid, weaver) as session:
        session.load_metrics(COUNTED)
        focus = "/Code/leaving/timed"
        names = ("inclusive_time", "latency", "counted_calls")
        inclusive, latency, counted = (session.metric(name, focus) for name in names)
        truth = program.work()
        # Each is found out at the next call.
        assert truth["entered"] - truth["returned"] == ROUNDS
        assert inclusive.left == latency.left == counted.left == ROUNDS
        assert isinstance(latency.value, weft.Histogram)
        assert latency.value.count == truth["returned"]


# --- Coroutines ---------------------------------------------------------------------------------

LONGEST_SCHEDULE = 4
LATE = 25e-6
"""How much longer a call may be by weft's clock than by the program's, in seconds: half a pause."""
TRIES = 20
"""How often a schedule is repeated in which the thread lost the processor between the two."""


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_times_of_coroutines_are_right_or_marked(weaver: Weaver, build: Build) -> None:
    """Of all short schedules: calls are suspended while others run, on stacks above and below."""
    schedules = [
        "".join(steps)
        for length in range(1, LONGEST_SCHEDULE + 1)
        for steps in itertools.product("012m", repeat=length)
    ]
    program = subprocess.Popen(
        [build("coroutine_schedule")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with program, session_of(program.pid, weaver) as session:
        assert program.stdin and program.stdout
        assert program.stdout.readline() == "ready\n"
        metric = session.metric("inclusive_time", "/Code/coroutine_schedule/work")

        def follow(schedule: str) -> tuple[float, int]:
            """Return how far off the time is, and how many calls are marked."""
            assert program.stdin and program.stdout
            value, left = metric.value, metric.left
            program.stdin.write(schedule + "\n")
            program.stdin.flush()
            truth = int(program.stdout.readline()) * 1e-9
            assert isinstance(value, float) and isinstance(metric.value, float)
            return metric.value - value - truth, metric.left - left

        exact = 0
        for schedule in schedules:
            off, left = follow(schedule)
            for _ in range(TRIES):
                if left or abs(off) < LATE:
                    break
                off, left = follow(schedule)
            assert left or abs(off) < LATE, (schedule, off)
            exact += not left
        # What only one of them is suspended in is not marked.
        assert len(schedules) // 4 < exact < len(schedules)
        program.stdin.close()
        assert program.wait(30) == 0
