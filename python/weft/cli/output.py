"""What all commands share: how results, errors and exit codes leave the process.

Results go to standard output, as text for people or, with ``--format json``, as JSON for programs.
Errors go to standard error, in the same format.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TextIO, TypeVar

import click

from weft.base import interrupts as _interrupts
from weft.base.files import FULL, Draft, cannot_write, check
from weft.base.names import closest, did_you_mean, may_be_name
from weft.base.numbers import harmless
from weft.cli.inputs import Launching, sentence
from weft.cli.printing import echo
from weft.errors import Internal, InvalidArgument, WeftError
from weft.export import stacks

if TYPE_CHECKING:
    from rich.console import Console

FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that ask weft to end are for the program to answer."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
_FORMAT = "weft.format"
_UNLIMITED = 1_000_000
_ENDINGS = {
    **stacks.ENDINGS,
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".fdata": "fdata",
}
"""The format of a file whose name ends so; the first that fits counts."""
PATIENCE = 0.8
"""After how many seconds people are told that something goes on."""
_TICK = 0.5


def _remember_format(ctx: click.Context, _option: click.Parameter, value: str) -> str:
    ctx.meta[_FORMAT] = value
    return value


def format_option_of(formats: Sequence[str]) -> Callable[[_Function], _Function]:
    """Return the decorator that gives a command ``--format``, passed to it as ``output_format``."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        is_eager=True,
        callback=_remember_format,
        help="How to write the result.",
    )


format_option = format_option_of(["text", "json"])
"""The decorator that gives a command ``--format``, passed to it as ``output_format``."""


def output_options(formats: Sequence[str]) -> Callable[[_Function], _Function]:
    """Return the decorator that gives a command ``-o FILE`` and ``--format``.

    They are passed to it as ``output`` and ``output_format``. Without ``--format``, the ending of
    the file's name says the format, if it is that of one.
    """

    def choose(ctx: click.Context, _option: click.Parameter, value: str | None) -> str | None:
        given = ctx.get_parameter_source("output_format")
        if value is not None and given is click.core.ParameterSource.DEFAULT:
            # Errors stay text: only who says --format json reads them by a program.
            named = [name for end, name in _ENDINGS.items() if value.lower().endswith(end)]
            found = next((name for name in named if name in formats), None)
            if named and found is None:
                raise click.BadParameter(
                    f"{ctx.command_path} does not write {named[0]}; it writes {', '.join(formats)}."
                    " For another name of the file, say --format.",
                    ctx,
                )
            ctx.params["output_format"] = found or ctx.params["output_format"]
        return value

    # The format is eager, so that it is known when the file is looked at.
    return all_of(
        click.option(
            "-o",
            "--output",
            metavar="FILE",
            callback=choose,
            help="Write the result to a file. Without --format, an ending such as .json says how.",
        ),
        format_option_of(formats),
    )


def check_delivery(output: str | None, output_format: str, is_terminal: bool) -> None:
    """Find out now whether a result can be delivered."""
    if output is not None:
        check(output)
    elif is_terminal and output_format in ("parquet", *stacks.BINARY):
        raise InvalidArgument(
            f"{output_format} is not for terminals", advice="write it to a file: -o FILE"
        )


def all_of(*options: Callable[[Any], Any]) -> Callable[[_Function], _Function]:
    """Return the decorator that gives a command several options, in their order."""

    def decorate(command: _Function) -> _Function:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def file_option(help_text: str) -> Callable[[_Function], _Function]:
    """Return the decorator that gives a command ``-f FILE.mdl``, passed to it as ``files``."""
    return click.option(
        "-f",
        "--file",
        "files",
        multiple=True,
        metavar="FILE.mdl",
        type=click.Path(exists=True, dir_okay=False),
        help=help_text,
    )


class WithParts(Launching):
    """A command whose first word may be that of a part, which then is the command."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.parts: dict[str, click.Command] = {}

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Hand over to a part if one is named."""
        if args and args[0] in self.parts:
            name, *rest = args
            return self.parts[name].make_context(f"{info_name} {name}", rest, parent, **extra)
        if args and may_be_name(args[0]) and (close := closest(args[0], self.parts, 1)):
            import shutil

            if shutil.which(args[0]) is None:
                text = f"There is no program '{args[0]}'."
                raise click.UsageError(
                    f"{text} Did you mean `weft {info_name} {close[0]}`?", parent
                )
        return super().make_context(info_name, args, parent, **extra)

    def part(self, name: str) -> Callable[[click.Command], click.Command]:
        """Return the decorator that makes a command a part of this one."""

        def add(command: click.Command) -> click.Command:
            self.parts[name] = command
            return command

        return add


class OnlyParts(WithParts):
    """A command that does nothing but by its parts."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Hand over to the part that is named; there is nothing else to be named."""
        if args and not args[0].startswith("-") and args[0] not in self.parts:
            meant = did_you_mean(args[0], self.parts, f"there are {', '.join(self.parts)}")
            text = sentence(f"No such command '{args[0]}'.", meant)
            raise click.UsageError(text, parent)
        return super().make_context(info_name, args, parent, **extra)


def forward_signals(pid: int) -> None:
    """Let a program that was started answer the signals that ask weft to end."""

    def forward(number: int) -> None:
        # Ctrl-C reaches the program directly: whether to end is its decision.
        if number in FORWARDED:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    _interrupts.hand_over(forward)
    _interrupts.heed(signal.SIGINT, *FORWARDED)


