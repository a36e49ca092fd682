"""Record what a program executes and touches, all of it; query it, draw it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from weft.base.files import Draft, check
from weft.base.interrupts import Interrupted, interruptible
from weft.cli import measure
from weft.cli.inputs import Seconds, process_id
from weft.cli.output import WithParts, console, format_option, forward_signals, print_json, progress
from weft.cli.printing import echo
from weft.errors import InvalidArgument

if TYPE_CHECKING:
    from weft.trace import Trace

_SCHEMA = 1
_PIXELS = click.IntRange(min=1, max=1 << 14)
_Function = TypeVar("_Function", bound=Callable[..., Any])
_file = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))


def _output(help_text: str) -> Callable[[_Function], _Function]:
    """Return the decorator that gives a command ``-o``, which it cannot do without."""
    return click.option(
        "-o",
        "--output",
        required=True,
        metavar="OUT",
        type=click.Path(path_type=Path),
        help=help_text,
    )


@click.command(cls=WithParts, context_settings={"ignore_unknown_options": True})
@_output("Where to write the trace.")
@click.option(
    "--for",
    "seconds",
    type=Seconds(min=0),
    metavar="TIME",
    help="How long to trace a process: 90, 500ms, 10m; without it until Ctrl-C, or until it ends.",
)
@click.option("--values", is_flag=True, help="Record what is read and written, too.")
@click.argument(
    "target", metavar="PID|NAME|-- CMD...", nargs=-1, required=True, type=click.UNPROCESSED
)
@click.pass_context
def command(
    ctx: click.Context,
    output: Path,
    seconds: float | None,
    values: bool,
    target: tuple[str, ...],
) -> None:
    """Record what a program executes and touches, all of it; query it, draw it.

    Which blocks it executes, in which order, and every address that it loads from and stores to;
    with --values also what it loads and stores.
    The file holds what cannot be computed again, well under a byte for each access; the rest is
    computed as it is read. It takes many times as long as alone. What the program forks, and other
    programs that it starts, are part of the trace. The exit code is that of CMD. A process PID goes
    on as before when the trace ends.

    `weft trace info`, `query`, `export` and `heatmap` read a trace.

    \b
    Examples:
      weft trace -o run.weft-trace -- ./prog input.txt
      weft trace -o moment.weft-trace 4711 --for 0.2
      weft trace -o all.weft-trace --values -- ./prog input.txt
      weft trace info run.weft-trace
      weft trace query run.weft-trace "SELECT kind, count(*) FROM accesses GROUP BY kind"
      weft trace heatmap run.weft-trace -o memory.png
      weft trace export run.weft-trace -o calls.perfetto
    """
    from weft import trace

    code = 0
    pid = process_id(target)
    if pid is not None:
        lost = _trace_process(pid, output, seconds, values)
    else:
        code, lost = trace.record(target, output, values=values, on_start=forward_signals)
    for text in lost:
        echo(f"note: {text}", err=True)
    ctx.exit(code)


def _trace_process(pid: int, output: Path, seconds: float | None, values: bool) -> list[str]:
    from weft import trace

    with measure.waiting_for(pid) as ended:

        def wait() -> None:
            measure.say_until(pid, seconds)
            with contextlib.suppress(Interrupted), interruptible():
                ended(seconds)

        return trace.record_process(pid, output, wait, values=values)


@command.part("info")
@click.command()
@_file
@format_option
def info(file: Path, output_format: str) -> None:
    """Say what a trace holds.

    \b
    Examples:
      weft trace info run.weft-trace
      weft trace info run.weft-trace --format json
    """
    trace = _opened(file)
    threads = [
        {
            "thread": total.thread,
            "process": total.process,
            "program": total.program,
            "name": total.name,
            "blocks": total.blocks,
            "accesses": total.accesses,
            "bytes": total.bytes,
        }
        for total in trace.threads
    ]
    size = file.stat().st_size
    accesses = sum(total.accesses for total in trace.threads)
    if output_format == "json":
        about: dict[str, Any] = {"schema": _SCHEMA, "notes": trace.notes, "bytes": size}
        about |= {"threads": threads, "blocks": len(trace.code), "is_cut": trace.is_cut}
        about["lost"] = list(trace.lost)
        about["modules"] = [
            {
                "program": module.program,
                "path": module.path,
                "start": module.start,
                "end": module.end,
            }
            for module in trace.modules
        ]
        print_json(about)
        return
    from rich.table import Table
    from rich.text import Text

    out = console()
    for key, value in trace.notes.items():
        out.print(f"{key}: {value}", markup=False)
    each = f", {size / accesses:.2f} for each access" if accesses else ""
    out.print(f"{size:,} bytes{each}")
    out.print(f"{len(trace.code):,} blocks of code, {len(trace.modules)} files mapped")
    if trace.is_cut:
        out.print("the end is missing: weft was stopped while it wrote")
    for text in trace.lost:
        out.print(f"note: {text}", highlight=False)
    table = Table(box=None, pad_edge=False)
    table.add_column("name")
    for name in ("process", "thread", "blocks executed", "accesses (at most)", "bytes"):
        table.add_column(name, justify="right")
    for total in trace.threads:
        row = (total.blocks, total.accesses, total.bytes)
        ids = str(total.process), str(total.thread)
        table.add_row(Text(total.name), *ids, *(f"{number:,}" for number in row))
    out.print(table)


@command.part("query")
@click.command()
@_file
@click.argument("sql", metavar="SQL")
@format_option
def query(file: Path, sql: str, output_format: str) -> None:
    """Ask a trace a question in SQL (needs weft[query]).

    The tables are accesses, blocks, branches, calls, system_calls and events; code has the module
    and the function of each block, to be joined by the column block.

    \b
    Examples:
      weft trace query run.weft-trace "SELECT kind, count(*), sum(size) FROM accesses GROUP BY kind"
      weft trace query run.weft-trace "SELECT function, count(*) AS n FROM accesses
          JOIN code USING (block) GROUP BY function ORDER BY n DESC LIMIT 10"
    """
    from weft.tools.query import ask

    with progress(f"looking through {file}"):
        columns, rows = ask(_opened(file), sql)
    if output_format == "json":
        listing = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"schema": _SCHEMA, "rows": listing})
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for index, name in enumerate(columns):
        is_number = bool(rows) and isinstance(rows[0][index], (int, float))
        table.add_column(name, justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row))
    console().print(table, markup=False)


@command.part("export")
@click.command()
@_file
@_output("Where to.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["parquet", "perfetto"]),
    help="Which format; without it, what the name of OUT ends with.",
)
@click.option(
    "--table",
    "view",
    type=click.Choice(["accesses", "blocks", "branches", "calls", "system_calls", "events"]),
    default="accesses",
    show_default=True,
    help="Which table to write as Parquet.",
)
def export(file: Path, output: Path, output_format: str | None, view: Any) -> None:
    """Write a trace for other tools: Parquet, or Perfetto's timeline.

    Parquet holds one table. Perfetto gets the calls and the system calls: open the file in
    https://ui.perfetto.dev, which does not send it anywhere.

    \b
    Examples:
      weft trace export run.weft-trace -o accesses.parquet
      weft trace export run.weft-trace -o branches.parquet --table branches
      weft trace export run.weft-trace -o timeline.perfetto
    """
    chosen = output_format or output.suffix.lstrip(".")
    if chosen not in ("parquet", "perfetto"):
        raise InvalidArgument(
            f"nothing says how to write {output}",
            advice="add --format parquet or --format perfetto",
        )
    trace = _opened(file)
    with progress(f"writing {output}"), Draft(output) as out:
        if chosen == "parquet":
            from weft.export.trace import parquet as trace_parquet

            count = trace_parquet.write(trace, view, out)
        else:
            from weft.export.trace import perfetto

            count = perfetto.write(trace, out)
    what = "slices" if chosen == "perfetto" else "rows"
    echo(f"{output}: {count:,} {what}", err=True)


@command.part("heatmap")
@click.command()
@_file
@_output("A file whose name ends with .png or .html.")
@click.option(
    "--page", default=4096, show_default=True, help="The bytes of a page, a power of two."
)
@click.option(
    "--width", type=_PIXELS, default=800, show_default=True, help="How many stretches of time."
)
@click.option("--height", type=_PIXELS, default=400, show_default=True, help="The most rows.")
def heatmap(file: Path, output: Path, page: int, width: int, height: int) -> None:
    """Draw which pages of memory are touched when.

    Time goes from left to right, by the number of accesses; each row is a page, or some neighbours,
    of those that were touched at all. The brighter, the more often. The HTML shows the addresses of
    the row that you point at.

    \b
    Examples:
      weft trace heatmap run.weft-trace -o memory.png
      weft trace heatmap run.weft-trace -o lines.html --page 64
    """
    from weft.tools import heatmap as tool

    if not 0 < page < 1 << 48 or page & (page - 1):
        raise InvalidArgument(f"a page cannot have {page} bytes", advice="choose a power of two")
    if output.suffix not in (".png", ".html"):
        raise InvalidArgument(
            f"nothing says how to draw {output}",
            advice="give it a name that ends with .png or .html",
        )
    check(output)
    with progress(f"looking through {file}"):
        heat = tool.heat_map(_opened(file), width=width, height=height, page=page)
    if output.suffix == ".png":
        picture = tool.to_png(heat)
    else:
        picture = tool.to_html(heat, f"Memory that {file.name} touches").encode()
    with Draft(output) as out:
        out.write(picture)
    echo(f"{output}: {heat.accesses:,} accesses, {len(heat.rows)} rows", err=True)


def _opened(file: Path) -> Trace:
    from weft import trace

    opened = trace.open(file)
    if opened.is_cut:
        echo(f"note: the end of {file} is missing; what is there is read", err=True)
    return opened
