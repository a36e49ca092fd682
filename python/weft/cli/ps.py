"""List the processes, whether weft can attach to each, and if not, why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft import _native

if TYPE_CHECKING:
    from weft._native import Candidate


@click.command("ps")
@click.option("-a", "--all", "show_all", is_flag=True, help="Show the kernel's threads too.")
@click.option(
    "--format", "output_format", type=click.Choice(["text", "json"]), default="text",
    show_default=True, help="How to print it.",
)  # fmt: skip
def command(show_all: bool, output_format: str) -> None:
    """List the processes, whether weft can attach to each, and if not, why.

    What to do about an obstacle is said by ``weft doctor PID``.
    """
    processes = [process for process in _native.processes() if show_all or not process["kernel"]]
    if output_format == "json":
        click.echo(json.dumps({"schema": 1, "processes": processes}, indent=2))
    else:
        console = Console()
        console.print(table(processes, fit=console.is_terminal))


def table(processes: list[Candidate], *, fit: bool) -> Table:
    """One line per process; to ``fit`` the screen, the last column is cut, never the others."""
    rows = Table(box=None, expand=fit, pad_edge=False, header_style="bold")
    rows.add_column("PID", justify="right", no_wrap=True)
    rows.add_column("USER", no_wrap=True, max_width=10)
    rows.add_column("THREADS", justify="right", no_wrap=True)
    rows.add_column("NAME", no_wrap=True, max_width=15)
    rows.add_column("ATTACH", ratio=1, no_wrap=True, overflow="ellipsis")
    for process in processes:
        if process["attachable"]:
            attach = Text("yes", style="green")
        else:
            attach = Text(f"no: {process['reason']}", style="yellow")
        rows.add_row(
            str(process["pid"]),
            Text(process["user"]),
            str(process["threads"]),
            Text(process["comm"]),
            attach,
        )
    return rows
