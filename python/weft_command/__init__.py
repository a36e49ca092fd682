"""The command ``weft``, before anything of weft is imported.

It is a package of its own because importing any module of ``weft`` imports the library first, which
takes long enough for a Ctrl-C to come in between.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

_LOOK_FOR_CYCLES = (50_000, 20, 20)
"""After how many objects Python looks for cycles among them. Commands keep most of what they build
up: with Python's own 700, looking took a fifth of the time of a profile."""


def main() -> None:
    """Run the command line; until it is there, Ctrl-C ends the process without a word."""
    # Nothing has been started or attached to yet. Where it is ignored, it stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _open_streams()
    _forget_locale()
    gc.set_threshold(*_LOOK_FOR_CYCLES)
    from weft.base import interrupts as _interrupts

    with _interrupts.orderly():
        from weft.cli import main as command

        command(prog_name="weft")


def _forget_locale() -> None:
    """Take away what Python has put into the environment for itself: programs would inherit it.

    Where no locale is set, it sets one before anything of a script is executed.
    """
    if os.environ.get("LC_CTYPE", "") in ("C.UTF-8", "C.utf8", "UTF-8"):
        try:
            # As `_open_streams`: importing more takes too long.
            with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
                given = file.read().split(b"\0")
        except OSError:
            return
        if not any(one.startswith(b"LC_CTYPE=") for one in given):
            del os.environ["LC_CTYPE"]


def _open_streams() -> None:
    """Have somewhere to write where whoever started weft has closed a standard stream.

    What is started does not inherit it: it finds the stream closed, as without weft.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # As a descriptor: importing more takes longer than a Ctrl-C may be waited for.
            nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            setattr(sys, name, os.fdopen(nothing, "w"))
