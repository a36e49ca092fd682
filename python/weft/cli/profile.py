"""Count every instruction that a program executes, or sample where its threads spend time."""

from __future__ import annotations

import contextlib
import importlib
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, BinaryIO

import click

from weft import clone
from weft.base.interrupts import Interrupted, interruptible
from weft.cli import measure, sampled
from weft.cli.clone import Reports
from weft.cli.inputs import Seconds, process_id, program_argument, refuse_time_of_programs
from weft.cli.output import (
    WithParts,
    check_delivery,
    console,
    deliver,
    forward_signals,
    output_options,
    progress,
    say_lost,
)
from weft.errors import InvalidArgument
from weft.program.live_modules import LastingModules
from weft.tools import profile as tool

_FORMATS = {
    "text": "text",
    "json": "json",
    "callgrind": "callgrind",
    "pprof": "pprof",
    "speedscope": "speedscope",
    "folded": "folded",
    "svg": "flame",
    "html": "html",
    "fdata": "fdata",
}
"""The module that writes each format."""
_ADDING_UP = "adding up what was executed"


_top_option = click.option(
    "--top",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="How many functions and lines the text shows; of blocks it shows half as many.",
)

_module_option = click.option(
    "--module", "pattern", metavar="GLOB", help="Only modules of this name or path."
)


@click.command(cls=WithParts, context_settings={"ignore_unknown_options": True})
@program_argument
@sampled.options
@output_options([*_FORMATS, "perfetto"])
@_top_option
@_module_option
@click.option(
    "--for",
    "seconds",
    type=Seconds(min=0),
    metavar="TIME",
    help="How long to watch a process: 90, 500ms, 10m; without it until Ctrl-C, or until it ends.",
)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    program: tuple[str, ...],
    output: str | None,
    output_format: str,
    top: int,
    pattern: str | None,
    seconds: float | None,
    **sampling: Any,
) -> None:
    """Count every instruction that a program executes, or sample where its threads spend time.

    Without --cpu, --wall or --off-cpu nothing is sampled: what a function, a line or a block
    executed, and how often functions were called, is exact. What a function cost with all that it
    called is attributed by these calls.

    With one of them the program runs natively, with nothing put into it, and its threads are looked
    at many times a second. The time of each thread is exact, as the kernel counts it; how it is
    divided among stacks is an estimate (~). Children of the program are not followed.

    CMD is run to its end; its input, output and exit code are its own, and the profile goes to
    standard error, or with -o to a file. PID is a running process, which is left as it was (write
    ./123 for a program of that name).

    \b
    Examples:
      weft profile -- bzip2 -k file
      weft profile -o flame.svg -- ./prog
      weft profile 4711 --for 10
      weft profile 4711 --cpu --for 10
      weft profile 4711 --off-cpu --for 10 -o waits.svg
      weft profile -o out.json -- ./prog
      weft profile report out.json --format callgrind -o callgrind.out.prog
      weft profile diff before.json after.json
    """
    wanted = sampled.wish(sampling, output_format, pattern)
    pid = process_id(program)
    is_process = pid is not None
    refuse_time_of_programs(seconds, pid)
    check_delivery(output, output_format, (sys.stdout if is_process else sys.stderr).isatty())
    if wanted is not None:
        profile, code = sampled.record(wanted, pid, program, seconds)
        sampled.show(profile, output, output_format, top, to_stderr=not is_process)
        ctx.exit(code)
    if pid is not None:
        found = _attach(pid, seconds)
        code = 0
    else:
        found, code = _run(program)
    _show(found, output, output_format, top, pattern, to_stderr=not is_process)
    ctx.exit(code)


@command.part("report")
@click.command()
@click.argument("file")
@output_options(list(_FORMATS))
@_top_option
@_module_option
def report(
    file: str, output: str | None, output_format: str, top: int, pattern: str | None
) -> None:
    """Show a profile that was written as JSON, or turn it into another format.

    \b
    Examples:
      weft profile report before.json
      weft profile report before.json -o flame.svg
    """
    from weft.export.profile import json as profile_json

    check_delivery(output, output_format, sys.stdout.isatty())
    _show(profile_json.read(file), output, output_format, top, pattern)


@command.part("diff")
@click.command()
@click.argument("before")
@click.argument("after")
@output_options(["text", "json"])
@click.option(
    *("--top", "top"),
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="How many functions the text shows.",
)
def diff(before: str, after: str, output: str | None, output_format: str, top: int) -> None:
    """Compare two profiles that were written as JSON, function by function.

    \b
    Examples:
      weft profile diff before.json after.json
    """
    from weft.export.profile import json as profile_json
    from weft.export.profile import text as profile_text

    check_delivery(output, output_format, False)
    changes = tool.diff(profile_json.read(before), profile_json.read(after))
    screen = console()
    if output is None and output_format == "text" and screen.is_terminal:
        screen.print(profile_text.comparison(changes, top, screen.width), soft_wrap=True)
        return
    if output_format == "json":
        deliver(lambda file: profile_json.write_changes(file, changes), output)
    else:
        deliver(lambda file: profile_text.write_changes(file, changes, top), output)


def _run(program: tuple[str, ...]) -> tuple[tool.Profile, int]:
    """Run a program to its end: its profile and its exit code."""
    with clone.launch(program, records="counts") as cloned:
        forward_signals(cloned.pid)
        modules = LastingModules(cloned.pid)
        code = cloned.wait()
        Reports(cloned).tell()
        with progress(_ADDING_UP):
            return tool.profile(cloned.flow(), modules.now()), code or 0


def _attach(pid: int, seconds: float | None) -> tool.Profile:
    """Count in a running process for a while."""
    with clone.attach(pid, records="counts") as cloned, measure.waiting_for(pid) as wait:
        command = cloned.session.command()
        modules = LastingModules(pid)
        measure.say_until(pid, seconds)
        with contextlib.suppress(Interrupted), interruptible():
            wait(seconds)
        flow = replace(cloned.flow(), command=command)
        Reports(cloned).tell()
        # Files that are gone, or are no files here, are read through the process while it runs.
        with progress(_ADDING_UP):
            return tool.profile(flow, modules.now())


def _show(
    profile: tool.Profile,
    output: str | None,
    output_format: str,
    top: int,
    pattern: str | None,
    *,
    to_stderr: bool = False,
) -> None:
    from weft.export.profile import text as profile_text

    if pattern is not None:
        profile = profile.only(pattern)
        if not profile.functions:
            raise InvalidArgument(
                f"nothing was executed in modules like {pattern!r}",
                advice="without --module, the last column of the text names the modules",
            )
    screen = console(stderr=to_stderr)
    if output is None and output_format == "text" and screen.is_terminal:
        screen.print(profile_text.summary(profile, top, screen.width))
        return
    shown = profile

    def write(file: BinaryIO) -> None:
        if output_format == "text":
            profile_text.write(file, shown, top)
        else:
            format_ = importlib.import_module(f"weft.export.profile.{_FORMATS[output_format]}")
            format_.write(file, shown)

    with progress(f"writing {output}") if output is not None else nullcontext():
        deliver(write, output, to_stderr=to_stderr)
    say_lost(profile.problems, output, output_format)
