"""The ``weft`` command."""

from __future__ import annotations

import click

from weft import __version__


@click.group()
@click.version_option(__version__, prog_name="weft")
def main() -> None:
    """Weave measurement into running native programs."""
