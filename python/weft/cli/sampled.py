"""Sample where the threads of a program spend their time: a part of ``weft profile``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from weft.base.interrupts import interruptible
from weft.cli import measure
from weft.cli.output import (
    all_of,
    console,
    deliver,
    forward_signals,
    progress,
    say_lost,
)
from weft.errors import InvalidArgument, NoSuchProcess, TargetGone

if TYPE_CHECKING:
    from weft import _native
    from weft.sampling import Kind, SampledProfile

__all__ = ["FORMATS", "Wish", "budget", "options", "pace", "record", "show", "started", "wish"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

FORMATS = ("text", "json", "pprof", "speedscope", "folded", "svg", "html", "perfetto")
_RATE, _BUDGET = 99.0, "1%"


def pace(rate: float, budget: str) -> Callable[[_Function], _Function]:
    """Return the decorator that gives a command ``--rate`` and ``--budget``, with these defaults.

    They reach it as ``rate`` and ``budget``; nothing, where they were not given.
    """
    return all_of(
        click.option(
            "--rate",
            type=click.FloatRange(min=0, min_open=True, max=10_000),
            metavar="HZ",
            help=f"How often a second to sample at most.  [default: {rate:g}]",
        ),
        click.option(
            "--budget",
            metavar="PERCENT",
            help=f"How much of its time the target may lose to samples.  [default: {budget}]",
        ),
    )


options = all_of(
    click.option("--cpu", is_flag=True, help="Sample where threads run, instead of counting."),
    click.option("--wall", is_flag=True, help="Sample where threads are: they run, or wait."),
    click.option("--off-cpu", is_flag=True, help="Sample where threads wait, and what for."),
    pace(_RATE, _BUDGET),
)
"""Gives a command the options of sampling; they reach it as keyword arguments."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be sampled, and how often."""

    kind: Kind
    rate: float
    budget: float
    keep: bool
    """Whether to keep when each sample was taken."""


def wish(given: dict[str, Any], output_format: str, pattern: str | None) -> Wish | None:
    """Make sense of the options; nothing if the program is not to be sampled."""
    flags: dict[str, Kind] = {"cpu": "cpu", "wall": "wall", "off_cpu": "off-cpu"}
    kinds = [kind for name, kind in flags.items() if given[name]]
    if len(kinds) > 1:
        raise InvalidArgument(
            f"--{kinds[0]} and --{kinds[1]} are two profiles",
            "a profile shows time of one kind",
            "choose one of them; --wall is all time",
        )
    if not kinds:
        useless = [f"--{name}" for name in ("rate", "budget") if given[name] is not None]
        if output_format == "perfetto":
            useless.append("--format perfetto")
        if useless:
            raise InvalidArgument(
                f"{useless[0]} is for samples",
                "without --cpu, --wall or --off-cpu nothing is sampled: all is counted",
                f"say what to sample: --cpu {useless[0]} ...",
            )
        return None
    if output_format not in FORMATS:
        raise InvalidArgument(
            f"samples cannot be written as {output_format}",
            "it is a format of exact counts",
            f"count without --{kinds[0]}, or write one of {', '.join(FORMATS)}",
        )
    if pattern is not None:
        raise InvalidArgument(
            "--module is for exact counts",
            "samples have whole stacks, of all modules",
            f"leave out --module, or --{kinds[0]}",
        )
    limit = budget(given["budget"] or _BUDGET)
    return Wish(kinds[0], given["rate"] or _RATE, limit, output_format == "perfetto")


def budget(text: str) -> float:
    """Read the share of its time that the target may lose."""
    # Without a limit, threads stand still for as long as the rate makes them.
    return measure.share(text) or 1.0


def record(
    wanted: Wish, pid: int | None, program: Sequence[str], seconds: float | None
) -> tuple[SampledProfile, int]:
    """Sample a process for a while, or a program to its end: its profile and its exit code."""
    if pid is None:
        return _run(wanted, program)
    measure.say_until(pid, seconds)
    return _attach(wanted, pid, seconds), 0


def _attach(wanted: Wish, pid: int, seconds: float | None) -> SampledProfile:
    from weft.sampling import sample

    is_over = False

    def end(_signal: int) -> None:
        # Not by an exception: what the last look has found is still to be counted.
        nonlocal is_over
        is_over = True

    with measure.waiting_for(pid), interruptible(end), progress(f"sampling process {pid}"):
        return sample(
            pid,
            seconds,
            wanted.kind,
            rate=wanted.rate,
            budget=wanted.budget,
            keep=wanted.keep,
            every=lambda: not is_over,
        )


def _run(wanted: Wish, program: Sequence[str]) -> tuple[SampledProfile, int]:
    from weft.sampling import SampledProfile, sample

    with started(program) as process:
        try:
            found = sample(
                process.pid,
                None,
                wanted.kind,
                rate=wanted.rate,
                budget=wanted.budget,
                keep=wanted.keep,
                begin=process.release,
            )
        except (NoSuchProcess, TargetGone):
            from weft.model.sampled import SampledTime

            note = "the program has ended before it could be looked at"
            nothing = SampledTime(process.pid, program[0], 0.0, 0, 0.0, (), (), notes=(note,))
            found = SampledProfile(wanted.kind, " ".join(program), nothing)
    return found, process.wait() or 0


@contextmanager
def started(program: Sequence[str]) -> Iterator[_native.Started]:
    """Start a program, held where it begins, with nothing of weft's in it; wait until it ends."""
    from weft import _native

    process = _native.Started(list(program))
    try:
        forward_signals(process.pid)
        yield process
    finally:
        process.release()
        process.wait()


def show(
    profile: SampledProfile, output: str | None, output_format: str, top: int, *, to_stderr: bool
) -> None:
    """Write a profile."""
    from weft.export.sampled import text

    title, kind, found = profile.title, profile.kind, profile.time
    screen = console(stderr=to_stderr)
    if output is None and output_format == "text" and screen.is_terminal:
        screen.print(text.summary(found, kind, title, top, screen.width))
        return

    def write(file: BinaryIO) -> None:
        if output_format == "text":
            text.write(file, found, kind, title, top)
        elif output_format == "json":
            from weft.export.sampled import json

            json.write(file, found, kind)
        else:
            from weft.export import stacks
            from weft.export.stacks import FORMATS as NAMES

            name = next(name for name in NAMES if name == output_format)
            stacks.write(file, name, profile.weighed_stacks())

    with progress(f"writing {output}") if output is not None else nullcontext():
        deliver(write, output, to_stderr=to_stderr)
    say_lost(profile.notes, output, output_format)
