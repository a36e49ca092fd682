"""Stacks of a process that seldom has its turn: to stop, a thread must run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.e2e.test_stacks import rest, waiting
from weft import _native
from weft.program.stacks import read_stacks

Build: TypeAlias = Callable[[str], Path]

LOOKS = 20
NICE = 15
"""Beside this many others, a process as nice as this has its turn a few times a second."""
OTHERS = 3
BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


@contextmanager
def busy(processor: int) -> Iterator[None]:
    """Keep a processor busy."""
    with ExitStack() as others:
        for _ in range(OTHERS):
            other = subprocess.Popen([sys.executable, "-c", BUSY, str(processor)])
            others.callback(other.wait)
            others.callback(other.kill)
        yield


@pytest.mark.alone
def test_threads_that_seldom_have_their_turn_are_waited_for(build: Build) -> None:
    processors = sorted(os.sched_getaffinity(0))
    with waiting(build("stacks_frame_pointers")) as pid:
        rest(pid)
        for tid, *_ in _native.threads(pid):
            os.sched_setaffinity(tid, {processors[0]})
            os.setpriority(os.PRIO_PROCESS, tid, NICE)
        os.sched_setaffinity(0, set(processors[1:]) or {*processors})
        try:
            with busy(processors[0]):
                found = [read_stacks(pid).threads for _ in range(LOOKS)]
        finally:
            os.sched_setaffinity(0, processors)
    cut = [[(one.name, one.cut) for one in threads if not one.is_whole] for threads in found]
    # The machine may be paused itself, now and then.
    assert sum(map(bool, cut)) <= LOOKS // 4, cut
