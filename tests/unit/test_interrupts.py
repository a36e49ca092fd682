"""Signals that ask a command to end, at moments at which an exception is lost."""

from __future__ import annotations

import os
import signal
import sys
import weakref
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from weft.base import interrupts as _interrupts
from weft.base.interrupts import Interrupted, interruptible, raise_again


@pytest.fixture
def is_heeded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """SIGTERM is handled as the command line does it, while a target is held."""
    monkeypatch.setattr(_interrupts, "_state", _interrupts._State())
    monkeypatch.setitem(sys.modules, "weft._native", SimpleNamespace(is_holding=lambda: True))
    monkeypatch.setattr(sys, "unraisablehook", _interrupts._unraisable)
    before = signal.getsignal(signal.SIGTERM)
    _interrupts.heed(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


class Thing:
    """Something that others can refer to weakly."""


def interrupt_in_callback() -> None:
    """Have a signal come where exceptions are lost, as an import has such places."""
    thing = Thing()
    reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    del thing
    assert reference() is None


@pytest.mark.usefixtures("is_heeded")
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_that_is_lost_ends_the_wait_that_follows(times: int) -> None:
    with pytest.raises(Interrupted), interruptible():
        for _ in range(times):
            interrupt_in_callback()
        raise_again()
    # It is over: what follows is not interrupted by it.
    raise_again()


@pytest.mark.usefixtures("is_heeded")
def test_a_signal_that_is_lost_in_one_part_ends_the_next() -> None:
    with interruptible():
        interrupt_in_callback()
    with pytest.raises(Interrupted), interruptible():
        raise AssertionError("the signal takes effect first")


@pytest.mark.usefixtures("is_heeded")
def test_an_exception_that_a_signal_became_in_such_a_part_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SyntaxError), interruptible():
        interrupt_in_callback()
        raise SyntaxError
    # By the time that it is reported, the target has been given back.
    monkeypatch.setitem(sys.modules, "weft._native", SimpleNamespace(is_holding=lambda: False))
    with pytest.raises(Interrupted):
        raise_again()


@pytest.mark.usefixtures("is_heeded")
def test_a_signal_while_a_target_is_held_waits() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    raise_again()
    with pytest.raises(Interrupted), interruptible():
        raise AssertionError("the signal takes effect first")


@pytest.mark.usefixtures("is_heeded")
def test_a_signal_that_became_another_exception_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a module that the compiler needs makes a SyntaxError of it."""
    monkeypatch.setitem(sys.modules, "weft._native", SimpleNamespace(is_holding=lambda: False))
    with pytest.raises(Interrupted):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Interrupted:
            raise_again()
