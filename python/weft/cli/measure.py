"""What commands that measure share: the options of a measurement, and making it."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from weft.base.files import check
from weft.base.interrupts import Interrupted, heed, interruptible, raise_again
from weft.cli import by_stack, exports
from weft.cli.exports import Exports
from weft.cli.inputs import Seconds, completed
from weft.cli.output import (
    all_of,
    console,
    deliver,
    file_option,
    output_options,
    progress,
    say_lost,
)
from weft.cli.printing import echo
from weft.errors import (
    BadMetric,
    BadSnippet,
    IncompleteMetric,
    InvalidArgument,
    NoSuchProcess,
    TargetGone,
    WeftError,
)
from weft.export import stacks

if TYPE_CHECKING:
    from weft.mdl import ast
    from weft.metrics.metric import Metric
    from weft.model.measured import TargetFacts
    from weft.session import Session

FORMATS = ("text", "json", "csv", "parquet", *by_stack.FORMATS)
_FIRST = 0.1
"""When the first sample is made, in seconds, if the interval is longer."""
_ROUND = 0.2
"""How long to wait at most before signals are looked at, in seconds. One that another thread
of weft got, or that came just before, does not end the wait."""
_EARLY = 0.005
"""By how much a sample may come too early, in seconds, and the table still be drawn."""
_REST, _LONGEST = 0.02, 0.5
"""How long to rest between two looks at what the target has loaded, in seconds."""
_ROOM = 1 << 30
"""How much a program can do with beside what weft has mapped, in bytes."""
_SHARE = 100
"""How much longer to rest than a look takes."""
UNKNOWN_CODE = -1
"""Instead of the exit code of a process that somebody else has started."""


@dataclass(frozen=True)
class Wish:
    """What a user wants to be measured, and how it is to be shown."""

    exports: Exports
    metrics: tuple[str, ...]
    files: tuple[str, ...]
    one_liners: tuple[str, ...]
    interval: float
    seconds: float | None
    budget: float | None
    output: str | None
    output_format: str
    verbose: bool
    allow_incomplete: bool
    wait: bool
    by: str | None
    top: int
    lines: bool

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be measured."""
        return not (self.metrics or self.one_liners)


interval_option = click.option(
    "--interval",
    type=Seconds(min=0.01),
    default=1.0,
    show_default=True,
    metavar="TIME",
    help="How often to sample: 1, 500ms.",
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
        shell_complete=completed("metrics"),
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
    click.option(
        "--by",
        metavar="KEY",
        shell_complete=completed("keys"),
        help="Divide each value: by function, module, caller, stack, thread, lock, or an "
        "expression such as '$arg[0]'.",
    ),
    click.option(
        "--top",
        type=click.IntRange(min=1),
        default=20,
        show_default=True,
        metavar="N",
        help="How many keys the text shows, the largest first; JSON has all, CSV only their sum.",
    ),
    click.option("--lines", is_flag=True, help="Show the source line of addresses as well."),
    interval_option,
    click.option(
        "--for",
        "seconds",
        type=Seconds(min=0),
        metavar="TIME",
        help="How long to measure: 90, 1s, 10m, 1h30m; without it until Ctrl-C, or until the "
        "target ends.",
    ),
    budget_option,
    output_options(FORMATS),
    exports.options,
    click.option(
        "--allow-incomplete",
        is_flag=True,
        help="Measure times and constraints also in functions of which not all exits can be woven; "
        "they are marked as incomplete.",
    ),
    click.option(
        "--wait",
        is_flag=True,
        help="Measure also what is in libraries that are not loaded yet, as soon as they are.",
    ),
    click.option("-v", "--verbose", is_flag=True, help="Say what could not be woven, and why."),
)
"""Gives a command the options of a measurement; they reach it as keyword arguments."""


