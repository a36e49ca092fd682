"""Threads of Python that sleep in known places; prints what the interpreter itself says of them."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType


class Worker:
    def run(self) -> None:
        self.step(3)

    def step(self, depth: int) -> list[int]:
        if depth:
            return self.step(depth - 1)
        # From C code back into Python.
        return sorted([3, 1, 2], key=lambda value: (sleep(), value)[1])


def generator() -> Iterator[int]:
    yield from inner()


def inner() -> Iterator[int]:
    sleep()
    yield 1


def größe() -> None:
    exec("sleep()", {"sleep": sleep})


def sleep() -> int:
    waiting.release()
    time.sleep(600)
    return 0


def outermost() -> None:
    max([0], key=lambda _: (sleep(), 0)[1])


waiting = threading.Semaphore(0)
for target in (Worker().run, lambda: list(generator()), größe, outermost):
    threading.Thread(target=target, daemon=True).start()
for _ in range(4):
    waiting.acquire()
time.sleep(0.2)
found = {}
for thread in threading.enumerate():
    assert thread.ident is not None
    frame: FrameType | None = sys._current_frames()[thread.ident]
    frames: list[list[object]] = []
    while frame is not None:
        name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
        frames.append([name, frame.f_code.co_filename, frame.f_lineno])
        frame = frame.f_back
    if thread is not threading.main_thread():
        found[thread.native_id] = frames
print(json.dumps(found), flush=True)
sys.stdin.readline()
