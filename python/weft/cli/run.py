"""Run a program with weft in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

import weft
from weft.cli import clone, measure
from weft.cli.inputs import Launching
from weft.cli.output import forward_signals, print_json

if TYPE_CHECKING:
    from weft.metrics.metric import Metric


@click.command(cls=Launching, context_settings={"ignore_unknown_options": True})
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
@clone.options
@measure.options
@click.pass_context
def command(ctx: click.Context, /, program: tuple[str, ...], **options: Any) -> None:
    """Run a program with weft in it.

    The program's input, output and exit code are its own; a program that a signal ends gives 128
    plus the signal's number. What is measured is written to standard error, or with -o to a file.
    Children that the program forks are measured with it, until it ends; other programs that it
    starts are not.

    The program inherits what weft does (priorities, limits, signals that are ignored or blocked),
    but for SIGPIPE and SIGXFSZ: Python ignores both before weft can know what they were, so the
    program gets the default.

    \b
    Examples:
      weft run -m calls@/Code/libc.so.6/malloc -- ls -l
      weft run -e 'entry malloc { bytes += $arg[0]; count++ }' -- ls -l
      weft run -m alloc_bytes -o out.json -- sqlite3 :memory: 'select 1;'
      weft run -m alloc_bytes --by stack -o flame.svg -- ls -l
      weft run --weaver clone --stats -- ls -l
      weft run --weaver clone -m calls@/Code/libc.so.6/malloc -- ls -l
    """
    weaver = options.pop("weaver")
    if weaver == "clone":
        ctx.exit(clone.run(program, options))
    clone.refuse(options)
    wanted = measure.wish(options, to_stderr=True)
    session = weft.run(program)
    forward_signals(session.pid)

    if not wanted.is_empty:
        ctx.exit(_measure(session, wanted, program, weaver))
    code = session.wait()
    session.detach()
    if wanted.output_format == "json":
        print_json(
            {
                "schema": 1,
                "target": {"pid": session.pid, "command": list(program), "exit_code": code},
                "pauses": [
                    {"seconds": pause.seconds, "threads": pause.threads}
                    for pause in session.pauses()
                ],
            },
            file=sys.stderr,
        )
    ctx.exit(code or 0)


def _measure(
    session: weft.Session, wanted: measure.Wish, program: tuple[str, ...], weaver: str
) -> int:
    """Measure the program from its entry to its end, and return its exit code."""
    cloned: weft.Cloned | None = None

    def start() -> tuple[weft.Session, Sequence[Metric]]:
        nonlocal cloned
        session.run_to_entry()
        metrics = measure.begin_or_clone(session, wanted, weaver)
        if metrics is not None:
            return session, metrics
        cloned = session.move_to_clone()
        return cloned.session, measure.begin(cloned.session, wanted)

    def wait(seconds: float | None) -> int | None:
        return (cloned or session).wait(seconds)

    code = measure.measure_to_end(program, wanted, session, wait, start)
    (cloned.session if cloned else session).detach()
    return code
