"""Say why a program is slow, with evidence."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from weft.base.files import check
from weft.base.interrupts import interruptible
from weft.cli import measure, sampled
from weft.cli.inputs import Launching, Seconds, process_id, program_argument
from weft.cli.output import console, deliver, output_options
from weft.cli.printing import echo
from weft.errors import NoSuchProcess, TargetGone

if TYPE_CHECKING:
    from rich.table import Table

    from weft.model.answers import Answers, Tested

_FORMATS = ["text", "json", "html"]


@click.command(cls=Launching, context_settings={"ignore_unknown_options": True})
@program_argument
@output_options(_FORMATS)
@click.option(
    "--for",
    "seconds",
    type=Seconds(min=0.5),
    default=10.0,
    show_default=True,
    metavar="TIME",
    help="How long to watch it: 10, 500ms, 1m.",
)
@click.option(
    "--budget",
    default="2%",
    show_default=True,
    metavar="SHARE",
    help="How much of its time the search may take.",
)
@click.option(
    "--hypotheses",
    "folders",
    multiple=True,
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Test the hypotheses in this folder as well; may be repeated.",
)
@click.pass_context
def command(
    ctx: click.Context,
    program: tuple[str, ...],
    output: str | None,
    output_format: str,
    seconds: float,
    budget: str,
    folders: tuple[Path, ...],
) -> None:
    """Say why a program is slow, with evidence.

    The program is watched from outside: what its threads run, what they wait for and who holds
    that, and what the kernel counts for it. All hypotheses are tested at once: cpu, lock_wait,
    io_wait, peer_wait, allocation, page_faults, syscalls, run_queue, imbalance, spinning. Those
    that hold are narrowed down to a function, a lock, a file, or another process. If none does, the
    answer is none: nothing stands out.

    Nothing is put into the program. PID is a running process; where it does nothing itself, its
    busiest child is watched. CMD is started, and runs to its end; the answer goes to standard
    error, or with -o to a file.

    \b
    Examples:
      weft why 4711                         what takes its time?
      weft why nginx --for 30
      weft why 4711 --format json           the same, for programs
      weft why -o why.html -- ./server
    """
    pid = process_id(program)
    if output is not None:
        check(output)
    limit = measure.share(budget)
    if limit is None:
        limit = 1.0
    if pid is not None:
        _deliver(_search(pid, seconds, limit, folders), output, output_format)
        return
    with sampled.started(program) as process:
        try:
            found = _search(process.pid, seconds, limit, folders, begin=process.release)
            _deliver(found, output, output_format, to_stderr=True)
        except (NoSuchProcess, TargetGone):
            echo("note: the program ended before it could be watched", err=True)
    ctx.exit(process.wait() or 0)


def _search(
    pid: int,
    seconds: float,
    budget: float,
    folders: Sequence[Path],
    begin: Callable[[], object] | None = None,
) -> Answers:
    from weft.why.search import why

    with _shown(pid) as show, interruptible():
        return why(pid, seconds=seconds, budget=budget, folders=folders, progress=show, begin=begin)


@contextmanager
def _shown(pid: int) -> Iterator[Callable[[Sequence[Tested], float], None]]:
    """Show how the hypotheses do, on a terminal, while the search goes on."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield lambda _tested, _share: None
        return
    from rich.live import Live

    with Live(console=screen, transient=True, refresh_per_second=4) as live:
        yield lambda tested, share: live.update(_table(pid, tested, share))


def _table(pid: int, tested: Sequence[Tested], share: float) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_row(Text(f"why is {pid} slow?", style="bold"), f"{min(share, 1.0):.0%} of the time")
    for one in tested:
        width = round(min(one.share, 1.0) * 30)
        mark = round(one.threshold * 30)
        bar = Text("".join("█" if place < width else "·" for place in range(30)))
        bar.stylize("bold red" if one.is_confirmed else "dim")
        bar.stylize("reverse", mark, mark + 1)
        style = "bold" if one.is_confirmed else "dim"
        table.add_row(Text(one.name, style=style), bar, f"{one.share:.0%}", one.title)
    return table


def _deliver(
    found: Answers, output: str | None, output_format: str, *, to_stderr: bool = False
) -> None:
    module = importlib.import_module(f"weft.export.why.{output_format}")

    def write(file: BinaryIO) -> None:
        module.write(file, found)

    if output is None and output_format == "text":
        screen = console(stderr=to_stderr)
        for line in module.lines(found):
            screen.print(line, soft_wrap=True, markup=False, highlight=False)
        return
    deliver(write, output, to_stderr=to_stderr)
