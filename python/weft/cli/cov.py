"""Say what of a program is executed, and what is not."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

import weft
from weft import _native, clone
from weft.base.files import check
from weft.base.interrupts import Interrupted, interruptible
from weft.cli import measure
from weft.cli.clone import Reports
from weft.cli.inputs import Seconds, process_id
from weft.cli.output import (
    WithParts,
    all_of,
    console,
    deliver,
    format_option_of,
    forward_signals,
    print_json,
    progress,
    say_lost,
)
from weft.cli.printing import echo
from weft.errors import InvalidArgument, TargetGone, WeftError
from weft.program.live_modules import LastingModules

if TYPE_CHECKING:
    from weft.model.flow import Flow
    from weft.model.program import Module
    from weft.tools.coverage import Coverage

FORMATS = ("text", "json", "html", "lcov", "cobertura", "sarif", "drcov")
"""The formats: modules of :mod:`weft.export.coverage`."""
_WITHOUT_CONTEXTS = ("lcov", "cobertura", "sarif", "drcov")
"""Those that cannot say in which context something was executed."""

_ADDING_UP = "adding up what was executed"
_READING = "reading what was recorded"
_WEAVING = "looking for functions, and weaving"

_ROUND = 0.2
"""How often to look whether something was asked for, in seconds."""
_LATER = 1.0
"""How often to look for reports of the engine when nothing is recorded any more, in seconds."""
_SWEEP = 1.0
"""How often the probes of the patch weaver are taken out that were hit, in seconds."""


@dataclass(frozen=True)
class Wish:
    """What a user wants to know, and how it is to be written."""

    counts: bool
    modules: tuple[str, ...]
    weaver: str
    context: str | None
    seconds: float | None
    dump_every: float | None
    fail_under: float | None
    output: str | None
    output_format: str


_limit_option = click.option(
    "--fail-under",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="End with exit code 6 if less of the lines was executed, or of the functions if no lines "
    "are known.",
)
_output_options = all_of(
    _limit_option,
    click.option("-o", "--output", metavar="FILE", help="Write the result to a file."),
    format_option_of(list(FORMATS)),
)


@click.command(cls=WithParts, context_settings={"ignore_unknown_options": True})
@click.argument(
    "target", nargs=-1, required=True, type=click.UNPROCESSED, metavar="PID|NAME|-- CMD..."
)
@click.option("--counts", is_flag=True, help="Say how often, not only whether; costs more.")
@click.option(
    "--module",
    "modules",
    multiple=True,
    metavar="GLOB",
    help="Look at the lines of these modules, by name or path; without it at those of all below "
    "the working directory, or else of the program.",
)
@click.option(
    "--weaver",
    type=click.Choice(["clone", "patch"]),
    default="clone",
    show_default=True,
    help="Record everything in a clone of the code, or only functions, by probes in the process' "
    "own code that go once they were hit.",
)
@click.option(
    "--context",
    metavar="NAME",
    help="Put a name on what is executed, such as that of the test; json keeps it, and `weft cov "
    "merge` keeps names apart.",
)
@click.option(
    "--for",
    "seconds",
    type=Seconds(min=0),
    metavar="TIME",
    help="How long to record; without it until Ctrl-C, or until the target ends.",
)
@click.option(
    "--dump-every",
    type=Seconds(min=0.1),
    metavar="TIME",
    help="Write what there is so far, again and again; so does SIGUSR1 to weft, once.",
)
@_output_options
@click.pass_context
def command(ctx: click.Context, /, target: tuple[str, ...], **options: Any) -> None:
    """Say what of a program is executed, and what is not.

    Of a program CMD that is started, or of a process PID: its functions, lines and branches, from
    the machine code and its debug information; it need not be built for that. The exit code is
    that of CMD, or 6 if CMD succeeds and less is executed than --fail-under asks for. A process
    PID goes on as before when the recording ends.

    `weft cov report`, `merge`, `diff` and `contexts` read what was written with --format json.

    \b
    Examples:
      weft cov -- ./tests
      weft cov --counts -o cov.info --format lcov -- ./tests --all
      weft cov -o cov.html --format html --module 'libz*' -- ./tests
      weft cov 4711 --for 60 -o cov.json --format json
      weft cov "$(pidof redis-server)" --weaver patch --for 600
      weft cov report cov.json --format html -o cov.html
      weft cov merge first.json second.json -o both.json
      weft cov diff old.json new.json
      weft cov --context unit -o unit.json --format json -- ./tests
      weft cov contexts parse.c:42 all.json
    """
    wanted = Wish(**options)
    if wanted.fail_under is not None and wanted.output_format == "drcov":
        raise InvalidArgument(
            "drcov has blocks only, and --fail-under is about lines",
            advice="write json, and both from that with `weft cov report`",
        )
    if wanted.context == "":
        raise InvalidArgument("a context needs a name", advice="for example --context unit")
    _check_output(wanted.output, wanted.output_format)
    # From here on a signal asks for what there is so far, also before there is something.
    with _asked_by_signal() as was_asked:
        result = _Result(wanted, was_asked)
        pid = process_id(target)
        if pid is not None:
            _attach(pid, wanted, result)
            result.hold()
            return
        code = _run(target, wanted, result)
    result.hold(code)
    ctx.exit(code)


@command.part("report")
@click.command()
@click.argument("file", type=click.Path())
@_output_options
def report(file: str, fail_under: float | None, output: str | None, output_format: str) -> None:
    """Write a recorded coverage in another format.

    \b
    Examples:
      weft cov report cov.json
      weft cov report cov.json --format html -o cov.html
      weft cov report cov.json --fail-under 80
    """
    from weft.export.coverage.json import read

    _check_output(output, output_format)
    with progress(_READING):
        covered = read(file)
    _write(covered, output, output_format, to_stderr=False)
    _hold(covered, fail_under)


@command.part("merge")
@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path())
@_limit_option
@click.option("-o", "--output", metavar="FILE", help="Write the result to a file.")
@format_option_of(["json", *(name for name in FORMATS if name != "json")])
def merge(
    files: tuple[str, ...], fail_under: float | None, output: str | None, output_format: str
) -> None:
    """Add up what several runs have executed.

    What they have executed in a context of the same name is one context in the result.

    \b
    Examples:
      weft cov merge unit.json system.json -o all.json
      weft cov merge run-*.json --format lcov -o cov.info
      weft cov merge run-*.json -o all.json --fail-under 80
    """
    from weft.export.coverage.json import read
    from weft.tools import coverage

    _check_output(output, output_format)
    with progress(_READING):
        merged = coverage.merge([read(file) for file in files])
    _write(merged, output, output_format, to_stderr=False)
    _hold(merged, fail_under)


@command.part("diff")
@click.command()
@click.argument("old", type=click.Path())
@click.argument("new", type=click.Path())
@format_option_of(["text", "json"])
def diff(old: str, new: str, output_format: str) -> None:
    """Say what only one of two runs has executed.

    \b
    Examples:
      weft cov diff before.json after.json
      weft cov diff before.json after.json --format json
    """
    from weft.export.coverage.json import read
    from weft.export.coverage.text import show_changes
    from weft.tools import coverage

    with progress(_READING):
        changes = coverage.diff(read(old), read(new))
    if output_format == "text":
        show_changes(console(), changes)
        return
    found = [
        {
            "gained": change.is_gained,
            "file": change.file,
            "line": change.line,
            "function": change.function,
        }
        for change in changes
    ]
    print_json({"schema": 1, "changes": found})


@command.part("contexts")
@click.command()
@click.argument("where", metavar="FILE:LINE|FUNCTION")
@click.argument("file", type=click.Path())
@format_option_of(["text", "json"])
def contexts(where: str, file: str, output_format: str) -> None:
    """Say in which contexts, such as tests, a line or a function was executed.

    FILE may be the end of a path, and FUNCTION a pattern; if there are several, all are listed.

    \b
    Examples:
      weft cov contexts parse.c:42 all.json
      weft cov contexts 'parse_*' all.json --format json
    """
    from weft.export.coverage.json import read
    from weft.export.coverage.text import show_places
    from weft.tools import coverage

    with progress(_READING):
        covered = read(file)
        places = coverage.contexts_at(covered, where)
    # One that is incomplete may have been here, and nobody has seen it.
    lost = {context.shown_name: list(context.lost) for context in covered.contexts if context.lost}
    if output_format == "text":
        show_places(console(), places, len(covered.contexts))
        for name, texts in lost.items():
            echo(f"note: {name} is incomplete: {'; '.join(texts)}", err=True)
        return
    found = [
        {
            "file": place.file,
            "line": place.line,
            "function": place.function,
            "count": place.count,
            "contexts": [context.name for context in place.contexts],
        }
        for place in places
    ]
    print_json({"schema": 1, "counted": covered.is_counted, "places": found, "incomplete": lost})


def _check_output(output: str | None, output_format: str) -> None:
    """Find out now whether there can be a result: one who has recorded for hours wants it."""
    if output is None:
        if output_format == "drcov":
            raise InvalidArgument("drcov is not for reading", advice="name a file: -o cov.drcov")
        return
    check(output)


def _write(
    coverage: Coverage,
    output: str | None,
    output_format: str,
    *,
    to_stderr: bool,
    is_last: bool = True,
) -> None:
    format_ = importlib.import_module(f"weft.export.coverage.{output_format}")
    if output is None and output_format == "text":
        format_.show(console(stderr=to_stderr), coverage)
    else:
        with _shown(f"writing {output}", is_last and output is not None):
            deliver(lambda file: format_.write(file, coverage), output, to_stderr=to_stderr)
    say_lost((*coverage.flow.lost, *coverage.remarks()), output, output_format)
    if coverage.contexts and output_format in _WITHOUT_CONTEXTS:
        text = f"note: {output_format} has no place for contexts: --format json keeps them"
        echo(text, err=True)


def _shown(what: str, is_free: bool) -> contextlib.AbstractContextManager[None]:
    """Show progress if the terminal is free: that of a program which goes on is the program's."""
    return progress(what) if is_free else contextlib.nullcontext()


