"""Check what could stop weft, and say the command that mends it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft import _native

if TYPE_CHECKING:
    from weft._native import Check

MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "fail": ("fail", "bold red")}


@click.command("doctor")
@click.argument("pid", type=int, required=False)
@click.option(
    "--format", "output_format", type=click.Choice(["text", "json"]), default="text",
    show_default=True, help="How to print it.",
)  # fmt: skip
def command(pid: int | None, output_format: str) -> None:
    """Check this machine and, if PID is given, that process for what could stop weft.

    Each line is ok or comes with the command that mends it. A warning restricts weft, a failure
    stops it. The exit code is 0 when nothing fails and 1 otherwise.
    """
    checks = _native.doctor(pid)
    if output_format == "json":
        click.echo(json.dumps({"schema": 1, "checks": checks}, indent=2))
    else:
        Console().print(table(checks))
    sys.exit(1 if any(check["status"] == "fail" for check in checks) else 0)


def table(checks: list[Check]) -> Table:
    """One row per check; what mends it stands below what was found."""
    rows = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    rows.add_column(no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    for check in checks:
        mark, style = MARKS[check["status"]]
        detail = Text(check["detail"])
        if check["fix"]:
            detail.append("\n→ " + check["fix"], style="cyan")
        rows.add_row(Text(mark, style=style), Text(check["name"]), detail)
    return rows