def wish(options: dict[str, Any], *, to_stderr: bool = False) -> Wish:
    """Make sense of the options; the result may go to standard error, if to no file."""
    useless: dict[str, object] = {
        "-f": options["files"],
        "-o": options["output"],
        "--prometheus": options["prometheus"],
        "--otlp": options["otlp"],
        "--for": options["seconds"],
        "--budget": options["budget"],
        f"--format {options['output_format']}": options["output_format"] in by_stack.FORMATS,
    }
    is_empty = not (options["metrics"] or options["one_liners"])
    if is_empty and (given := [name for name, value in useless.items() if value]):
        raise InvalidArgument(
            f"nothing is to be measured, so {given[0]} has nothing to do",
            advice="name a metric: -m calls; `weft metrics` lists those that come with weft",
        )
    budget = share(options.pop("budget"))
    # Whatever can be refused is refused now: one who has measured for hours wants a result.
    if options["output"] is not None:
        check(options["output"])
    format_ = options["output_format"]
    is_terminal = options["output"] is None and (sys.stderr if to_stderr else sys.stdout).isatty()
    if is_terminal and format_ in ("parquet", *stacks.BINARY):
        raise InvalidArgument(
            f"{format_} is not for terminals", advice=f"write it to a file: -o out.{format_}"
        )
    if format_ == "parquet":
        from weft.export.metrics import parquet

        parquet.check()
    prometheus, otlp = options.pop("prometheus"), options.pop("otlp")
    return Wish(Exports(prometheus, otlp, options["interval"]), budget=budget, **options)


def share(budget: str | None) -> float | None:
    """Return the budget as a share of 1, if there is one."""
    if budget is None or budget == "none":
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
    from weft.metrics.catalogue import metric_and_focus

    engine = session.metrics
    engine.load(*map(Path, wanted.files))
    found: list[tuple[ast.Metric, str]] = []
    for text in wanted.metrics:
        name, focus = metric_and_focus(text)
        found.append((engine.definition(name), focus))
    if not wanted.one_liners:
        return found
    from weft.mdl.diagnostics import has_errors
    from weft.mdl.loader import bad_metric
    from weft.mdl.one_liners import parse_one_liner

    for text in wanted.one_liners:
        metrics, lists, diagnostics = parse_one_liner(text)
        if has_errors(diagnostics):
            raise bad_metric([replace(one, file="-e") for one in diagnostics], {"-e": text})
        engine.define(lists)
        found += [(metric, "") for metric in metrics]
    return found


def begin(session: Session, wanted: Wish) -> list[Metric]:
    """Have everything woven that is wanted."""
    # A large program takes its time to be looked through.
    with interruptible():
        if wanted.budget is not None:
            session.metrics.keep_within(wanted.budget, counts_process=True)
        session.metrics.shows_lines = wanted.lines
        wishes = requests(session, wanted)
        if wanted.output_format in by_stack.FORMATS:
            by_stack.check(wishes, wanted.by, wanted.output_format)
        with progress("looking for what to measure, and weaving"):
            metrics = session.metrics.request_all(
                wishes,
                by=wanted.by,
                allow_incomplete=wanted.allow_incomplete,
                wait=wanted.wait,
            )
    say_foci((focus, metric.focus) for (_, focus), metric in zip(wishes, metrics, strict=True))
    for metric in metrics:
        if metric.is_waiting:
            echo(f"note: {metric.path} waits for what it is about to be loaded", err=True)
    return metrics


def say_foci(foci: Iterable[tuple[str, str]]) -> None:
    """Say what names of functions stand for, given each focus as it was typed and as it is."""
    names = {
        typed.partition(",/")[0]: path.partition(",/")[0]
        for typed, path in foci
        if typed and not typed.startswith("/")
    }
    for name, path in names.items():
        echo(f"note: {name} is {path}", err=True)


