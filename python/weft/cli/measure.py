"""What commands that measure share: the options of a measurement, and making it."""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from weft.cli.output import all_of, console, file_option, format_option_of
from weft.errors import BadMetric, BadSnippet, InvalidArgument, TargetGone, WeftError

if TYPE_CHECKING:
    from weft.mdl import ast
    from weft.metrics.metric import Metric
    from weft.metrics.model import TargetFacts
    from weft.session import Session

FORMATS = ("text", "json", "csv", "parquet")
UNKNOWN_CODE = -1
"""Instead of the exit code of a process that somebody else has started."""


@dataclass(frozen=True)
class Wish:
    """What a user wants to be measured, and how it is to be shown."""

    metrics: tuple[str, ...]
    files: tuple[str, ...]
    one_liners: tuple[str, ...]
    interval: float
    seconds: float | None
    budget: float | None
    output: str | None
    output_format: str
    prometheus: str | None
    otlp: str | None
    verbose: bool

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be measured."""
        return not (self.metrics or self.one_liners)


interval_option = click.option(
    "--interval",
    type=click.FloatRange(min=0.01),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to sample.",
)

budget_option = click.option(
    "--budget",
    metavar="PERCENT",
    help="How much of its time the target may lose at most: 2%. Without it there is no limit.",
)

options = all_of(
    click.option(
        "-m",
        "--metric",
        "metrics",
        multiple=True,
        metavar="METRIC[@FOCUS]",
        help="Measure a metric, of the program or a part of it. `weft metrics` lists them.",
    ),
    click.option(
        "-e",
        "one_liners",
        multiple=True,
        metavar="PROBE",
        help="Measure by a one-liner: 'entry malloc { bytes += $arg[0] }'.",
    ),
    file_option("Take metrics from a file, too."),
    interval_option,
    click.option(
        "--for",
        "seconds",
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="How long to measure; without it until Ctrl-C, or until the target ends.",
    ),
    budget_option,
    click.option("-o", "--output", metavar="FILE", help="Write the result to a file."),
    format_option_of(FORMATS),
    click.option(
        "--prometheus",
        metavar="[HOST]:PORT",
        help="Serve the metrics for Prometheus meanwhile; on the loopback address by default.",
    ),
    click.option("--otlp", metavar="URL", help="Push the metrics by OTLP over HTTP meanwhile."),
    click.option("-v", "--verbose", is_flag=True, help="Say what could not be woven, and why."),
)
"""Gives a command the options of a measurement; they reach it as keyword arguments."""


def wish(options: dict[str, Any]) -> Wish:
    """Make sense of the options."""
    budget = options.pop("budget")
    wanted = Wish(budget=share(budget), **options)
    useless: dict[str, object] = {
        "-f": wanted.files,
        "-o": wanted.output,
        "--prometheus": wanted.prometheus,
        "--otlp": wanted.otlp,
        "--for": wanted.seconds,
        "--budget": wanted.budget,
    }
    if wanted.is_empty and (given := [name for name, value in useless.items() if value]):
        raise InvalidArgument(
            f"nothing is to be measured, so {given[0]} has nothing to do",
            advice="name a metric: -m calls; `weft metrics` lists those that come with weft",
        )
    if wanted.output is not None:
        try_to_write(wanted.output)
    return wanted


def try_to_write(path: str) -> None:
    """Find out now whether there can be a result: one who has measured for hours wants it."""
    try:
        with Path(path).open("ab"):
            pass
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written", error.strerror or "") from None


def share(budget: str | None) -> float | None:
    """Return the budget as a share of 1, if there is one."""
    if budget is None:
        return None
    try:
        found = float(budget.removesuffix("%")) / 100
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:
        raise InvalidArgument(f"{budget!r} is no budget", advice="give a percentage: --budget 2%")
    return found


def requests(session: Session, wanted: Wish) -> list[tuple[ast.Metric, str]]:
    """Return the definitions that are asked for, each with its focus."""
    from weft.mdl.diagnostics import has_errors
    from weft.mdl.loader import bad_metric
    from weft.mdl.one_liners import parse_one_liner

    engine = session.metrics
    engine.load(*map(Path, wanted.files))
    found: list[tuple[ast.Metric, str]] = []
    for text in wanted.metrics:
        name, _, focus = text.partition("@")
        found.append((engine.definition(name), focus))
    for text in wanted.one_liners:
        metrics, lists, diagnostics = parse_one_liner(text)
        if has_errors(diagnostics):
            raise bad_metric([replace(one, file="-e") for one in diagnostics], {"-e": text})
        engine.define(lists)
        found += [(metric, "") for metric in metrics]
    return found


def begin(session: Session, wanted: Wish) -> list[Metric]:
    """Have everything woven that is wanted."""
    if wanted.budget is not None:
        session.metrics.keep_within(wanted.budget)
    return session.metrics.request_all(requests(session, wanted))


def measure(
    session: Session,
    metrics: Sequence[Metric],
    wanted: Wish,
    facts: TargetFacts,
    wait: Callable[[float], int | None],
    *,
    to_stderr: bool = False,
) -> TargetFacts:
    """Measure until it is enough, and write the result.

    ``wait`` lets time pass, and returns the exit code when the target has ended meanwhile, or -1 if
    that cannot be known. The program that ``weft run`` starts has standard output for itself.
    """
    from weft.ui.live import LiveTable

    screen = console(stderr=to_stderr)
    is_shown = wanted.output_format == "text" and wanted.output is None
    table = LiveTable(screen, facts, wanted.budget) if is_shown else None
    if wanted.verbose:
        _say_what_is_missing(metrics)
    else:
        _say_what_sees_nothing(metrics)
    watch = _Watch(session, wait)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        _export(stack, wanted, lambda: (facts, metrics))
        if table is not None:
            stack.callback(table.close)
        # Ctrl-C is how one says that it is enough, whatever is being done just then.
        with contextlib.suppress(KeyboardInterrupt):
            for elapsed in _ticks(began, wanted, watch.wait):
                if isinstance(elapsed, int):
                    code = None if elapsed == UNKNOWN_CODE else elapsed
                    facts = replace(facts, exit_code=code, has_ended=True)
                    break
                session.metrics.sample()
                if table is not None:
                    table.update(metrics, elapsed, session.metrics.overhead)
        session.metrics.sample()
    seconds = time.monotonic() - began
    session.metrics.close()
    if table is not None:
        table.finish(facts, metrics, seconds)
    else:
        _write(wanted, facts, metrics, seconds, to_stderr)
    # Standard error has the result, unless something else is said.
    if watch.became and (is_shown or wanted.output is not None or not to_stderr):
        click.echo(f"note: {facts.name} has become {watch.became}, which is not measured", err=True)
        click.echo("  try: measure that one: name it instead, or attach to it", err=True)
    return facts


class _Watch:
    """Lets time pass, and sees when the target becomes another program by ``execve``.

    That is what shell scripts do that find the right program first, and they do it early.
    """

    def __init__(self, session: Session, wait: Callable[[float], int | None]) -> None:
        self.became = ""
        self._session = session
        self._program = session.program()
        self._wait = wait
        self._rest = 0.005

    def wait(self, seconds: float) -> int | None:
        """Return the exit code when the target has ended meanwhile."""
        end = time.monotonic() + seconds
        while True:
            code = self._wait(max(0.0, min(end - time.monotonic(), self._rest)))
            if code is not None:
                return code
            with contextlib.suppress(TargetGone):
                program = self._session.program()
                if program != self._program:
                    self.became = program
            if time.monotonic() >= end:
                return None
            self._rest = min(2 * self._rest, 0.5)


def _ticks(
    began: float, wanted: Wish, wait: Callable[[float], int | None]
) -> Iterator[float | int]:
    """The time that has passed, at each interval; the exit code when the target has ended."""
    end = None if wanted.seconds is None else began + wanted.seconds
    # The first values come at once: one wants to see that it works.
    due = began + min(wanted.interval, 0.1)
    while True:
        until = due if end is None else min(due, end)
        code = wait(max(0.0, until - time.monotonic()))
        if code is not None:
            yield code
            return
        now = time.monotonic()
        if end is not None and now >= end:
            return
        yield now - began
        due = max(due + wanted.interval, now) if due > began + 0.1 else began + wanted.interval


def _say_what_is_missing(metrics: Sequence[Metric]) -> None:
    for metric in metrics:
        for name in metric.missing:
            click.echo(f"{metric.name}: the program has no {name}", err=True)
        for refusal in metric.refused:
            click.echo(f"{metric.name}: {refusal}", err=True)


def _say_what_sees_nothing(metrics: Sequence[Metric]) -> None:
    """Warn of metrics that stay 0 because none of their points could be woven."""
    for metric in metrics:
        if metric.sees_nothing:
            at = f"@{metric.focus}" if metric.focus else ""
            click.echo(f"note: {metric.name}{at} sees nothing: {metric.refused[0]}", err=True)


def _export(stack: contextlib.ExitStack, wanted: Wish, source: Any) -> None:
    if wanted.prometheus is not None:
        from weft.export import prometheus

        server = stack.enter_context(prometheus.serve(wanted.prometheus, source))
        click.echo(f"metrics for Prometheus: {server.url}", err=True)
    if wanted.otlp is not None:
        from weft.export import otlp

        stack.enter_context(otlp.push(wanted.otlp, source, wanted.interval))


def _write(
    wanted: Wish, facts: TargetFacts, metrics: Sequence[Metric], seconds: float, to_stderr: bool
) -> None:
    format_ = importlib.import_module(f"weft.export.{wanted.output_format}")
    file: BinaryIO
    if wanted.output is not None:
        with Path(wanted.output).open("wb") as file:
            format_.write(file, facts, metrics, seconds)
        return
    file = sys.stderr.buffer if to_stderr else sys.stdout.buffer
    format_.write(file, facts, metrics, seconds)
    file.flush()


def measure_to_end(
    program: tuple[str, ...],
    wanted: Wish,
    session: Session,
    wait: Callable[[float | None], int | None],
    start: Callable[[], tuple[Session, Sequence[Metric]]],
) -> int:
    """Measure a program that does not run yet to its end, and return its exit code.

    ``start`` brings it to its entry, where its libraries are loaded, and has everything woven there
    that is wanted; ``wait`` lets it run, and returns its exit code when it has ended.
    """
    from weft.metrics.model import TargetFacts

    facts = TargetFacts(session.pid, session.program(), program)
    try:
        session, metrics = start()
        facts = measure(session, metrics, wanted, facts, wait, to_stderr=True)
    except (InvalidArgument, BadMetric, BadSnippet):
        # It stands before its first instruction: what was asked for wrongly is not done at all.
        os.kill(session.pid, signal.SIGKILL)
        wait(None)
        raise
    except WeftError:
        # The program must not suffer from what was asked of weft.
        wait(None)
        raise
    code = wait(None) if facts.exit_code is None else facts.exit_code
    return code or 0


@contextlib.contextmanager
def waiting_for(pid: int) -> Iterator[Callable[[float | None], int | None]]:
    """Give a function that lets time pass, and tells when a process has ended.

    The exit code of a process that is not weft's own child cannot be known.
    """
    descriptor = os.pidfd_open(pid)
    # A shell without job control has its children ignore it; here it ends the measurement.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def wait(seconds: float | None) -> int | None:
        ended, _, _ = select.select([descriptor], [], [], seconds)
        return UNKNOWN_CODE if ended else None

    try:
        yield wait
    finally:
        os.close(descriptor)
