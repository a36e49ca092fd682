"""Run a program with weft in it."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import click

import weft
from weft import errors
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
    """
    if options.pop("weaver") == "clone":
        ctx.exit(clone.run(program, options))
    clone.refuse(options)
    wanted = measure.wish(options)
    session = weft.run(program)
    forward_signals(session.pid)

    if not wanted.is_empty:
        ctx.exit(_measure(session, wanted, program))
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


def _measure(session: weft.Session, wanted: measure.Wish, program: tuple[str, ...]) -> int:
    """Measure the program from its first instruction to its end, and return its exit code."""
    from weft.metrics.model import TargetFacts

    facts = TargetFacts(session.pid, session.program(), program)
    try:
        # Only now are its libraries there.
        session.run_to_entry()
        facts = measure.measure(session, wanted, facts, session.wait, to_stderr=True)
    except (errors.InvalidArgument, errors.BadMetric, errors.BadSnippet):
        # It stands before its first instruction: what was asked for wrongly is not done at all.
        os.kill(session.pid, signal.SIGKILL)
        session.wait()
        raise
    except errors.WeftError:
        # The program must not suffer from what was asked of weft.
        session.wait()
        raise
    code = facts.exit_code
    if code is None:
        code = session.wait()
    session.detach()
    return code or 0
