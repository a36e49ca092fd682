"""The ``weft`` command."""

from __future__ import annotations

import sys

import click

from weft import __version__
from weft.cli import points
from weft.errors import WeftError


@click.group()
@click.version_option(__version__, prog_name="weft")
def cli() -> None:
    """Weave measurement into running native programs."""


cli.add_command(points.command)


def main() -> None:
    """The entry point: an error of weft is a message, never a traceback."""
    try:
        cli()
    except WeftError as error:
        click.echo(f"weft: {error}", err=True)
        sys.exit(error.exit_code)
