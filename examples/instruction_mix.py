"""Say which instructions a program executes, and how often.

A tool over weft in one file. It can be run as it is,

    python examples/instruction_mix.py -- gzip -kc README.md

or become a command of weft, `weft instruction-mix`, if a package names it by an entry point:

    [project.entry-points."weft.commands"]
    instruction-mix = "instruction_mix:command"
"""

from __future__ import annotations

import sys
from collections import Counter

import click
from rich.console import Console
from rich.table import Table

import weft
from weft.errors import WeftError
from weft.model.flow import NO_FILE, Flow
from weft.model.program import Module


def mix_of(flow: Flow) -> Counter[str]:
    """How often each kind of instruction was executed."""
    mix: Counter[str] = Counter()
    for module in flow.modules:
        if module.path == NO_FILE or module.path.startswith("["):
            # What no file has cannot be looked at any more.
            mix[f"in {module.path}"] += sum(b.count * b.instructions for b in module.blocks)
            continue
        pieces = [(block.offset, block.size) for block in module.blocks]
        listings = Module(module.path).disassemble(pieces)
        for block, listing in zip(module.blocks, listings, strict=True):
            for _offset, text in listing:
                mix[text.split()[0]] += block.count
    return +mix


@click.command()
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--top", default=12, show_default=True, help="How many kinds to show.")
def command(program: tuple[str, ...], top: int) -> None:
    """Say which instructions PROGRAM executes, and how often; its exit code is PROGRAM's."""
    with weft.run(program, weaver="clone", records="counts") as cloned:
        code = cloned.wait()
        mix = mix_of(cloned.flow())
    table = Table("instruction", "executed", "share", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, count in mix.most_common(top):
        table.add_row(name, f"{count:,}", f"{count / mix.total():.1%}")
    console = Console(stderr=True, highlight=False)
    console.print(table)
    console.print(f"{mix.total():,} instructions of {len(mix)} kinds")
    sys.exit(code)


if __name__ == "__main__":
    try:
        command()
    except WeftError as error:
        raise SystemExit(f"error: {error}") from None
