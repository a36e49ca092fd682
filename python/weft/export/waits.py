"""What threads wait for, and deadlocks, as JSON has it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from weft.model.stacks import Deadlock, StackFrame, StuckThread
from weft.model.waits import Descriptor, Wait

__all__ = ["deadlock_document", "wait_document"]


def wait_document(wait: Wait | None) -> dict[str, Any] | None:
    """Return what a thread waits for; nothing if it runs.

    ``timeout`` is in seconds; of each holder, ``tid`` is null where any thread of the process may
    end the wait, and ``sure`` is ``sure``, ``shortly after`` or ``possible``. ``only_holders`` says
    that nobody else can end it, and ``doubt`` why any of this may be wrong.
    """
    if wait is None:
        return None
    return {
        "kind": wait.kind,
        "text": wait.text,
        "address": wait.address,
        "symbol": wait.symbol,
        "descriptors": [_descriptor(one) for one in wait.descriptors],
        "timeout": wait.timeout,
        "holders": [asdict(holder) for holder in wait.holders],
        "only_holders": wait.only_holders,
        "doubt": wait.doubt,
    }


def deadlock_document(deadlock: Deadlock) -> dict[str, Any]:
    """Return a circle of waits. Where each thread waits for one other, it is for the next."""
    return {
        "certainty": deadlock.certainty,
        "doubts": list(deadlock.doubts),
        "threads": [_thread(one) for one in deadlock.threads],
        "behind": [{"pid": pid, "tid": tid} for pid, tid in deadlock.behind],
    }


def _descriptor(one: Descriptor) -> dict[str, Any]:
    return {**asdict(one), "watches": [_descriptor(other) for other in one.watches]}


def _thread(one: StuckThread) -> dict[str, Any]:
    return {
        "pid": one.pid,
        "tid": one.tid,
        "name": one.name,
        "process": one.process,
        "waits_for": wait_document(one.waits_for),
        "at": None if one.at is None else _frame(one.at),
    }


def _frame(frame: StackFrame) -> dict[str, Any]:
    location = frame.location
    return {
        "function": frame.function,
        "module": frame.module,
        "file": None if location is None else location.file,
        "line": None if location is None else location.line,
        "inlined": frame.inlined,
    }
