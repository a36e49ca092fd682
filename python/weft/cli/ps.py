"""List what can be attached to, and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from weft import _native
from weft.base.names import program_name
from weft.base.numbers import printable
from weft.cli import output

if TYPE_CHECKING:
    from rich.table import Table

    from weft._native import Candidate


@click.command()
@click.option("-a", "--all", "show_all", is_flag=True, help="Show the kernel's threads too.")
@output.format_option
def command(show_all: bool, output_format: str) -> None:
    """List what can be attached to, and why not.

    What to do about it says `weft doctor PID`.

    \b
    Examples:
      weft ps                   what is there to attach to?
      weft ps --format json     the same, with command lines and advice
    """
    processes = [process for process in _native.processes() if show_all or not process["kernel"]]
    if output_format == "json":
        named = [{"name": _name(process), **process} for process in processes]
        output.print_json({"schema": 1, "processes": named})
    else:
        console = output.console()
        console.print(table(processes, fit=console.is_terminal))


def _name(process: Candidate) -> str:
    """What it was started as: by that it can be attached to."""
    return program_name([process["cmdline"]], process["comm"])


def table(processes: list[Candidate], *, fit: bool) -> Table:
    """One line per process; to ``fit`` the screen, the last column is cut, never the others."""
    from rich.table import Table
    from rich.text import Text

    rows = Table(box=None, expand=fit, pad_edge=False, header_style="bold")
    rows.add_column("PID", justify="right", no_wrap=True)
    rows.add_column("USER", no_wrap=True, max_width=10)
    rows.add_column("THREADS", justify="right", no_wrap=True)
    rows.add_column("NAME", no_wrap=True, max_width=15)
    rows.add_column("ATTACH", ratio=1 if fit else None, no_wrap=True, overflow="ellipsis")
    for process in processes:
        if process["attachable"]:
            attach = Text("yes", style="green")
            if process["wefts"]:
                attach.append(f": {printable(process['wefts'])}", style="yellow")
        else:
            attach = Text(f"no: {printable(process['reason'])}", style="yellow")
        rows.add_row(
            str(process["pid"]),
            Text(process["user"]),
            str(process["threads"]),
            Text(printable(_name(process))),
            attach,
        )
    return rows
