"""Programs that run from a clone of their code: what ``--weaver clone`` does."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

import click

from weft.base.files import Draft, check
from weft.base.interrupts import Interrupted, interruptible
from weft.cli import measure
from weft.cli.output import all_of, console, forward_signals, left_in, print_json
from weft.cli.printing import echo
from weft.errors import InvalidArgument

if TYPE_CHECKING:
    from weft.clone import Cloned, CloneStats
    from weft.metrics.metric import Metric
    from weft.session import Session

__all__ = ["Reports", "attach", "options", "refuse", "run", "wish"]

_OWN = {
    "cache_size": "--cache-size",
    "no_kept": "--no-kept",
    "stats": "--stats",
    "stats_file": "--stats-file",
}
_SMALLEST = 256 << 10
_LARGEST = 64 << 30
_ROUND = 0.5
"""How often to look for reports, in seconds."""
_LONGEST = 1000
"""How much of a report is shown, in characters."""
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


options = all_of(
    click.option(
        "--weaver",
        type=click.Choice(["patch", "clone", "auto"]),
        default="patch",
        show_default=True,
        help="How weft works: by changing chosen places, by running a clone of all code, or by a "
        "clone only if some of what is to be measured does not fit otherwise.",
    ),
    click.option(
        "--cache-size",
        metavar="BYTES",
        help="How much clone a process may have: 64M; without it 256M. Only with --weaver clone.",
    ),
    click.option(
        "--no-kept",
        is_flag=True,
        help="Use nothing of what earlier runs have translated, and keep nothing. Only with "
        "--weaver clone.",
    ),
    click.option(
        "--stats",
        is_flag=True,
        help="Say at the end what the clone engine did. Only with --weaver clone.",
    ),
    click.option(
        "--stats-file",
        metavar="FILE",
        help="Write that to a file, as JSON.",
    ),
)
"""Gives a command the options of the clone weaver; they reach it as keyword arguments."""


def refuse(options: dict[str, Any]) -> None:
    """Take out the options of the clone weaver, and fail if one was given without it."""
    for name, shown in _OWN.items():
        if options.pop(name):
            raise InvalidArgument(
                f"{shown} is for programs that run from a clone", advice="add --weaver clone"
            )


def run(program: tuple[str, ...], options: Mapping[str, Any]) -> int:
    """Run the program to its end, and return its exit code."""
    from weft import clone

    wanted = wish(options, to_stderr=True)
    is_held = not wanted.is_empty
    size, keeps = _cache_size(options), not options["no_kept"]
    with clone.launch(program, cache_size=size, is_held=is_held, keeps=keeps) as cloned:
        forward_signals(cloned.pid)
        reports = Reports(cloned)
        if is_held:
            session = cloned.session

            def start() -> tuple[Session, Sequence[Metric]]:
                return session, measure.begin(session, wanted)

            code: int | None = measure.measure_to_end(program, wanted, session, cloned.wait, start)
        else:
            while (code := cloned.wait(_ROUND)) is None:
                reports.tell()
        reports.tell()
        _tell(cloned, options)
    return code or 0


def attach(pid: int, wanted: measure.Wish, options: Mapping[str, Any]) -> None:
    """Have a process run from a clone for a while, and measure it there."""
    if not wanted.is_empty:
        _measure(pid, wanted, options)
        return
    from weft import clone

    out = console(stderr=True)
    with (
        clone.attach(pid, cache_size=_cache_size(options)) as cloned,
        measure.waiting_for(pid) as wait,
    ):
        seconds = options["seconds"]
        until = "Ctrl-C" if seconds is None else f"{seconds:g} s"
        ended = None
        with contextlib.suppress(Interrupted), interruptible():
            text = f"process {pid} runs from a clone of its code; until {until}"
            out.print(text, highlight=False)
            ended = wait(seconds)
        if ended is None:
            cloned.release()
        Reports(cloned).tell()
        _tell(cloned, options)
    last = "it ended" if ended is not None else f"released: {left_in(pid)}"
    out.print(f"process {pid}: {last}", highlight=False)


def wish(options: Mapping[str, Any], *, to_stderr: bool = False) -> measure.Wish:
    """Make sense of the options, of which none is taken out."""
    if options["stats_file"]:
        check(options["stats_file"])
    others = {name: value for name, value in options.items() if name not in _OWN}
    if not others["metrics"] and not others["one_liners"]:
        # Then it is for how long the program runs from a clone, not for how long it is measured.
        others["seconds"] = None
    return measure.wish(others, to_stderr=to_stderr)


def _measure(pid: int, wanted: measure.Wish, options: Mapping[str, Any]) -> None:
    from weft import clone
    from weft.model.measured import TargetFacts

    with (
        clone.attach(pid, cache_size=_cache_size(options)) as cloned,
        measure.waiting_for(pid) as wait,
    ):
        session = cloned.session
        facts = TargetFacts(pid, session.program(), session.command())
        metrics = measure.begin(session, wanted)
        if not measure.measure(session, metrics, wanted, facts, wait).has_ended:
            cloned.release()
        _tell(cloned, options)


def _cache_size(options: Mapping[str, Any]) -> int | None:
    size = options["cache_size"]
    return None if size is None else _bytes(size)


class Reports:
    """What goes wrong in the engine, of which the user is told once."""

    def __init__(self, cloned: Cloned) -> None:
        self._cloned = cloned
        self._told: set[Path] = set()

    def tell(self) -> None:
        """Name the reports that are new."""
        for file in self._cloned.reports():
            if file not in self._told:
                self._told.add(file)
                print(f"weft: {_first_line(file)}; the report is {file}", file=sys.stderr)


def _first_line(report: Path) -> str:
    try:
        # The program could have put something else there.
        number = os.open(report, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(number, errors="replace") as file:
            return file.readline(_LONGEST).strip() if S_ISREG(os.fstat(number).st_mode) else ""
    except OSError as error:
        return f"something went wrong in the clone engine ({error.strerror})"


def _tell(cloned: Cloned, options: Mapping[str, Any]) -> None:
    """Say what the engine did, as far as that was asked for."""
    lost = cloned.lost()
    for text in lost:
        echo(f"note: {text}", err=True)
    if why := cloned.not_kept():
        echo(f"note: what was translated could not be kept for the next time: {why}", err=True)
    if not (options["stats"] or options["stats_file"]):
        return
    import json
    from dataclasses import asdict

    stats = cloned.stats()
    document = {"schema": 1, **asdict(stats), "lost": list(lost)}
    if options["stats_file"]:
        with Draft(options["stats_file"]) as file:
            file.write(json.dumps(document).encode() + b"\n")
    if options["stats"]:
        if options["output_format"] == "json":
            print_json(document, file=sys.stderr)
        else:
            _print(stats)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d{1,15})([KMG]?)", text.strip().upper())
    if not match:
        raise InvalidArgument(f"{text} is no size", advice="write 1048576, 1024K or 1M")
    size = int(match[1]) * _FACTORS[match[2]]
    if size > _LARGEST:
        raise InvalidArgument(f"a clone of {text} bytes is too large", advice="give at most 64G")
    if size < _SMALLEST:
        raise InvalidArgument(
            f"a clone of {text} bytes is too small",
            advice="give at least 256K: every block that is executed has to fit in",
        )
    return size


def _print(stats: CloneStats) -> None:
    out = console(stderr=True)
    seconds = max(stats.seconds, 1e-9)
    rows: list[tuple[str, str, str]] = [
        ("blocks", f"{stats.blocks:,}", "translated"),
        ("bytes", f"{stats.bytes:,}", "of clone"),
        ("records", f"{stats.record_bytes:,}", "bytes, of what became of each instruction"),
        ("from files", f"{stats.file_blocks:,}", f"blocks, in {stats.files:,} files"),
        ("links", f"{stats.links:,}", "branches linked to their blocks"),
        ("look-ups", f"{stats.lookups:,}", f"{stats.lookups / seconds:,.0f} per second"),
        ("misses", f"{stats.misses:,}", f"{stats.misses / seconds:,.0f} per second"),
        (
            "protection faults",
            f"{stats.protection_faults:,}",
            f"{stats.protection_faults / seconds:,.0f} per second",
        ),
        ("flushes", f"{stats.flushes:,}", "of the whole clone"),
        ("agent entries", f"{stats.agent_entries:,}", ""),
        ("system calls", f"{stats.system_calls:,}", ""),
        ("signals", f"{stats.signals:,}", "passed on"),
        ("threads, forks", f"{stats.threads:,}, {stats.forks:,}", ""),
        (
            "time in the agent",
            f"{stats.agent_seconds:.3f} s",
            f"of {stats.seconds:.3f} s",
        ),
    ]
    for name, value, remark in rows:
        out.print(f"{name:>18}  {value:>14}  {remark}".rstrip(), highlight=False)
