"""Run a program with weft in it."""

from __future__ import annotations

import sys
from typing import Any

import click

import weft
from weft.cli import clone, measure
from weft.cli.output import forward_signals, print_json


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
@clone.options
@measure.options
@click.pass_context
def command(ctx: click.Context, /, program: tuple[str, ...], **options: Any) -> None:
    """Run a program with weft in it.

    The program's input, output and exit code are its own; a program that a signal ends gives 128
    plus the signal's number. What is measured is written to standard error, or with -o to a file.
    Children that the program forks are measured with it, other programs that it starts are not.

    \b
    Examples:
      weft run -m calls@/Code/libc.so.6/malloc -- ls -l
      weft run -e 'entry malloc { bytes += $arg[0]; count++ }' -- ls -l
      weft run -m alloc_bytes -o out.json --format json -- sqlite3 :memory: 'select 1;'
      weft run --weaver clone --stats -- ls -l
      weft run --weaver clone -m calls@/Code/libc.so.6/malloc -- ls -l
    """
    if options.pop("weaver") == "clone":
        ctx.exit(clone.run(program, options))
    clone.refuse(options)
    wanted = measure.wish(options)
    session = weft.run(program)
    forward_signals(session.pid)

    if not wanted.is_empty:
        wait, prepare = session.wait, session.run_to_entry
        ended = measure.measure_to_end(session, wanted, program, wait, prepare)
        session.detach()
        ctx.exit(ended)
    code = session.wait()
    pauses = session.pauses()
    session.detach()
    if wanted.output_format == "json":
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