def _hold(coverage: Coverage, limit: float | None, code: int = 0) -> None:
    """Fail if less was executed than asked for; a program that has failed keeps its exit code."""
    from weft.errors import CoverageTooLow
    from weft.tools.coverage import check_limit

    if limit is None:
        return
    try:
        echo(check_limit(coverage, limit), err=True)
    except CoverageTooLow as error:
        if not code:
            raise
        echo(f"error: {error}", err=True)


def _run(words: tuple[str, ...], wanted: Wish, result: _Result) -> int:
    """Record a program from its first instruction to its end, and return its exit code."""
    if wanted.weaver == "patch":
        return _run_patched(words, wanted, result)
    with clone.launch(words, records="counts" if wanted.counts else "hits") as cloned:
        forward_signals(cloned.pid)
        reports = Reports(cloned)

        def coverage() -> Coverage:
            return _cover(cloned.flow(), wanted)

        def wait(seconds: float | None) -> int | None:
            code = cloned.wait(seconds)
            reports.tell()
            return code

        code = result.record(coverage, wait, to_stderr=True)
        while code is None:
            # Enough was recorded, and the program goes on.
            code = wait(_LATER)
    return code


def _run_patched(words: tuple[str, ...], wanted: Wish, result: _Result) -> int:
    from weft.tools.function_coverage import FunctionRecorder

    with weft.run(words) as session:
        forward_signals(session.pid)
        session.run_to_entry()
        recorder = _or_killed(
            session.pid,
            session.wait,
            lambda: FunctionRecorder(session, wanted.modules, counts=wanted.counts),
        )
        _say_refused(recorder.refused)
        session.resume()
        sweeping = _Sweeping(recorder.sweep, session.wait)
        code = result.record(recorder.coverage, sweeping.wait, to_stderr=True)
        if code is None:
            session.detach()
            code = session.wait()
    return code or 0