def console(*, stderr: bool = False) -> Console:
    """Return the terminal to write text for people to.

    When it is a file or a pipe, nothing is coloured, wrapped or cut.
    """
    from rich.console import Console

    screen = Console(stderr=stderr, highlight=False, emoji=False)
    if not screen.is_terminal:
        screen.width = _UNLIMITED
    return screen


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show that something is being done, and for how long, once it takes more than a moment.

    Only on a terminal: standard error of which nothing is seen stays empty. What is written there
    meanwhile stands above it. Nothing is to be written to standard output inside.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield
        return
    is_over = threading.Event()

    def show() -> None:
        # What is done at once does not wait for Rich to be loaded.
        if is_over.wait(PATIENCE):
            return
        began = time.monotonic() - PATIENCE
        with console(stderr=True).status(what) as status:
            while not is_over.wait(_TICK):
                status.update(f"{what}: {time.monotonic() - began:.0f} s")

    shown = threading.Thread(target=show, daemon=True)
    shown.start()
    try:
        yield
    finally:
        is_over.set()
        shown.join()


def say_lost(texts: Iterable[str], output: str | None, output_format: str) -> None:
    """Say what is missing from a result that was written, unless whoever sees the result sees that.

    Text and JSON hold it themselves; most other formats have no place for it.
    """
    if output is not None or output_format not in ("text", "json"):
        for text in texts:
            echo(f"note: {text}", err=True)


def print_json(value: Any, file: TextIO | None = None) -> None:
    """Write a result as JSON: indented for people, on one line for programs."""
    import json

    file = file or sys.stdout
    click.echo(json.dumps(value, indent=2 if file.isatty() else None), file=file)


def deliver(
    write: Callable[[BinaryIO], object], path: str | None, *, to_stderr: bool = False
) -> None:
    """Have a result written to a file, if one is named, or else to a standard stream."""
    if path is not None:
        with Draft(path) as file:
            write(file)
        return
    stream = sys.stderr.buffer if to_stderr else sys.stdout.buffer
    write(stream)
    stream.flush()


@contextmanager
def failures(ctx: click.Context) -> Iterator[None]:
    """Turn everything that fails inside into a message and an exit code.

    What click handles well already (wrong usage, its own exits, a closed pipe) passes through.
    """
    try:
        yield
        sys.stdout.flush()
    except click.UsageError as error:
        if not _as_json(ctx):
            raise
        where = error.ctx or ctx
        advice = f"see `{where.command_path} --help`"
        _fail(ctx, InvalidArgument(error.format_message(), advice=advice))
    except (click.ClickException, click.exceptions.Exit, click.Abort, SystemExit, BrokenPipeError):
        raise
    except _interrupts.Interrupted:
        raise
    except KeyboardInterrupt:
        ctx.exit(128 + signal.SIGINT)
    except WeftError as error:
        _fail(ctx, error)
    except OSError as error:
        _fail(ctx, _refused(error) if error.errno in FULL else _internal(error))
    except BaseException as error:  # a panic of the native core is no Exception
        _interrupts.raise_again()
        _fail(ctx, _internal(error))


def left_in(pid: int) -> str:
    """Say what there is of weft in a process that this one has left."""
    with suppress(OSError):
        if "/memfd:weft" in Path(f"/proc/{pid}/maps").read_text():
            # It measures, or was killed and a thread sleeps in its code.
            return f"what is in it is another weft's: see `weft doctor {pid}`"
    return "nothing of weft is left in it"


def _as_json(ctx: click.Context) -> bool:
    return ctx.meta.get(_FORMAT) == "json"


def stream_failure(error: OSError) -> int:
    """Say that a standard stream cannot be written to: the exit code.

    For what click itself writes, such as help, outside of any command.
    """
    failure = _refused(error)
    with suppress(OSError):
        _print(failure)
    return failure.exit_code


def _refused(error: OSError) -> WeftError:
    """A disk that is full or fails, under a file that weft has not been asked for or a stream."""
    if error.filename is None:
        _give_up_streams()
    return cannot_write(str(error.filename or "the output"), error)


def _give_up_streams() -> None:
    """Drop what cannot be written: the interpreter would try again, and fail, when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, stream.fileno())
            os.close(nothing)


def _internal(error: BaseException) -> Internal:
    return Internal(
        f"internal error: {type(error).__name__}: {error}",
        "this is a fault of weft, not of what you asked for",
        "run the command again with WEFT_DEBUG=1 set, and report what it prints",
    )


def _fail(ctx: click.Context, error: WeftError) -> NoReturn:
    if os.environ.get("WEFT_DEBUG"):
        import traceback

        traceback.print_exc()
    try:
        if _as_json(ctx):
            import json

            parts = {"what": error.what, "why": error.why, "advice": error.advice}
            click.echo(json.dumps({"error": {"kind": type(error).__name__, **parts}}), err=True)
        else:
            _print(error)
    except OSError:
        # Nobody can be told: the exit code says it.
        _give_up_streams()
    ctx.exit(error.exit_code)


def _print(error: WeftError) -> None:
    lines = (
        ("error", "red", error.what),
        ("  why", None, error.why),
        ("  try", "green", error.advice),
    )
    # Rich would take longer to load than most errors to happen.
    is_coloured = _is_coloured(sys.stderr)
    for label, colour, text in lines:
        if text:
            # A text of several lines begins on one of its own.
            gap = "" if text.startswith("\n") else " "
            shown = click.style(f"{label}:", fg=colour, bold=True) if is_coloured else f"{label}:"
            click.echo(f"{shown}{gap}{harmless(text)}", err=True, color=is_coloured)


def _is_coloured(stream: TextIO) -> bool:
    """Whether a stream is to be coloured, by the rules that Rich has for it."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
