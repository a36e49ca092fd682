"""Translate programs and libraries for the clone before they run."""

from __future__ import annotations

from pathlib import Path

import click

from weft.cli.output import console, format_option, print_json, progress
from weft.errors import InvalidArgument


@click.command()
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--system",
    is_flag=True,
    help="For all users of the machine: needs root.",
)
@format_option
def command(files: tuple[Path, ...], system: bool, output_format: str) -> None:
    """Translate programs and libraries for the clone before they run.

    What a program executes under `weft run --weaver clone` is translated once and kept; with this
    it is there when the program runs for the first time. What cannot be found without executing a
    program is translated when it is executed, as ever. `weft cache ls` lists what is kept.

    \b
    Examples:
      weft prepare /usr/bin/python3
      weft prepare ./server ./libplugin.so
      sudo weft prepare --system /lib/x86_64-linux-gnu/libc.so.6
    """
    from shutil import which

    from weft.control.kept import SYSTEM, KeptClones, kept_clones

    kept = KeptClones(SYSTEM, is_for_all=True) if system else kept_clones()
    listing: list[dict[str, str | int]] = []
    for file in files:
        # A command may be given by its name, as to `weft run`.
        found = which(file) if not file.exists() and file.name == str(file) else None
        path = Path(found) if found else file
        with progress(f"translating {path}"):
            blocks = kept.prepare(path)
        listing.append({"path": str(path), "blocks": blocks})
        if output_format != "json":
            console().print(f"{path}: {blocks:,} blocks", highlight=False)
    there = {one.original for one in kept.entries()}
    gone = [str(one["path"]) for one in listing if Path(str(one["path"])).resolve() not in there]
    if gone:
        raise InvalidArgument(
            f"{', '.join(gone)}: not kept",
            "all of it together takes more than may be kept",
            "raise WEFT_CLONES_LIMIT",
        )
    if output_format == "json":
        print_json({"schema": 1, "folder": str(kept.path), "prepared": listing})
