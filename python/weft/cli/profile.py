"""Count every instruction that a program executes, by function, line and block."""

from __future__ import annotations

import contextlib
import importlib
import io
import signal
import sys
from dataclasses import replace
from pathlib import Path

import click

from weft import clone
from weft._live_modules import live_modules
from weft.cli import measure
from weft.cli.clone import Reports
from weft.cli.output import WithParts, all_of, console, format_option_of, forward_signals
from weft.errors import InvalidArgument, WeftError
from weft.model import Module
from weft.tools import profile as tool

_FORMATS = {
    "text": "profile_text",
    "json": "profile_json",
    "callgrind": "callgrind",
    "pprof": "pprof",
    "speedscope": "speedscope",
    "folded": "folded",
    "svg": "flame",
    "fdata": "fdata",
}
"""The module that writes each format."""
_BINARY = {"pprof"}


_output_options = all_of(
    click.option("-o", "--output", metavar="FILE", help="Write the result to a file."),
    format_option_of(list(_FORMATS)),
    click.option(
        "--top",
        type=click.IntRange(min=1),
        default=10,
        show_default=True,
        metavar="N",
        help="How many functions and lines the text shows; of blocks it shows half as many.",
    ),
)

_module_option = click.option(
    "--module", "pattern", metavar="GLOB", help="Only modules of this name or path."
)


@click.command(cls=WithParts, context_settings={"ignore_unknown_options": True})
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="CMD...|PID")
@_output_options
@_module_option
@click.option(
    "--for",
    "seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long to count in a process; without it until Ctrl-C, or until it ends.",
)
@click.pass_context
def command(
    ctx: click.Context,
    program: tuple[str, ...],
    output: str | None,
    output_format: str,
    top: int,
    pattern: str | None,
    seconds: float | None,
) -> None:
    """Count every instruction that a program executes, by function, line and block.

    Nothing is sampled: what a function, a line or a block executed, and how often functions were
    called, is exact. What a function cost with all that it called is attributed by these calls.

    CMD is run to its end; its input, output and exit code are its own, and the profile goes to
    standard error, or with -o to a file. PID is a running process, which is left as it was (write
    ./123 for a program of that name).

    \b
    Examples:
      weft profile -- bzip2 -k file
      weft profile -o flame.svg --format svg -- ./prog
      weft profile 4711 --for 10
      weft profile -o out.json --format json -- ./prog
      weft profile report out.json --format callgrind -o callgrind.out.prog
      weft profile diff before.json after.json
    """
    is_process = len(program) == 1 and program[0].isdecimal()
    if seconds is not None and not is_process:
        raise InvalidArgument(
            "--for is for processes that run already", advice="give a process id instead of CMD"
        )
    _check(output, output_format, (sys.stdout if is_process else sys.stderr).isatty())
    if is_process:
        found = _attach(int(program[0]), seconds)
        code = 0
    else:
        found, code = _run(program)
    _show(found, output, output_format, top, pattern, to_stderr=not is_process)
    ctx.exit(code)


@command.part("report")
@click.command()
@click.argument("file")
@_output_options
@_module_option
def report(
    file: str, output: str | None, output_format: str, top: int, pattern: str | None
) -> None:
    """Show a profile that was written as JSON, or turn it into another format.

    \b
    Examples:
      weft profile report before.json
      weft profile report before.json --format svg -o flame.svg
    """
    from weft.export import profile_json

    _check(output, output_format, sys.stdout.isatty())
    _show(profile_json.read(file), output, output_format, top, pattern)


@command.part("diff")
@click.command()
@click.argument("before")
@click.argument("after")
@click.option("-o", "--output", metavar="FILE", help="Write the result to a file.")
@format_option_of(["text", "json"])
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
    from weft.export import profile_json, profile_text

    _check(output, output_format, False)
    changes = tool.diff(profile_json.read(before), profile_json.read(after))
    screen = console()
    if output is None and output_format == "text" and screen.is_terminal:
        screen.print(profile_text.comparison(changes, top, screen.width), soft_wrap=True)
        return
    written = io.BytesIO()
    if output_format == "json":
        profile_json.write_changes(written, changes)
    else:
        profile_text.write_changes(written, changes, top)
    _deliver(written.getvalue(), output, to_stderr=False)


def _run(program: tuple[str, ...]) -> tuple[tool.Profile, int]:
    """Run a program to its end: its profile and its exit code."""
    with clone.launch(program, records="counts") as cloned:
        forward_signals(cloned.pid)
        modules = _modules(cloned.pid)
        code = cloned.wait()
        Reports(cloned).tell()
        return tool.profile(cloned.flow(), modules), code or 0


def _attach(pid: int, seconds: float | None) -> tool.Profile:
    """Count in a running process for a while."""
    with clone.attach(pid, records="counts") as cloned, measure.waiting_for(pid) as wait:
        # Whoever ends weft wants it to leave.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        command = cloned.session.command()
        modules = _modules(pid)
        with contextlib.suppress(KeyboardInterrupt):
            wait(seconds)
        flow = replace(cloned.flow(), command=command)
        Reports(cloned).tell()
    return tool.profile(flow, modules)


def _modules(pid: int) -> list[Module]:
    """What is mapped but is no file here can be read only while the program is there."""
    with contextlib.suppress(WeftError):
        return live_modules(pid)
    return []


def _check(output: str | None, output_format: str, is_terminal: bool) -> None:
    """Find out now whether the result can be delivered."""
    if output is not None:
        measure.try_to_write(output)
    elif output_format in _BINARY and is_terminal:
        raise InvalidArgument(
            f"{output_format} is not for terminals", advice="write it to a file: -o FILE"
        )


def _show(
    profile: tool.Profile,
    output: str | None,
    output_format: str,
    top: int,
    pattern: str | None,
    *,
    to_stderr: bool = False,
) -> None:
    from weft.export import profile_text

    if pattern is not None:
        profile = profile.only(pattern)
        if not profile.functions:
            raise InvalidArgument(
                f"nothing was executed in modules like {pattern!r}",
                advice="without --module, the last column of the text names the modules",
            )
    screen = console(stderr=to_stderr)
    if output is None and output_format == "text" and screen.is_terminal:
        screen.print(profile_text.summary(profile, top, screen.width), soft_wrap=True)
        return
    written = io.BytesIO()
    if output_format == "text":
        profile_text.write(written, profile, top)
    else:
        format_ = importlib.import_module(f"weft.export.{_FORMATS[output_format]}")
        format_.write(written, profile)
    _deliver(written.getvalue(), output, to_stderr=to_stderr)


def _deliver(content: bytes, output: str | None, *, to_stderr: bool) -> None:
    if output is not None:
        Path(output).write_bytes(content)
        return
    stream = sys.stderr.buffer if to_stderr else sys.stdout.buffer
    stream.write(content)
    stream.flush()
