"""Calls that do not return: their times end where they are left, and nothing stays inside."""

from __future__ import annotations

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


def is_close(measured: float, truth: float) -> bool:
    """Whether a time is the program's own, but for what the program does between its two clocks.

    A thread that stands still because of a busy machine stands still for both clocks, unless it
    does so between them: what is wrong here is wrong by far more than half.
    """
    return truth * 0.5 < measured < truth * 1.5 + 5e-3


@pytest.mark.alone
@pytest.mark.parametrize("weaver", ["patch", "clone"])
@pytest.mark.parametrize("how", WAYS)
def test_times_and_constraints_end_with_the_call(how: str, weaver: Weaver, build: Build) -> None:
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
        assert isinstance(inclusive.value, float)
        assert is_close(inclusive.value, truth["ns"] / 1e9), (inclusive.value, truth)
        once, again = inclusive.value, inclusive.value
        assert once == again, "it still runs"
        assert inclusive.left == counted.left == 0
        # Latencies are those of calls that returned; how many did not is known.
        assert isinstance(latency.value, weft.Histogram)
        assert latency.value.count == truth["returned"]
        assert isinstance(calls.value, int)
        assert latency.left == calls.value - truth["returned"]


@pytest.mark.alone
@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_what_is_left_on_one_stack_is_not_left_on_another(weaver: Weaver, build: Build) -> None:
    with leaving(build("leaving"), "k") as program, session_of(program.pid, weaver) as session:
        focus = "/Code/leaving/timed_coroutine"
        inclusive, latency = (session.metric(name, focus) for name in ("inclusive_time", "latency"))
        truth = program.work()
        assert isinstance(inclusive.value, float) and isinstance(latency.value, weft.Histogram)
        assert is_close(inclusive.value, truth["ns"] / 1e9), (inclusive.value, truth)
        assert latency.value.count == truth["returned"]
        assert inclusive.left == latency.left == 0


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
