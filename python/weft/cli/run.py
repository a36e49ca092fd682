"""Run a program with weft in it."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

import click

import weft
from weft.cli.output import format_option, print_json

#: Signals that ask weft to end are for the program to answer.
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
@format_option
@click.pass_context
def command(ctx: click.Context, program: tuple[str, ...], output_format: str) -> None:
    """Run a program with weft in it.

    The program's input, output and exit code are its own; a program that a signal ends gives 128
    plus the signal's number. With --format json a summary is written to standard error when it has
    ended.

    \b
    Examples:
      weft run -- ls -l
      weft run --format json -- sqlite3 :memory: 'select 1;'
    """
    session = weft.run(program)

    def forward(number: int, _frame: FrameType | None) -> None:
        os.kill(session.pid, number)

    for number in FORWARDED:
        signal.signal(number, forward)
    # Ctrl-C reaches the program directly: whether to end is its decision.
    signal.signal(signal.SIGINT, lambda _number, _frame: None)

    code = session.wait()
    pauses = session.pauses()
    session.detach()
    if output_format == "json":
        print_json(
            {
                "schema": 1,
                "target": {"pid": session.pid, "command": list(program), "exit_code": code},
                "pauses": [
                    {"seconds": pause.seconds, "threads": pause.threads} for pause in pauses
                ],
            },
            file=sys.stderr,
        )
    ctx.exit(code or 0)
