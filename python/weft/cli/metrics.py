"""List the metrics that can be measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from weft.cli.inputs import completed
from weft.cli.output import console, file_option, format_option, print_json
from weft.mdl import ast

KINDS: Mapping[str, str] = {
    "wallTimer": "wall time",
    "processTimer": "processor time",
}
"""Types whose names do not speak for themselves."""


@click.command()
@click.argument("name", required=False, shell_complete=completed("metric_names"))
@file_option("List the metrics of a file, too.")
@format_option
def command(name: str | None, files: tuple[str, ...], output_format: str) -> None:
    """List the metrics that can be measured.

    With a NAME, tells all about that one.

    \b
    Examples:
      weft metrics
      weft metrics latency
      weft metrics -f mine.mdl --format json
    """
    from weft.mdl.loader import load
    from weft.metrics.catalogue import library_files, unknown_metric

    library = load(*library_files(), *map(Path, files))
    if name is not None and name not in library.metrics:
        raise unknown_metric(name, library)
    chosen = [library.metrics[name]] if name else list(library.metrics.values())
    if output_format == "json":
        print_json({"schema": 1, "metrics": [_facts(one, library.constraints) for one in chosen]})
    elif name:
        _tell(chosen[0], library.constraints)
    else:
        _list(chosen)


def _list(metrics: list[ast.Metric]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("metric", "unit", "kind", "what it is"):
        table.add_column(heading, no_wrap=heading != "what it is")
    for one in metrics:
        kind = KINDS.get(one.base.type, one.base.type)
        table.add_row(one.name, one.units, kind, one.doc.partition("\n")[0])
    screen = console()
    screen.print(table)
    screen.print(
        "\n`weft metrics NAME` tells more; a focus narrows: -m calls@/Code/libc.so.6/malloc"
    )


def _tell(metric: ast.Metric, constraints: Mapping[str, ast.Constraint]) -> None:
    screen = console()
    facts = _facts(metric, constraints)
    screen.print(f"[bold]{metric.name}[/]  {metric.title}, in {metric.units or 'numbers'}")
    screen.print()
    screen.print(metric.doc, markup=False)
    screen.print()
    screen.print(f"kind     {KINDS.get(metric.base.type, metric.base.type)}")
    screen.print(f"narrow   {', '.join(facts['narrow'])}")


def _facts(metric: ast.Metric, constraints: Mapping[str, ast.Constraint]) -> dict[str, Any]:
    from weft.mdl.lower import takes_code
    from weft.metrics.kernel import is_by_thread

    hierarchies = {constraints[name].hierarchy for name in metric.constraints}
    if takes_code(metric):
        hierarchies.add("/Code")
    if not metric.base.process:
        hierarchies |= {"/Process", "/Thread"}
    elif is_by_thread(metric.base.process):
        hierarchies.add("/Thread")
    return {
        "name": metric.name,
        "title": metric.title,
        "unit": metric.units,
        "kind": metric.base.type,
        "aggregate": metric.aggregate,
        "narrow": sorted(hierarchies),
        "doc": metric.doc,
    }
