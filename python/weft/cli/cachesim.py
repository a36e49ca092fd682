"""Say which functions of a trace would miss in given caches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from weft import trace as traces
from weft.cli.output import console, format_option, print_json, progress
from weft.tools.cachesim import DEFAULT, Level, simulate

if TYPE_CHECKING:
    from weft.tools.cachesim import Simulated

_SCHEMA = 1


@click.command("cachesim")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--cache",
    "caches",
    multiple=True,
    metavar="SIZE,WAYS[,LINE]",
    help="A cache, the nearest first; without it 32K,8,64 and 1M,16,64.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="How many functions to show.",
)
@format_option
def command(file: Path, caches: tuple[str, ...], top: int, output_format: str) -> None:
    """Say which functions of a trace would miss in given caches.

    All data that the program has touched goes through caches that keep what was used last, each
    thread through its own. What is counted are lines that a cache did not have.

    \b
    Examples:
      weft cachesim run.weft-trace
      weft cachesim run.weft-trace --cache 48K,12 --cache 2M,16 --cache 32M,16
      weft cachesim run.weft-trace --format json
    """
    levels = tuple(map(Level.parse, caches)) or DEFAULT
    for level in levels:
        level.cache()
    with progress(f"looking through {file}"):
        found = simulate(traces.open(file), levels)
    if output_format == "json":
        _print_json(found, top)
    else:
        _print(found, top)


def _print_json(found: Simulated, top: int) -> None:
    levels = [
        {
            "size": level.level.size,
            "ways": level.level.ways,
            "line": level.level.line,
            "asked": level.asked,
            "missed": level.missed,
        }
        for level in found.levels
    ]
    functions = [
        {
            "module": row.module,
            "function": row.function,
            "accesses": row.accesses,
            "missed": list(row.missed),
        }
        for row in found.functions[:top]
    ]
    print_json(
        {
            "schema": _SCHEMA,
            "accesses": found.accesses,
            "unknown": found.unknown,
            "levels": levels,
            "functions": functions,
        }
    )


def _print(found: Simulated, top: int) -> None:
    from rich.table import Table

    out = console()
    lost = f", {found.unknown:,} of them at unknown addresses" if found.unknown else ""
    out.print(f"{found.accesses:,} accesses{lost}")
    levels = Table(box=None, pad_edge=False)
    for name in ("cache", "asked", "lines missed", "of the asked"):
        levels.add_column(name, justify="right")
    for number, level in enumerate(found.levels, 1):
        share = level.missed / level.asked if level.asked else 0.0
        shape = level.level
        name = f"L{number} {_size(shape.size)}, {shape.ways} ways of {shape.line}"
        levels.add_row(name, f"{level.asked:,}", f"{level.missed:,}", f"{share:.2%}")
    out.print(levels)
    out.print()
    functions = Table(box=None, pad_edge=False)
    functions.add_column("accesses", justify="right")
    for number in range(1, len(found.levels) + 1):
        functions.add_column(f"L{number} missed", justify="right")
    functions.add_column("function")
    for row in found.functions[:top]:
        place = row.function or "?"
        module = f"  ({Path(row.module).name})" if row.module else ""
        counts = (row.accesses, *row.missed)
        functions.add_row(*(f"{count:,}" for count in counts), f"{place}{module}")
    out.print(functions, markup=False)


def _size(size: int) -> str:
    for unit, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)
