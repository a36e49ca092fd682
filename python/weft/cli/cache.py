"""Look at what is kept of clones, or delete it."""

from __future__ import annotations

import time

import click

from weft.cli.output import OnlyParts, console, format_option, print_json
from weft.control.kept import kept_clones

_DAY = 86_400


@click.command(cls=OnlyParts)
@format_option
@click.pass_context
def command(ctx: click.Context, output_format: str) -> None:
    """Look at what is kept of clones, or delete it.

    What programs execute under `weft run --weaver clone` is translated once and kept in files, so
    that later runs, also of other programs with the same libraries, begin faster. The folder is
    ~/.cache/weft/clones; the variable WEFT_CLONES names another, or is `off`. At most 1G is kept,
    or what WEFT_CLONES_LIMIT says: what was not used for the longest time goes first.

    \b
    Examples:
      weft cache ls
      weft cache clear
      WEFT_CLONES=off weft run --weaver clone -- ./program
    """
    del output_format
    click.echo(ctx.get_help())


@command.part("ls")
@click.command("ls")
@format_option
def listing(output_format: str) -> None:
    """List what is kept, and of which programs and libraries.

    \b
    Examples:
      weft cache ls
      weft cache ls --format json
    """
    kept = kept_clones()
    entries = sorted(kept.entries(), key=lambda one: -one.size)
    if output_format == "json":
        files = [
            {
                "file": str(one.path),
                "original": str(one.original),
                "size": one.size,
                "used": one.used,
                "blocks": one.blocks,
                "code": one.code,
                "is_whole": one.is_whole,
            }
            for one in entries
        ]
        print_json({"schema": 1, "folder": str(kept.path), "files": files})
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("size", justify="right")
    table.add_column("blocks", justify="right")
    table.add_column("used", justify="right")
    table.add_column("program or library")
    for one in entries:
        original = str(one.original) if one.is_whole else f"not usable: {one.path.name}"
        table.add_row(_size(one.size), f"{one.blocks:,}", _ago(one.used), original)
    screen = console()
    if entries:
        screen.print(table, highlight=False)
    total = sum(one.size for one in entries)
    screen.print(f"{len(entries)} files, {_size(total)}, in {kept.path}", highlight=False)


@command.part("clear")
@click.command("clear")
@format_option
def clear(output_format: str) -> None:
    """Delete all that is kept.

    Programs that run from it go on. What they execute next time is translated anew.

    \b
    Examples:
      weft cache clear
    """
    kept = kept_clones()
    count, size = kept.clear()
    if output_format == "json":
        print_json({"schema": 1, "folder": str(kept.path), "files": count, "bytes": size})
    else:
        console().print(f"deleted {count} files, {_size(size)}", highlight=False)


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit != "MiB" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _ago(moment: float) -> str:
    days = (time.time() - moment) / _DAY
    return "today" if days < 1 else f"{days:.0f} d ago"