def begin_or_clone(session: Session, wanted: Wish, weaver: str) -> Sequence[Metric] | None:
    """Have everything woven that is wanted; nothing if a clone of the program is needed for it.

    ``weaver`` is ``patch``, which never needs one, or ``auto``.
    """
    if weaver == "patch":
        return begin(session, wanted)
    metrics = begin(session, replace(wanted, allow_incomplete=True))
    missing = sum(len(metric.refused) for metric in metrics)
    if not missing or any(metric.calls_program for metric in metrics):
        if not wanted.allow_incomplete:
            session.metrics.refuse_incomplete(metrics)
        return metrics
    points = "1 point does" if missing == 1 else f"{missing} points do"
    text = f"note: {points} not fit the patch weaver, so the program runs from a clone"
    echo(text, err=True)
    return None


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
    from weft.export.metrics.values import Subject
    from weft.ui.live import LiveTable

    screen = console(stderr=to_stderr)
    is_shown = wanted.output_format == "text" and wanted.output is None
    table = LiveTable(screen, facts, wanted.budget, wanted.top) if is_shown else None
    if wanted.verbose:
        _say_what_is_missing(metrics)
    _say_what_is_called(session)
    watch = _Watch(session, wait)
    began = due = time.monotonic()
    subject = Subject.of_process(facts)
    with contextlib.ExitStack() as stack:
        stack.enter_context(wanted.exports.of(lambda: [(subject, metrics)]))
        if table is not None:
            stack.callback(table.close)
        # Ctrl-C is how one says that it is enough, whatever is being done just then.
        with contextlib.suppress(Interrupted), interruptible():
            for elapsed in _ticks(began, wanted, watch.wait):
                if isinstance(elapsed, int):
                    code = None if elapsed == UNKNOWN_CODE else elapsed
                    facts = replace(facts, exit_code=code, has_ended=True)
                    break
                session.metrics.sample()
                if table is not None and time.monotonic() >= due:
                    table.update(metrics, elapsed, session.metrics.overhead)
                    due = time.monotonic() + session.metrics.pace(wanted.interval) - _EARLY
        # A program that has just ended may have been sampled for the last time.
        with contextlib.suppress(TargetGone):
            session.metrics.sample()
    session.metrics.close()
    seconds = max((metric.seconds for metric in metrics), default=time.monotonic() - began)
    if table is not None:
        table.finish(facts, metrics, seconds)
    else:
        _write(wanted, facts, metrics, seconds, to_stderr)
    # Standard error has the result, unless something else is said.
    may_say = is_shown or wanted.output is not None or not to_stderr
    if may_say and facts.exit_code == 128 + signal.SIGSYS and not session.metrics.in_clone:
        echo(
            f"note: a seccomp filter has ended {facts.name} for a system call; weft makes some in "
            "it to read memory, texts and CPU times\n  try: --weaver clone, which makes none",
            err=True,
        )
    if may_say and (limit := watch.new_limit()):
        taken = watch.mapped >> 20
        echo(
            f"note: {facts.name} has limited its address space to {limit >> 20} MiB, of which weft "
            f"takes {taken} MiB: it may have got less memory than without weft",
            err=True,
        )
        echo("  try: --weaver clone, which such a program leaves before", err=True)
    if watch.became and may_say:
        echo(f"note: {facts.name} has become {watch.became}, which is not measured", err=True)
        echo("  try: measure that one: name it instead, or attach to it", err=True)
    return facts


class _Watch:
    """Lets time pass, and sees when the target loads libraries, or becomes another program.

    The latter is what shell scripts do that find the right program first, and they do it early.
    """

    def __init__(self, session: Session, wait: Callable[[float], int | None]) -> None:
        self.became = ""
        self._session = session
        self._program = ""
        with contextlib.suppress(TargetGone):
            self._program = session.program()
        self.mapped = _mapped_by_weft(session)
        self._limit = _address_space(session)
        self._wait = wait
        self._rest = 0.005
        self._waiting = [metric for metric in session.metrics.wanted if metric.is_waiting]

    def wait(self, seconds: float) -> int | None:
        """Return the exit code when the target has ended meanwhile."""
        end = time.monotonic() + seconds
        while True:
            code = self._wait(max(0.0, min(end - time.monotonic(), self._rest)))
            if code is not None:
                return code
            if not self._session.is_current():
                with contextlib.suppress(TargetGone):
                    self._see_program()
            if time.monotonic() >= end:
                return None
            began = time.monotonic()
            self._session.metrics.look_again()
            for metric in [one for one in self._waiting if not one.is_waiting]:
                echo(f"note: {metric.path} is measured from now on", err=True)
                self._waiting.remove(metric)
            # Looking takes longer the more there is to look at, unless one is told when to.
            share = 0 if self._session.metrics.is_told else _SHARE
            longest = min(max(_REST, share * (time.monotonic() - began)), _LONGEST)
            self._rest = min(2 * self._rest, longest)

    def new_limit(self) -> int | None:
        """Return how much the target may map, if it has come to less, and weft's part matters."""
        # One that has left its clone for it has a report that says so.
        if self._session.left_clones:
            return None
        limit = _address_space(self._session)
        if self.became or limit is None or (self._limit is not None and limit >= self._limit):
            return None
        return limit if limit < self.mapped + _ROOM else None

    def _see_program(self) -> None:
        now = self._session.program()
        # One that has left its clone is what it was; a report says what has happened.
        if not self._session.left_clones or now != self._program:
            self.became = now


def _address_space(session: Session) -> int | None:
    """How much the target may map, in bytes; nothing if that has no limit, or is not known."""
    with contextlib.suppress(OSError):
        for line in session.proc_file("limits").splitlines():
            if line.startswith("Max address space"):
                soft = line.split()[3]
                return int(soft) if soft.isdigit() else None
    return None


