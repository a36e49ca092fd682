"""The command ``weft``, before anything of weft is imported.

It is a package of its own because importing any module of ``weft`` imports the library first, which
takes long enough for a Ctrl-C to come in between.
"""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line; until it is there, Ctrl-C ends the process without a word."""
    # Nothing has been started or attached to yet. Where it is ignored, it stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from weft import _interrupts

    with _interrupts.orderly():
        from weft.cli import main as command

        command(prog_name="weft")
