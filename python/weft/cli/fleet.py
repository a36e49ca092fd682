"""Measure processes of many machines by one request."""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from click.core import ParameterSource

from weft.base.files import MOST_TEXT, read
from weft.base.interrupts import Interrupted, interruptible, raise_again
from weft.base.numbers import printable
from weft.cli import fleet_demo, measure
from weft.cli.host import connection_options, quiet
from weft.cli.inputs import Moment, Seconds, completed
from weft.cli.output import (
    OnlyParts,
    all_of,
    check_delivery,
    console,
    deliver,
    file_option,
    format_option,
    output_options,
    print_json,
)
from weft.cli.printing import echo
from weft.errors import BadFile, InvalidArgument, NoSuchProcess, TargetError, WeftError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from weft.fleet.blocking import Fleet, FleetMeasurement
    from weft.fleet.fetching import HostFiles, Progress
    from weft.fleet.front import Running
    from weft.fleet.results import FleetResult

_FORMATS = ["text", "json", "csv", "parquet"]
_LONGEST_VIEW = 3600.0
_MOST_WHY = 3
"""Of how many hosts an error says why they have measured nothing."""
_MOMENT = 1.0
"""How long a file is fetched without that being shown, in seconds."""
_ROUND = 0.2
"""How long to wait at most before signals are looked at, in seconds."""


@dataclass(frozen=True)
class _Connection:
    """Which fleet is asked, and in whose name."""

    url: str
    credentials: Path | None
    authority: Path | None
    requester: str | None

    def open(self) -> Fleet:
        """Connect, as a context manager."""
        quiet()
        from weft.fleet.blocking import Fleet

        return Fleet(
            self.url,
            credentials=self.credentials,
            authority=self.authority,
            requester=self.requester,
        )