def _mapped_by_weft(session: Session) -> int:
    """How much weft has mapped in the target, in bytes."""
    total = 0
    with contextlib.suppress(OSError):
        for line in session.proc_file("maps").splitlines():
            if "/memfd:weft-" in line:
                start, end = line.split()[0].split("-")
                total += int(end, 16) - int(start, 16)
    return total


def _ticks(
    began: float, wanted: Wish, wait: Callable[[float], int | None]
) -> Iterator[float | int]:
    """The time that has passed, at each interval; the exit code when the target has ended."""
    from weft.metrics.pace import Pace

    end = None if wanted.seconds is None else began + wanted.seconds
    pace = Pace(wanted.interval, began)
    # The first values come at once: one wants to see that it works.
    due = began + _FIRST if wanted.interval > _FIRST else pace.next()
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
        due = pace.next()


def _say_what_is_missing(metrics: Sequence[Metric]) -> None:
    for metric in metrics:
        for name in metric.missing:
            echo(f"{metric.name}: the program has no {name}", err=True)
        for refusal in metric.refused:
            echo(f"{metric.name}: {refusal}", err=True)


def _say_what_is_called(session: Session) -> None:
    """Name the code that stands for indirect functions which were asked for by their names."""
    for path, names in session.metrics.implementations().items():
        several = "" if len(names) == 1 else "one of "
        echo(f"note: {path} is {several}{', '.join(names)}", err=True)


def _write(
    wanted: Wish, facts: TargetFacts, metrics: Sequence[Metric], seconds: float, to_stderr: bool
) -> None:
    if wanted.output_format in by_stack.FORMATS:
        notes: list[str] = []
        deliver(
            lambda file: notes.extend(by_stack.write(file, facts, metrics, wanted.output_format)),
            wanted.output,
            to_stderr=to_stderr,
        )
        # They are in the result as well, so that they need not be where the result is.
        if wanted.output is not None or not to_stderr:
            say_lost(notes, wanted.output, wanted.output_format)
        return
    format_ = importlib.import_module(f"weft.export.metrics.{wanted.output_format}")

    def write(file: BinaryIO) -> None:
        # Only what a person reads is cut short.
        rest = [wanted.top] if wanted.output_format == "text" else []
        format_.write(file, facts, metrics, seconds, *rest)

    deliver(write, wanted.output, to_stderr=to_stderr)


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
    from weft.model.measured import TargetFacts

    facts = TargetFacts(session.pid, session.program(), program)
    try:
        session, metrics = start()
        facts = measure(session, metrics, wanted, facts, wait, to_stderr=True)
    except (InvalidArgument, BadMetric, BadSnippet, IncompleteMetric):
        # It stands before its first instruction: what was asked for wrongly is not done at all.
        os.kill(session.pid, signal.SIGKILL)
        wait(None)
        raise
    except (WeftError, OSError):
        # The program must not suffer from what was asked of weft.
        wait(None)
        raise
    code = wait(None) if facts.exit_code is None else facts.exit_code
    return code or 0


def say_until(pid: int, seconds: float | None) -> None:
    """Say that a process is recorded from now on, and until when."""
    how_long = "until Ctrl-C" if seconds is None else f"for {seconds:g} s"
    echo(f"recording process {pid} {how_long}", err=True)


@contextlib.contextmanager
def waiting_for(pid: int) -> Iterator[Callable[[float | None], int | None]]:
    """Give a function that lets time pass, and tells when a process has ended.

    The exit code of a process that is not weft's own child cannot be known.
    """
    from weft import _native

    try:
        descriptor = _native.pidfd_open(pid)
    except ProcessLookupError:
        if Path(f"/proc/{pid}").exists():
            _native.threads(pid)  # says why it cannot be reached
        raise NoSuchProcess(
            f"there is no process {pid}", "it has ended", "list the processes: weft ps"
        ) from None
    # A shell without job control has its children ignore it; here it ends the measurement.
    heed(signal.SIGINT)

    def wait(seconds: float | None) -> int | None:
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            raise_again()
            left = max(0.0, deadline - time.monotonic())
            if select.select([descriptor], [], [], min(left, _ROUND))[0]:
                return UNKNOWN_CODE
            if left <= _ROUND:
                return None

    try:
        yield wait
    finally:
        os.close(descriptor)
