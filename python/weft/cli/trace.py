"""Record what a program executes and touches, all of it; query it, draw it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from weft.cli import measure
from weft.cli.output import WithParts, console, format_option, forward_signals, print_json
from weft.errors import BadFile, InvalidArgument

if TYPE_CHECKING:
    from weft.trace import Trace

_SCHEMA = 1
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
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long to trace a process; without it until Ctrl-C, or until it ends.",
)
@click.option("--values", is_flag=True, help="Record what is read and written, too.")
@click.argument("target", metavar="PID|-- CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
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
    if len(target) == 1 and target[0].isdigit():
        lost = _trace_process(int(target[0]), output, seconds, values)
    else:
        code, lost = trace.record(target, output, values=values, on_start=forward_signals)
    for text in lost:
        click.echo(f"note: {text}", err=True)
    ctx.exit(code)


def _trace_process(pid: int, output: Path, seconds: float | None, values: bool) -> list[str]:
    from weft import trace

    # Whoever ends weft wants it to leave.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with measure.waiting_for(pid) as ended:

        def wait() -> None:
            with contextlib.suppress(KeyboardInterrupt):
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

    out = console()
    for key, value in trace.notes.items():
        out.print(f"{key}: {value}", markup=False)
    each = f", {size / accesses:.2f} for each access" if accesses else ""
    out.print(f"{size:,} bytes{each}")
    out.print(f"{len(trace.code):,} blocks of code, {len(trace.modules)} files mapped")
    if trace.is_cut:
        out.print("the end is missing: weft was stopped while it wrote")
    table = Table(box=None, pad_edge=False)
    for name in ("thread", "blocks executed", "accesses", "bytes"):
        table.add_column(name, justify="right")
    for total in trace.threads:
        row = (total.blocks, total.accesses, total.bytes)
        table.add_row(str(total.thread), *(f"{number:,}" for number in row))
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
    trace = _opened(file)
    try:
        if chosen == "parquet":
            from weft.export import trace_parquet

            count = trace_parquet.write(trace, view, output)
        elif chosen == "perfetto":
            from weft.export import perfetto

            count = perfetto.write(trace, output)
        else:
            raise InvalidArgument(
                f"nothing says how to write {output}",
                advice="add --format parquet or --format perfetto",
            )
    except OSError as error:
        raise BadFile(f"cannot write {output}", error.strerror or str(error)) from error
    what = "slices" if chosen == "perfetto" else "rows"
    click.echo(f"{output}: {count:,} {what}", err=True)


@command.part("heatmap")
@click.command()
@_file
@_output("A file whose name ends with .png or .html.")
@click.option(
    "--page", default=4096, show_default=True, help="The bytes of a page, a power of two."
)
@click.option("--width", default=800, show_default=True, help="How many stretches of time.")
@click.option("--height", default=400, show_default=True, help="The most rows.")
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

    if page < 1 or page & (page - 1) or width < 1 or height < 1:
        raise InvalidArgument(
            "no such picture can be", "a page is a power of two, and a picture has pixels"
        )
    if output.suffix not in (".png", ".html"):
        raise InvalidArgument(
            f"nothing says how to draw {output}",
            advice="give it a name that ends with .png or .html",
        )
    heat = tool.heat_map(_opened(file), width=width, height=height, page=page)
    try:
        if output.suffix == ".png":
            output.write_bytes(tool.to_png(heat))
        else:
            output.write_text(tool.to_html(heat, f"Memory that {file.name} touches"))
    except OSError as error:
        raise BadFile(f"cannot write {output}", error.strerror or str(error)) from error
    click.echo(f"{output}: {heat.accesses:,} accesses, {len(heat.rows)} rows", err=True)


def _opened(file: Path) -> Trace:
    from weft import trace

    opened = trace.open(file)
    if opened.is_cut:
        click.echo(f"note: the end of {file} is missing; what is there is read", err=True)
    return opened
