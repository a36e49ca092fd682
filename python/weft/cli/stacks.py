"""Show where the threads of a process are, and what they wait for."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from weft.base.numbers import printable, quantity
from weft.cli import output
from weft.cli.inputs import Pid, Seconds
from weft.cli.printing import echo
from weft.errors import NoSuchProcess, TargetGone
from weft.model.thread_stacks import Stacks, ThreadStack, folded
from weft.model.waits import Wait
from weft.program.stacks import StackReader

if TYPE_CHECKING:
    from rich.text import Text

STATES = {
    "R": "runs",
    "S": "sleeps",
    "D": "waits in the kernel",
    "T": "is stopped",
    "t": "is stopped by a debugger",
    "Z": "has ended",
    "X": "has ended",
    "I": "is idle",
}
_MOST_NAMED = 8
"""How many threads of the same stack are named."""


@click.command()
@click.argument("pid", type=Pid(), metavar="PID|NAME")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@output.format_option
@click.option(
    "--repeat",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How often to look.",
)
@click.option(
    "--interval",
    metavar="SECONDS",
    type=Seconds(min=0),
    default=1.0,
    show_default=True,
    help="How long to wait from one look to the next.",
)
def command(pid: int, as_json: bool, output_format: str, repeat: int, interval: float) -> None:
    """Show where the threads of a process are, and what they wait for.

    Of every thread the functions that it is in, the innermost first, with files and lines where
    the program has debug information, and what it waits for: a lock and who holds it, a descriptor
    and who has its other end, a child, a time. Threads that wait for each other in a circle are
    named as the deadlock that they are, also across processes. Threads that are in the same place
    are shown once. Nothing is put into the process. Threads that sleep are read where they sleep;
    those that run stand still while their stacks are copied, about 70 us for each of them.

    JSON has one document for each look, on a line of its own.

    \b
    Examples:
      weft stacks 4242                            where is it, and why does it not go on?
      weft stacks nginx --json                    the same, for programs
      weft stacks 4242 --repeat 5 --interval 0.2  is it still there?
    """
    is_json = as_json or output_format == "json"
    reader = StackReader(pid)
    began = time.monotonic()
    for number in range(repeat):
        if number:
            time.sleep(max(began + number * interval - time.monotonic(), 0))
        try:
            with output.progress("reading names and lines"):
                found = reader.read()
        except (NoSuchProcess, TargetGone):
            if not number:
                raise
            echo(f"note: process {pid} has ended after {number} of {repeat}", err=True)
            return
        if is_json:
            output.print_json({"schema": 1, **found.to_json()})
        else:
            console = output.console()
            after = time.monotonic() - began if repeat > 1 else None
            for line in rendered(found, after):
                console.print(line, soft_wrap=True)


def rendered(found: Stacks, after: float | None = None) -> Iterator[Text]:
    """Return the lines that a person reads; ``after`` is when it was, if there are several."""
    from rich.text import Text

    count = len(found.threads)
    title = Text(f"{printable(found.command)} ({found.pid})", style="bold")
    title.append(f": {count} thread{'s' if count != 1 else ''}", style="not bold")
    seconds = sum(found.pauses)
    paused = quantity(seconds, "s") if seconds else "0 ms"
    title.append(f", stood still for {paused}", style="not bold")
    if after is not None:
        title.append(f", after {after:.1f} s", style="not bold")
    yield title
    for alike in folded(found.threads):
        yield Text()
        yield from _thread(alike)
    for deadlock in found.deadlocks:
        yield Text()
        yield Text(str(deadlock).partition("\n")[0], style="bold red")
        yield from (Text(f"  {printable(str(one))}") for one in deadlock.threads)
    for note in found.notes:
        yield Text()
        yield Text(f"note: {printable(note)}", style="yellow")
    if after is not None:
        yield Text()


def _thread(alike: Sequence[ThreadStack]) -> Iterator[Text]:
    from rich.text import Text

    first = alike[0]
    line = Text(f"{len(alike)} threads " if len(alike) > 1 else "thread ")
    line.append(_named(alike), style="cyan")
    line.append(f": {'each ' if len(alike) > 1 else ''}{what_it_does(first)}")
    yield line
    yield from _waits(alike)
    for _, run in itertools.groupby(first.frames, key=lambda frame: (frame.function, frame.module)):
        frames = [printable(str(frame)) for frame in run]
        # What calls itself without end says it once.
        shown = frames if len(frames) <= 4 else [*frames[:2], None, frames[-1]]
        for text in shown:
            if text is None:
                yield Text(f"    ... {len(frames) - 3} more of the same", style="dim")
            else:
                name, gap, rest = text.partition(" ")
                frame = Text(f"    {name}")
                frame.append(gap + rest, style="dim")
                yield frame
    if first.cut is not None:
        yield Text(f"    [truncated: {first.cut}]", style="yellow")


def _waits(threads: Sequence[ThreadStack]) -> Iterator[Text]:
    """What threads in the same place wait for: once, if that is the same."""
    from rich.text import Text

    texts = {one.tid: _wait(one.waits_for) for one in threads if one.waits_for is not None}
    if len(texts) == len(threads) and len(set(texts.values())) == 1:
        yield Text(f"    waits for {texts[threads[0].tid]}", style="yellow")
        return
    for tid, text in itertools.islice(texts.items(), _MOST_NAMED):
        yield Text(f"    {tid} waits for {text}", style="yellow")
    if len(texts) > _MOST_NAMED:
        yield Text(f"    and {len(texts) - _MOST_NAMED} more wait", style="yellow")


def _wait(wait: Wait) -> str:
    text = printable(wait.text)
    if wait.timeout is None or wait.kind == "timer":
        return text
    return f"{text}, for {quantity(wait.timeout, 's')} at most"


def _named(threads: Sequence[ThreadStack]) -> str:
    """The threads, by the names that several may share."""
    shown, rest = threads[:_MOST_NAMED], threads[_MOST_NAMED:]
    runs = itertools.groupby(shown, key=lambda one: one.name)
    texts = [f"{' '.join(str(one.tid) for one in run)} {printable(name)}" for name, run in runs]
    return ", ".join(texts) + (f" and {len(rest)} more" if rest else "")


def what_it_does(thread: ThreadStack) -> str:
    """Say it in a few words."""
    text = STATES.get(thread.state, f"is in state {thread.state}")
    # The kernel goes on with a call that was interrupted: which one, what it waits for says.
    is_known = thread.call is not None and thread.call.name != "restart_syscall"
    if thread.call is not None and is_known and thread.state in ("S", "D"):
        text += f" in {thread.call.name}"
    return text
