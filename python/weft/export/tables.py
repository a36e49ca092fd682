"""Tables for terminals and files: names on the left, numbers on the right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from weft.base.numbers import printable, shortened

__all__ = ["BAR", "table", "write_plain"]

BAR = 12
"""How wide a bar is."""
_GAP = 2
_NARROW = 12
_TEXTS = ("NAME", "FUNCTION", "SOURCE", "FOR", "HELD MOST BY", "LOCK", "WHO WAITS", "WHO HOLDS IT")
"""The columns that have no numbers."""


def write_plain(file: BinaryIO, content: RenderableType) -> None:
    """Write it without colour, as wide as it is."""
    console = Console(color_system=None, width=1_000_000, highlight=False, emoji=False)
    with console.capture() as written:
        console.print(content, soft_wrap=True)
    lines = [line.rstrip() for line in written.get().splitlines()]
    file.write(("\n".join(lines) + "\n").encode(errors="replace"))


def table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None,
    long: str = "FUNCTION",
) -> Table:
    """A table of which one column is shortened if it is to fit a width; numbers never are."""
    made = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for title in titles:
        if title in _TEXTS:
            made.add_column(title, no_wrap=True)
        elif title == "MODULE":
            made.add_column(title, no_wrap=True, style="cyan")
        elif title == "BAR":
            made.add_column("", no_wrap=True, style="green", min_width=BAR)
        else:
            made.add_column(title, no_wrap=True, justify="right")
    name = titles.index(long)
    if width is not None:
        widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
        others = sum(widths) - widths[name] + _GAP * len(titles)
        room = max(_NARROW, width - others)
        rows = [[*row[:name], shortened(row[name], room), *row[name + 1 :]] for row in rows]
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made
