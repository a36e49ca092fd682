"""Show who waits for whom: threads, locks and their holders, on a timeline too."""

from __future__ import annotations

import importlib
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, BinaryIO

import click

from weft.cli import sampled
from weft.cli.inputs import (
    Launching,
    Seconds,
    process_id,
    program_argument,
    refuse_time_of_programs,
)
from weft.cli.output import check_delivery, console, deliver, output_options, progress, say_lost

if TYPE_CHECKING:
    from weft.sampling import SampledProfile

_FORMATS = ["text", "json", "html", "perfetto"]
_RATE, _BUDGET = 199.0, "1%"
_SECONDS = 5.0


@click.command(cls=Launching, context_settings={"ignore_unknown_options": True})
@program_argument
@output_options(_FORMATS)
@click.option(
    "--for",
    "seconds",
    type=Seconds(min=0.1),
    metavar="TIME",
    help=f"How long to watch a process: 10, 500ms, 1m.  [default: {_SECONDS:g}]",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="How many threads, locks and waits the text shows.",
)
@sampled.pace(_RATE, _BUDGET)
@click.pass_context
def command(
    ctx: click.Context,
    program: tuple[str, ...],
    output: str | None,
    output_format: str,
    seconds: float | None,
    top: int,
    rate: float | None,
    budget: str | None,
) -> None:
    """Show who waits for whom: threads, locks and their holders, on a timeline too.

    For every thread how long it ran, was ready to run, and was blocked, and what for. For every
    lock how long threads waited for it, how many at once, who held it meanwhile, and what the
    holder did: with functions, and lines where there is debug information. A lock that threads pass
    on to each other while others queue for it is named as a convoy.

    The times of threads are exact, as the kernel counts them; how they are divided is an estimate
    (~). Nothing is put into the program. PID is a running process; CMD is started and runs to its
    end, and the result goes to standard error, or with -o to a file.

    \b
    Examples:
      weft waits 4711
      weft waits 4711 --for 10 -o waits.html     a page with a timeline and a graph of locks
      weft waits 4711 -o waits.perfetto          a timeline for ui.perfetto.dev
      weft waits 4711 --format json
      weft waits -- ./program
    """
    pid = process_id(program)
    refuse_time_of_programs(seconds, pid)
    check_delivery(output, output_format, (sys.stderr if pid is None else sys.stdout).isatty())
    wish = sampled.Wish("wall", rate or _RATE, sampled.budget(budget or _BUDGET), keep=True)
    profile, code = sampled.record(wish, pid, program, seconds or _SECONDS)
    _deliver(profile, output, output_format, top, to_stderr=pid is None)
    ctx.exit(code)


def _deliver(
    profile: SampledProfile, output: str | None, output_format: str, top: int, *, to_stderr: bool
) -> None:
    from weft.export.waits import text

    found, title = profile.time, profile.title
    screen = console(stderr=to_stderr)
    if output is None and output_format == "text" and screen.is_terminal:
        screen.print(text.summary(found, title, top, screen.width))
        return
    module = importlib.import_module(f"weft.export.waits.{output_format}")

    def write(file: BinaryIO) -> None:
        if output_format == "text":
            text.write(file, found, title, top)
        else:
            module.write(file, found, title)

    with progress(f"writing {output}") if output is not None else nullcontext():
        deliver(write, output, to_stderr=to_stderr)
    say_lost(profile.notes, output, output_format)
