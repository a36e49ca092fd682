"""Watch where a program's calls and time go, function by function."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

import weft
from weft.base.interrupts import interruptible
from weft.cli import measure
from weft.cli.inputs import Launching, process_id
from weft.cli.printing import echo
from weft.errors import InvalidArgument


@click.command(cls=Launching)
@click.argument(
    "target", nargs=-1, required=True, type=click.UNPROCESSED, metavar="PID|NAME|-- CMD..."
)
@measure.interval_option
@click.option(
    "--budget",
    metavar="PERCENT",
    default="5%",
    show_default=True,
    help="How much of its time the target may lose at most; none for no limit.",
)
def command(target: tuple[str, ...], interval: float, budget: str) -> None:
    """Watch where a program's calls and time go, function by function.

    Shows how often each function of the program is called, of a process PID or of a program CMD
    that is started. Keys add times, the latency of a function and its callers, narrow all to a
    thread, sort and search: ? lists them. q leaves the target as it was; a program that was started
    runs on. What it writes to the terminal is dropped: to keep it, redirect standard output.

    What is on the screen is measured, as far as it fits into the budget: what is called too often
    for that is an estimate (~), or "too hot". Where keys come faster than weft can follow at small
    cost, their numbers come up to four seconds later.

    \b
    Examples:
      weft top 4711
      weft top redis-server --budget 2%
      weft top --interval 0.5 -- python3 -c 'sum(range(10**9))'
      weft top -- ./server --port 7000 > server.log
    """
    share = measure.share(budget)
    pid = process_id(target)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidArgument(
            "weft top needs a terminal",
            "its standard input or standard error is none",
            "`weft attach PID -m calls` writes lines that can be redirected",
        )
    # Drawing takes processor time that the target may need. Textual looks at this when it is
    # imported; a program that is started is not to find it.
    is_set = "TEXTUAL_FPS" in os.environ
    os.environ.setdefault("TEXTUAL_FPS", "15")
    # Textual is large: only who watches waits for it.
    from weft.ui.source import SessionSource
    from weft.ui.top import Top

    if not is_set:
        del os.environ["TEXTUAL_FPS"]
    started = () if pid is not None else target
    session = _start(target) if pid is None else weft.attach(pid)
    try:
        app = Top(SessionSource(session, started, share), interval, lets_others_first=True)
        with interruptible(app.end_by):
            app.run()
    finally:
        session.detach()
    if app.fault is not None:
        raise app.fault
    if started and not app.has_ended:
        echo(f"{started[0]} (process {session.pid}) runs on, without weft in it")


def _start(program: tuple[str, ...]) -> weft.Session:
    """Start a program that stays off the screen, up to where its libraries are loaded."""
    with Path(os.devnull).open("r+b") as nothing:
        output = nothing if sys.stdout.isatty() else None
        session = weft.run(program, stdin=nothing, stdout=output, stderr=nothing)
    session.run_to_entry()
    return session