def _connected(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a connection, which are one parameter."""

    @all_of(
        connection_options,
        click.option(
            "--as",
            "requester",
            metavar="NAME",
            help="In whose name to ask; without it that of the user.",
        ),
    )
    @wraps(command)
    def connected(**options: Any) -> None:
        own = {one.name: options.pop(one.name) for one in fields(_Connection)}
        command(connection=_Connection(**own), **options)

    return connected


_what = all_of(
    click.option(
        "-m",
        "--metric",
        "metrics",
        multiple=True,
        metavar="METRIC[@FOCUS]",
        shell_complete=completed("metrics"),
        help="Measure a metric, of the programs or a part of them; may be repeated.",
    ),
    click.option(
        "-e",
        "probes",
        multiple=True,
        metavar="PROBE",
        help="Measure by a one-liner, if that is allowed.",
    ),
    file_option("Take metrics from a file, too, if that is allowed."),
    click.option(
        "--where",
        default="*",
        show_default=True,
        metavar="SELECTOR",
        help="Which processes: 'exe=redis-server and label.zone=b'.",
    ),
    click.option(
        "--budget",
        metavar="PERCENT",
        help="How much of its time each process may lose; a host may allow less: 0.5%.",
    ),
)
"""Gives a command the options that say what is measured, and where."""


@click.command(cls=OnlyParts)
@format_option
@click.pass_context
def command(ctx: click.Context, output_format: str) -> None:
    """Measure processes of many machines by one request.

    `weft host` runs on each of them; a broker of NATS is between. `weft fleet run` measures,
    `weft fleet ps` lists the hosts and what they run, `weft fleet status` the requests that there
    are, and `weft fleet stop` ends one; `weft fleet top` watches, and `weft fleet fetch` fetches
    files. `weft fleet demo` is a fleet of three on this machine.

    \b
    Examples:
      weft fleet ps --nats nats://broker
      weft fleet run -m calls@processCommand --where exe=redis-server --for 10s --nats nats://broker
      weft fleet status --nats nats://broker
    """
    del output_format
    click.echo(ctx.get_help())


@command.part("run")
@click.command()
@_what
@click.option(
    "--for",
    "seconds",
    type=Seconds(min=0),
    default=10.0,
    show_default=True,
    metavar="TIME",
    help="How long to measure: 10s, 10m; Ctrl-C ends it before.",
)
@click.option(
    "--until",
    type=Moment(),
    metavar="MOMENT",
    help="Until when to measure, instead of --for: 14:30, or 2026-11-19T14:30Z.",
)
@click.option(
    "--by",
    metavar="KEY",
    shell_complete=completed("keys"),
    help="Divide each value: by process, function, module, caller, stack, thread, lock, or an "
    "expression such as '$arg[0]', if that is allowed.",
)
@measure.interval_option
@click.option(
    "--patience",
    type=Seconds(min=0),
    default=15.0,
    show_default=True,
    metavar="TIME",
    help="How long to wait for the last values of hosts that do not answer.",
)
@click.option(
    "--first",
    default="all",
    metavar="STAGES",
    help="Ask a few hosts first, and all only if these can take it: '1 then 10% then all'.",
)
@click.option(
    "--rest",
    type=Seconds(min=0),
    default=5.0,
    show_default=True,
    metavar="TIME",
    help="How long to look at the hosts of a stage before the next.",
)
@click.option(
    "--guard",
    "guards",
    multiple=True,
    metavar="GUARD",
    help="End it on all hosts when a host's values are not so; may be repeated: "
    "'latency.p99@processCommand < 2ms'.",
)
@output_options(_FORMATS)
@_connected
@click.pass_context
def run(
    ctx: click.Context,
    metrics: tuple[str, ...],
    probes: tuple[str, ...],
    files: tuple[str, ...],
    where: str,
    seconds: float,
    until: datetime | None,
    interval: float,
    budget: str | None,
    by: str | None,
    patience: float,
    first: str,
    rest: float,
    guards: tuple[str, ...],
    output: str | None,
    output_format: str,
    connection: _Connection,
) -> None:
    """Measure metrics in processes of many machines.

    Each host measures what its policy allows, and the values of all are added up. A value of which
    something may be missing has a `!` before it, and the notes of its host say why; an estimate has
    a `~`. In JSON, `complete` is false then. CSV and Parquet have a row for each host, metric and
    focus.

    \b
    Examples:
      weft fleet run -m calls@processCommand --where exe=redis-server --for 10s --nats nats://broker
      weft fleet run -m latency@/Code/postgres/exec_simple_query --where 'exe=postgres and
        label.zone=b' --budget 0.5% --for 10m --nats nats://broker -o out.json
      weft fleet run -m latency@processCommand --where exe=redis-server --until 14:30
        --first '1 then 10% then all' --guard 'latency.p99@processCommand < 2ms'
      weft fleet run -m calls@processCommand --by process --where host=web-1 --nats nats://broker
    """
    _check_asked(metrics, probes)
    if until is not None and ctx.get_parameter_source("seconds") is ParameterSource.COMMANDLINE:
        raise InvalidArgument("--for and --until are given", "each says when it ends", "give one")
    share = measure.share(budget)
    check_delivery(output, output_format, is_terminal=sys.stdout.isatty())
    if output_format == "parquet":
        from weft.export.metrics import parquet

        parquet.check()
    texts = [_text(file) for file in files]
    with connection.open() as fleet:
        _check_hosts(fleet, connection.url)
        if until is not None:
            seconds = (until - datetime.now().astimezone()).total_seconds()
        measurement = fleet.start(
            metrics,
            where=where,
            seconds=max(seconds, 0.0),
            interval=interval,
            budget=share,
            probes=probes,
            texts=texts,
            by=by,
            patience=patience,
            first=first,
            rest=rest,
            guards=guards,
        )
        _watch(measurement, interval, is_shown=output is None and output_format == "text")
        found = measurement.result()
    _write(found, output, output_format)
    if measurement.halted:
        echo(f"note: {measurement.halted}", err=True)
    if output is not None and not found.complete:
        for host in found.hosts:
            for note in host.notes:
                echo(f"note: {host.host}: {note}", err=True)
    if not any(host.processes for host in found.hosts):
        raise _unmeasured(found, where)


def _unmeasured(found: FleetResult, where: str) -> WeftError:
    """Say that no process was measured, and why as far as that is known."""
    what, states = "no process was measured", {host.state for host in found.hosts}
    if states <= {"idle", "unasked"}:
        why = f"no host has one that is meant by {printable(where)!r}"
        return NoSuchProcess(what, why, "list what hosts run: weft fleet ps")
    whys = [f"{one.host}: {one.notes[0] if one.notes else one.state}" for one in found.hosts]
    if (rest := len(whys) - _MOST_WHY) > 0:
        whys[_MOST_WHY:] = [f"and {rest} more hosts"]
    why = printable("; ".join(whys))
    is_refused = states <= {"idle", "unasked", "refused"}
    return InvalidArgument(what, why) if is_refused else TargetError(what, why)


@command.part("top")
@click.command()
@_what
@measure.interval_option
@_connected
@format_option
def top(
    metrics: tuple[str, ...],
    probes: tuple[str, ...],
    files: tuple[str, ...],
    where: str,
    budget: str | None,
    interval: float,
    connection: _Connection,
    output_format: str,
) -> None:
    """Watch metrics on all hosts, those first that are least like the others.

    Enter goes on to the processes of a host and to the threads of a process, `k` shows the stacks
    of either, and Escape goes back. `g` puts hosts together by a label, `s` sorts by the rate of a
    metric, and `q` ends it. It lasts an hour at most. --format is that of errors.

    \b
    Examples:
      weft fleet top -m calls@processCommand --where exe=redis-server --nats nats://broker
    """
    del output_format
    _check_asked(metrics, probes)
    if not all(one.isatty() for one in (sys.stdin, sys.stdout, sys.stderr)):
        raise InvalidArgument(
            "the live view needs a terminal",
            "standard input, output or error is none",
            "use `weft fleet run`",
        )
    with connection.open() as fleet:
        _check_hosts(fleet, connection.url)
        texts, share = [_text(file) for file in files], measure.share(budget)
        begun: list[FleetMeasurement] = []

        def begin(selector: str, by: str | None = None) -> FleetMeasurement:
            """Begin to measure, which ends with the view in any case."""
            begun.append(
                fleet.start(
                    metrics,
                    where=selector,
                    seconds=_LONGEST_VIEW,
                    interval=interval,
                    budget=share,
                    probes=probes,
                    texts=texts,
                    by=by,
                )
            )
            return begun[-1]

        try:
            from weft.ui.fleet_top import FleetTop

            measurement = begin(where)
            with interruptible():
                FleetTop(
                    measurement, lambda place: begin(place.within(where), place.by), interval
                ).run()
        finally:
            for one in begun:
                one.stop()


def _check_asked(metrics: tuple[str, ...], probes: tuple[str, ...]) -> None:
    if not metrics and not probes:
        raise InvalidArgument(
            "nothing is to be measured",
            advice="name a metric: -m calls; `weft metrics` lists those that come with weft",
        )


def _check_hosts(fleet: Fleet, url: str) -> None:
    if not fleet.hosts():
        why, advice = "none has registered", "start one on each machine: weft host"
        raise NoSuchProcess(f"there is no host at {url}", why, advice)


def _watch(measurement: FleetMeasurement, interval: float, *, is_shown: bool) -> None:
    """Let it be measured, and show how that goes; Ctrl-C is how one says that it is enough.

    Who says it twice does not wait for hosts that do not answer, and has no result.
    """
    has_stopped = False
    while True:
        try:
            with _live(is_shown=is_shown) as show, interruptible():
                while not measurement.wait(min(interval, _ROUND)):
                    raise_again()
                    show(measurement)
                return
        except Interrupted:
            if has_stopped:
                raise
            has_stopped = True
            echo("waiting for the last values; Ctrl-C again gives them up", err=True)
            measurement.stop()


@contextmanager
def _live(*, is_shown: bool) -> Iterator[Callable[[FleetMeasurement], None]]:
    screen = console(stderr=True)
    if not is_shown or not screen.is_terminal:
        yield lambda _: None
        return
    from rich.live import Live

    from weft.ui.fleet import result

    with Live(console=screen, transient=True, refresh_per_second=4) as live:
        yield lambda measurement: live.update(
            result(measurement.now(), most_hosts=max(screen.height - 10, 1))
        )


def _text(file: str) -> str:
    try:
        return read(file, MOST_TEXT).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(f"cannot read {file}", str(error)) from error


def _write(found: FleetResult, output: str | None, output_format: str) -> None:
    if output_format == "json":
        text = json.dumps(found.document(), indent=None)
        deliver(lambda file: file.write(text.encode() + b"\n"), output)
        return
    if output_format in ("csv", "parquet"):
        from weft.fleet import tables

        write = tables.write_csv if output_format == "csv" else tables.write_parquet
        deliver(lambda file: write(file, found), output)
        return
    from weft.ui.fleet import result

    _print(result(found), output)


def _print(shown: RenderableType, output: str | None = None) -> None:
    if output is None:
        console().print(shown)
        return
    from rich.console import Console

    screen = Console(color_system=None, width=1_000_000, highlight=False, emoji=False)
    with screen.capture() as written:
        screen.print(shown)
    lines = [line.rstrip() for line in written.get().splitlines()]

    def write(file: BinaryIO) -> None:
        file.write(("\n".join(lines) + "\n").encode())

    deliver(write, output)


@command.part("ps")
@click.command()
@click.option("--where", default="*", metavar="SELECTOR", help="Only hosts and programs like this.")
@_connected
@format_option
def ps(
    where: str,
    connection: _Connection,
    output_format: str,
) -> None:
    """List the hosts, and what they run.

    \b
    Examples:
      weft fleet ps --nats nats://broker
      weft fleet ps --where 'label.zone=b' --nats nats://broker --format json
    """
    with connection.open() as fleet:
        found = fleet.hosts(where)
    if output_format == "json":
        listed = [
            {**asdict(one.record), "silent_for": one.silent_for, "problem": one.problem}
            for one in found
        ]
        print_json({"schema": 1, "hosts": listed})
        return
    from weft.ui.fleet import hosts

    _print(hosts(found))


@command.part("status")
@click.command()
@_connected
@format_option
def status(
    connection: _Connection,
    output_format: str,
) -> None:
    """List the requests that there are, and what hosts do for them.

    \b
    Examples:
      weft fleet status --nats nats://broker
      weft fleet status --nats nats://broker --format json
    """
    with connection.open() as fleet:
        found = fleet.status()
        if fleet.is_restricted:
            text = "only the requests of {} are shown: the broker lets no answers to others be read"
            echo(f"note: {text.format(fleet.requester)}", err=True)
    if output_format == "json":
        print_json({"schema": 1, "requests": [_request(one) for one in found]})
        return
    from weft.ui.fleet import requests

    _print(requests(found))


def _request(one: Running) -> dict[str, object]:
    request = one.request
    return {
        "id": request.id,
        "requester": request.requester,
        "metrics": [*map(str, request.metrics), *request.probes],
        "where": request.where,
        "seconds": request.seconds,
        "age": one.age,
        "problem": one.problem,
        **one.result.document(),
    }


@command.part("stop")
@click.command()
@click.argument("request", metavar="REQUEST")
@_connected
@format_option
def stop(
    request: str,
    connection: _Connection,
    output_format: str,
) -> None:
    """End a request before its time, by its id or the beginning of that.

    What was measured until then is its result.

    \b
    Examples:
      weft fleet stop 4f2a --nats nats://broker
    """
    with connection.open() as fleet:
        stopped = fleet.stop(request)
    if output_format == "json":
        print_json({"schema": 1, "stopped": stopped})
        return
    echo(f"stopped {stopped}")


@command.part("fetch")
@click.command()
@click.argument("host", metavar="[HOST", required=False)
@click.argument("name", metavar="FILE]", required=False)
@click.option("--where", metavar="SELECTOR", help="Only list files of hosts like this.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write it; without it, in this folder, by the name that it has there.",
)
@click.option(
    "--patience",
    type=Seconds(min=0),
    default=15.0,
    show_default=True,
    metavar="TIME",
    help="How long to wait for hosts that do not answer.",
)
@_connected
@format_option
def fetch(
    host: str | None,
    name: str | None,
    where: str | None,
    output: Path | None,
    patience: float,
    connection: _Connection,
    output_format: str,
) -> None:
    """List the files that hosts offer, or fetch one.

    These are traces, profiles and other files in the folder that `weft host --files` names, as far
    as the policy of the host allows it. One that is fetched has its name when all of it has
    arrived, and nobody but its owner can read it.

    \b
    Examples:
      weft fleet fetch --nats nats://broker
      weft fleet fetch --where label.zone=b --nats nats://broker
      weft fleet fetch web-1 redis.pftrace -o slow.pftrace --nats nats://broker
    """
    if host is not None and name is None:
        raise InvalidArgument(
            "no file is named",
            f"{printable(host)} is the host that it is on",
            f"list its files: weft fleet fetch --where host={printable(host)}",
        )
    if host is not None and where is not None:
        raise InvalidArgument("--where is about lists", "a host and a file are named", "leave it")
    if host is None and output is not None:
        raise InvalidArgument("-o is about a file", "none is named", "weft fleet fetch HOST FILE")
    with connection.open() as fleet:
        if host is None or name is None:
            _list_files(fleet.files(where or "*", patience=patience), output_format)
            return
        path = Path(Path(name).name) if output is None else output
        with _progress() as progress:
            fetched = fleet.fetch(host, name, path, patience=patience, progress=progress)
    if output_format == "json":
        print_json({"schema": 1, **asdict(fetched), "file": str(path)})
        return
    # What is fetched to /dev/stdout is alone there.
    is_device = path.parts[:2] == ("/", "dev")
    echo(f"{fetched.size:,} bytes of {fetched.name} from {fetched.host}: {path}", err=is_device)


def _list_files(found: list[HostFiles], output_format: str) -> None:
    if output_format == "json":
        print_json({"schema": 1, "hosts": [asdict(one) for one in found]})
        return
    from weft.ui.fleet import files

    _print(files(found))


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show on a terminal how far a file is, if it takes more than a moment."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield lambda doing, done, size: None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    bar = Bar(*columns, console=screen, transient=True)
    task, began = bar.add_task(""), time.monotonic()

    def show(doing: str, done: int, size: int) -> None:
        bar.update(task, description=doing, completed=done, total=size)
        if time.monotonic() - began > _MOMENT:
            bar.start()

    try:
        yield show
    finally:
        bar.stop()


command.part("demo")(fleet_demo.command)
