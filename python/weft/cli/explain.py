"""Show what becomes of a metric, stage by stage."""

from __future__ import annotations

import pprint
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

import weft
from weft.cli.inputs import Pid, completed
from weft.cli.measure import say_foci
from weft.cli.output import file_option, format_option, print_json
from weft.errors import InvalidArgument

if TYPE_CHECKING:
    from weft.mdl.plan import Plan, Weaving

STAGES = ("ast", "points", "ir", "asm", "cost")


@click.command()
@click.argument("metric", metavar="METRIC[@FOCUS]", shell_complete=completed("metrics"))
@click.argument("pid", required=False, type=Pid(), metavar="[PID|NAME]")
@click.option(
    "--emit",
    "stages",
    type=click.Choice(STAGES),
    multiple=True,
    help="What to show; may be given several times. All of them, if not given.",
)
@file_option("Take metrics from a file, too.")
@format_option
def command(
    metric: str,
    pid: int | None,
    stages: tuple[str, ...],
    files: tuple[str, ...],
    output_format: str,
) -> None:
    """Show what becomes of a metric, stage by stage.

    The definition as it was understood (ast), where in the process PID code goes (points), what it
    does there (ir), as machine code (asm, for which it is woven for a moment), and what it is
    predicted to cost each time (cost). All but the first need a process.

    \b
    Examples:
      weft explain latency --emit ast
      weft explain calls@/Code/libc.so.6/malloc 4711 --emit ir --emit cost
    """
    from weft.mdl.loader import load
    from weft.metrics.catalogue import library_files, metric_and_focus, unknown_metric

    wanted = stages or (STAGES if pid is not None else ("ast",))
    name, focus = metric_and_focus(metric)
    library = load(*library_files(), *map(Path, files))
    if name not in library.metrics:
        raise unknown_metric(name, library)
    shown: dict[str, str] = {}
    if "ast" in wanted:
        shown["ast"] = pprint.pformat(library.metrics[name], width=100, sort_dicts=False)
    if set(wanted) != {"ast"}:
        if pid is None:
            raise InvalidArgument(
                "there is no process to look at",
                "all stages but ast depend on the program",
                f"weft explain {metric} PID --emit {wanted[-1]}",
            )
        with weft.attach(pid) as session:
            session.load_metrics(*map(Path, files))
            shown.update(_stages(session, name, focus, wanted))
    if output_format == "json":
        print_json({"schema": 1, "metric": name, "focus": focus, "stages": shown})
        return
    for stage, text in shown.items():
        if len(shown) > 1:
            click.secho(f"== {stage}", bold=True)
        click.echo(text)


def _stages(
    session: weft.Session, name: str, focus: str, wanted: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    from weft.metrics.nodes import snippets

    engine = session.metrics
    typed, focus = focus, engine.full_focus(focus)
    say_foci([(typed, focus)])
    plan = engine.plan(engine.definition(name), focus)
    if plan is None:
        yield "points", f"{name} is counted by the kernel: nothing is woven"
        return
    woven = snippets(plan)
    if "points" in wanted:
        yield "points", "\n".join(_points(plan))
    if "ir" in wanted:
        yield "ir", "\n\n".join(f"# {_title(one)}\n{text}" for one, text in woven)
    if "asm" in wanted:
        measured = session.metric(name, focus)
        assert measured.node is not None
        nodes = (*measured.node.needs, measured.node)
        numbers = [number for node in nodes for probe in node.probes for number in probe.numbers]
        yield "asm", "\n".join(map(engine.target.probe_asm, numbers))
        measured.remove()
    if "cost" in wanted:
        costs = [(one, engine.target.snippet_cost(text)) for one, text in woven]
        lines = [f"{cost[one.points[0].kind]:8.1f} ns a time, {_title(one)}" for one, cost in costs]
        yield "cost", "\n".join(lines)


def _title(weaving: Weaving) -> str:
    return f"{weaving.order} at {len(weaving.points)} {weaving.points[0].kind} points"


def _points(plan: Plan) -> Iterator[str]:
    for instrument in (*plan.predicates, plan.base):
        for weaving in instrument.weavings:
            counts = Counter((point.module, point.kind) for point in weaving.points)
            for (module, kind), count in counts.items():
                yield f"{weaving.order:8}{count:7} {kind} points in {module}"
            for point in weaving.points[:20]:
                yield f"        {point}"
            if len(weaving.points) > 20:
                yield f"        ... and {len(weaving.points) - 20} more"