def _or_killed(pid: int, wait: Callable[[], int | None], start: Callable[[], Any]) -> Any:
    """Start to record; a program that stands at its entry is not to go on if that is refused."""
    try:
        with progress(_WEAVING):
            return start()
    except WeftError:
        os.kill(pid, signal.SIGKILL)
        wait()
        raise


def _attach(pid: int, wanted: Wish, result: _Result) -> None:
    """Record a process for a while."""
    if wanted.weaver == "patch":
        _attach_patched(pid, wanted, result)
        return
    with (
        clone.attach(pid, records="counts" if wanted.counts else "hits") as cloned,
        measure.waiting_for(pid) as wait,
    ):
        program, command, root = _facts(pid)
        modules = LastingModules(pid)
        measure.say_until(pid, wanted.seconds)

        def coverage() -> Coverage:
            flow = replace(cloned.flow(), command=command)
            return _cover(flow, wanted, program, root, modules.now())

        result.record(coverage, wait, to_stderr=False)
        Reports(cloned).tell()


def _facts(pid: int) -> tuple[str, tuple[str, ...], str | None]:
    """The program of a process, its words, and the way to its files if that is not the usual."""
    process = Path(f"/proc/{pid}")
    try:
        program = _native.program(pid)
        if program is None:
            raise TargetGone(f"process {pid} has ended")
        words = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        # The files of a process in a container are reached through it, as long as it is there.
        is_here = (process / "ns/mnt").samefile("/proc/self/ns/mnt")
    except (FileNotFoundError, ProcessLookupError):
        raise TargetGone(f"process {pid} has ended") from None
    command = tuple(os.fsdecode(word) for word in words if word)
    return program, command, None if is_here else str(process / "root")


