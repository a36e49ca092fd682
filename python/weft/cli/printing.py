"""Printing texts with names in them that others have chosen."""

from __future__ import annotations

import click

from weft.base.numbers import harmless

__all__ = ["echo"]


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text with names in it that a target has chosen: they must not control a terminal."""
    click.echo(harmless(text), err=err, nl=nl)
