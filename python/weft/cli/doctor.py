"""Check what could stop weft, and print the command that fixes it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from weft import _native
from weft.base.numbers import harmless
from weft.cli import output
from weft.cli.inputs import Pid

if TYPE_CHECKING:
    from rich.table import Table

    from weft._native import Check

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@click.command()
@click.argument("pid", type=Pid(), required=False, metavar="[PID|NAME]")
@output.format_option
def command(pid: int | None, output_format: str) -> None:
    """Check what could stop weft, and print the command that fixes it.

    Without PID it checks this machine, with PID that process too. Each line is ok or comes with
    the command that fixes it: a warning restricts weft, a failure stops it. The exit code is 0
    when nothing fails and 1 otherwise.

    \b
    Examples:
      weft doctor          can weft work here?
      weft doctor 4242     can weft attach to process 4242?
      weft doctor nginx    can weft attach to the process of this name?
    """
    checks = _native.doctor(pid)
    if output_format == "json":
        output.print_json({"schema": 1, "checks": checks})
    else:
        output.console().print(table(checks))
    sys.exit(1 if any(check["status"] == "fail" for check in checks) else 0)


def table(checks: list[Check]) -> Table:
    """One row per check; the fix stands below what was found."""
    from rich.table import Table
    from rich.text import Text

    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    rows.add_column(no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    for check in checks:
        detail = Text(harmless(check["detail"]))
        if check["fix"]:
            detail.append("\n→ " + harmless(check["fix"]), style="cyan")
        status = Text(check["status"], style=STYLES[check["status"]])
        rows.add_row(status, Text(harmless(check["name"])), detail)
    return rows