def _attach_patched(pid: int, wanted: Wish, result: _Result) -> None:
    from weft.tools.function_coverage import FunctionRecorder

    with weft.attach(pid) as session, measure.waiting_for(pid) as wait:
        with progress(_WEAVING):
            recorder = FunctionRecorder(session, wanted.modules, counts=wanted.counts)
        _say_refused(recorder.refused)
        measure.say_until(pid, wanted.seconds)
        sweeping = _Sweeping(recorder.sweep, wait)
        result.record(recorder.coverage, sweeping.wait, to_stderr=False)


def _say_refused(number: int) -> None:
    if number:
        functions = "1 function is" if number == 1 else f"{number} functions are"
        echo(f"note: {functions} too tight for a probe, and left out", err=True)


def _cover(
    flow: Flow,
    wanted: Wish,
    program: str | None = None,
    root: str | None = None,
    modules: Sequence[Module] = (),
) -> Coverage:
    from weft.tools import coverage

    if wanted.output_format == "drcov":
        # It has blocks only: nothing else need be looked for.
        return coverage.Coverage(flow, ())
    open_paths = {module.path: module.open_path for module in modules if module.open_path}
    covered = coverage.cover(
        flow, patterns=wanted.modules, program=program, root=root, open_paths=open_paths
    )
    for module, executed in zip(covered.modules, flow.modules, strict=True):
        if executed.blocks and not module.function_total and module.path.startswith("/"):
            echo(f"note: {module.path} is missing: its file is gone or another now", err=True)
    if wanted.modules and not any(module.is_detailed for module in covered.modules):
        names = ", ".join(module.name for module in covered.shown_modules())
        wish = " or ".join(wanted.modules)
        echo(f"note: no module matches {wish}; executed were {names}", err=True)
    return covered


class _Sweeping:
    """Lets time pass, and takes probes out meanwhile that were hit."""

    def __init__(
        self, sweep: Callable[[], int], wait: Callable[[float | None], int | None]
    ) -> None:
        self._sweep = sweep
        self._wait = wait
        self._due = time.monotonic() + _SWEEP

    def wait(self, seconds: float | None) -> int | None:
        code = self._wait(seconds)
        if code is None and time.monotonic() >= self._due:
            self._sweep()
            self._due = time.monotonic() + _SWEEP
        return code


class _Result:
    """What comes of a recording, written when it is asked for and at the end."""

    def __init__(self, wanted: Wish, was_asked: Callable[[], bool]) -> None:
        self._wanted = wanted
        self._was_asked = was_asked
        self._last: Coverage | None = None

    def record(
        self,
        coverage: Callable[[], Coverage],
        wait: Callable[[float | None], int | None],
        *,
        to_stderr: bool,
    ) -> int | None:
        """Let the target run, and write what it has executed.

        ``wait`` lets time pass, and returns the exit code when the target has ended; so does this.
        """
        wanted = self._wanted

        def write(is_last: bool = False) -> Coverage:
            with _shown(_ADDING_UP, is_last):
                covered = coverage()
            if wanted.context is not None:
                from weft.tools.coverage import in_context

                covered = in_context(covered, wanted.context)
            _write(
                covered,
                wanted.output,
                wanted.output_format,
                to_stderr=to_stderr,
                is_last=is_last,
            )
            return covered

        code = None
        # Ctrl-C is how one says that it is enough.
        with contextlib.suppress(Interrupted), interruptible():
            began = time.monotonic()
            end = None if wanted.seconds is None else began + wanted.seconds
            due = None if wanted.dump_every is None else began + wanted.dump_every
            while code is None and (end is None or time.monotonic() < end):
                now = time.monotonic()
                until = min(moment for moment in (now + _ROUND, end, due) if moment is not None)
                code = wait(max(0.0, until - now))
                is_due = due is not None and time.monotonic() >= due
                if code is None and (self._was_asked() or is_due):
                    write()
                    if is_due and wanted.dump_every is not None:
                        due = time.monotonic() + wanted.dump_every
        self._last = write(is_last=True)
        return code

    def hold(self, code: int = 0) -> None:
        """Fail if less was executed than asked for."""
        if self._last is not None:
            _hold(self._last, self._wanted.fail_under, code)


@contextlib.contextmanager
def _asked_by_signal() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether SIGUSR1 has come since the last time."""
    asked = False

    def ask(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    def was_asked() -> bool:
        nonlocal asked
        answer, asked = asked, False
        return answer

    if signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN:
        # So it is for the program that is started, which would not inherit it from a handler.
        yield was_asked
        return
    before = signal.signal(signal.SIGUSR1, ask)
    try:
        yield was_asked
    finally:
        signal.signal(signal.SIGUSR1, before)
