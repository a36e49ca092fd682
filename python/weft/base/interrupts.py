"""Signals that ask the command line to end: at any moment, and the target is given back first.

A signal that raised an exception wherever the interpreter happens to be could do so between a
target being taken and the ``with`` block that gives it back. So it does not while a target is
held: the signal waits until the command comes to an :func:`interruptible` part, which is where it
lets time pass; there it ends the wait. While nothing is held, it ends the command at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

__all__ = ["Interrupted", "hand_over", "heed", "interruptible", "orderly", "raise_again"]

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask a command to end."""

_LATER = b"weft: the process is given back first; this can take some seconds\n"


class Interrupted(BaseException):
    """A signal asks the command to end; no KeyboardInterrupt, which libraries deal with."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """The exit code of a command that a signal has ended, as shells have it."""
        return 128 + self.number


class _State:
    """What becomes of a signal, and one that has come while a target was held."""

    def __init__(self) -> None:
        self.react: Callable[[int], None] | None = None
        self.pending: int | None = None
        self.raised: int | None = None
        """One that ends the interruptible part that the command is in."""

    def handle(self, number: int, _frame: FrameType | None) -> None:
        if self.react is not None:
            self.react(number)
            return
        is_holding = _is_holding()
        if is_holding and self.pending is not None:
            # Who asks twice wants to know why nothing happens.
            os.write(2, _LATER)
        self.pending = number
        if not is_holding:
            # This is lost in a finalizer or a weak reference's callback, as every import has one.
            # Then the signal stays pending, and takes effect at the next interruptible part.
            raise Interrupted(number)

    def stop(self, number: int) -> NoReturn:
        """End what can be interrupted; what follows gives the target back, and cannot be."""
        self.react = None
        # This can be lost as well: code that waits in an interruptible part checks for it again.
        self.raised = number
        raise Interrupted(number)


_state = _State()


def _is_holding() -> bool:
    # Before the core is loaded there is nothing to hold.
    core = sys.modules.get("weft._native")
    return core is not None and bool(core.is_holding())


@contextmanager
def interruptible(react: Callable[[int], None] | None = None) -> Iterator[None]:
    """Let signals take effect: raise :class:`Interrupted` inside, or do something else.

    One that has come before takes effect at once. A program that answers signals itself goes on to.
    """
    before = _state.react
    _state.react = react or before or _state.stop
    try:
        _deliver()
        yield
    except Interrupted:
        _state.raised = None
        raise
    finally:
        _state.react = before
        if _state.raised is not None:
            # It was lost inside, or became another exception: it still waits to take effect.
            _state.pending, _state.raised = _state.raised, None


def hand_over(react: Callable[[int], None]) -> None:
    """Replace what signals do from now on: for a program that handles them itself."""
    _state.react = react
    _deliver()


def raise_again() -> None:
    """Raise :class:`Interrupted` once more if a signal has and it was lost.

    An exception is lost in finalizers and callbacks, and an import may make another one of it. To
    be called again and again where time passes in an interruptible part, and before an exception
    is taken for a fault of weft's.
    """
    if _state.raised is not None:
        raise Interrupted(_state.raised)
    if _state.pending is not None and not _is_holding():
        raise Interrupted(_state.pending)


def heed(*numbers: signal.Signals) -> None:
    """Handle signals even if the parent process has set them to be ignored."""
    for number in numbers:
        signal.signal(number, _state.handle)


def _deliver() -> None:
    number, _state.pending = _state.pending, None
    if number is not None and _state.react is not None:
        _state.react(number)


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    # A signal that came in a finalizer: it is pending, there is nothing to report.
    if not isinstance(lost.exc_value, Interrupted):
        sys.__unraisablehook__(lost)


@contextmanager
def orderly() -> Iterator[None]:
    """Handle the signals while a command runs; one that ends it gives the exit code of a shell."""
    # What is ignored stays so: by nohup, or in the background of a shell without job control.
    heed(*(number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN))
    sys.unraisablehook = _unraisable
    try:
        yield
    except Interrupted as error:
        sys.exit(error.exit_code)
    finally:
        # The interpreter is about to end, and takes what it has left to do with it.
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
