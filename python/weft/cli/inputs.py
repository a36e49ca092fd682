"""What commands take from a command line: process ids and lengths of time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.base.names import did_you_mean, may_be_name
from weft.cli.printing import echo
from weft.errors import BadFile, InvalidArgument, NoSuchProcess

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from weft.cli.completing import Completion
    from weft.program.processes import RunningProcess

    _Time = click.ParamType[float]
    _Moment = click.ParamType[datetime]
else:
    _Time = _Moment = click.ParamType  # which takes no parameters in older versions

_HIGHEST_PID = (1 << 31) - 1
_LONGEST = 100 * 365 * 86400.0
"""The most seconds that can be waited for; the kernel's limit is not much higher."""


_HAS_DASHES = "weft.has_dashes"
_NUMBER = r"(?:[0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})"
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""The units of time, from the longest on."""
_MOMENT = r"(?:[0-9]{4}-[0-9][0-9]-[0-9][0-9]T)?[0-9][0-9]:[0-9][0-9](?::[0-9][0-9])?Z?"
_MOMENTS = "write 14:30, 14:30Z or 2026-11-19T14:30Z"
_EXAMPLES = "write 90 or 90s, 500ms, 10m, 1h30m"


class Seconds(_Time):
    """A length of time: seconds, or numbers with units: ``90``, ``1.5s``, ``500ms``, ``1h30m``.

    It is no less than a least one, and no more than can be waited for.
    """

    name = "time"

    def __init__(self, min: float) -> None:
        self.min = min

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return it in seconds."""
        seconds = _in_seconds(str(value))
        if seconds is None:
            self.fail(f"{value!r} is no length of time: {_EXAMPLES}.", param, ctx)
        if not self.min <= seconds <= _LONGEST:
            limit = f"at least {self.min:g}s" if seconds < self.min else f"at most {_LONGEST:g}s"
            self.fail(f"{value} is out of range: it is {limit}.", param, ctx)
        return seconds


class Moment(_Moment):
    """A moment that is to come: ``14:30``, ``2026-11-19T14:30Z``.

    A time of the day is the next one; without a zone it is that of this machine.
    """

    name = "moment"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return it with its zone."""
        text, now = str(value).strip(), datetime.now().astimezone()
        if not re.fullmatch(_MOMENT, text):
            self.fail(f"{value!r} is no moment: {_MOMENTS}.", param, ctx)
        is_day = "T" in text
        whole = text if is_day else f"{_today(text, now)}T{text}"
        try:
            found = datetime.fromisoformat(whole.replace("Z", "+00:00"))
            moment = found.astimezone()
            if not is_day and moment <= now:
                moment = (found + timedelta(days=1)).astimezone()
        except (ValueError, OverflowError) as error:
            self.fail(f"{value!r} is no moment: {error}.", param, ctx)
        if moment <= now:
            self.fail(f"{value} is over.", param, ctx)
        return moment


def _today(text: str, now: datetime) -> date:
    """The day that it is where a time of the day is meant."""
    return (now.astimezone(timezone.utc) if text.endswith("Z") else now).date()


def _in_seconds(text: str) -> float | None:
    """Return a length of time in seconds; ``None`` if the text is none.

    Units come from the longest to the shortest, each once. A number without one is in seconds, and
    stands alone: what ``1m30`` means is anybody's guess.
    """
    text = text.strip()
    if re.fullmatch(_NUMBER, text):
        return float(text)
    parts = re.findall(rf"({_NUMBER})\s*([a-z]+)\s*", text)
    if not parts or not re.fullmatch(rf"(?:{_NUMBER}\s*[a-z]+\s*)+", text):
        return None
    places = [list(_UNITS).index(unit) if unit in _UNITS else -1 for _, unit in parts]
    if -1 in places or places != sorted(set(places)):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def completed(how: str) -> Completion:
    """Return what completes a word: a function of :mod:`weft.cli.completing`, by its name."""

    def complete(ctx: click.Context, param: click.Parameter, word: str) -> list[CompletionItem]:
        from weft.cli import completing

        found: list[CompletionItem] = getattr(completing, how)(ctx, param, word)
        return found

    return complete


class Pid(click.IntRange):
    """A process, by its id or by the name that it was started as."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer the processes that there are."""
        return completed("processes")(ctx, param, incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return its id."""
        word = str(value)
        found = _number(word)
        if found is None and not may_be_name(word):
            self.fail(f"{value!r} is neither the id nor the name of a process.", param, ctx)
        return _only_process(word) if found is None else found


class Launching(click.Command):
    """A command that starts a program, whose words it does not look at.

    An option that it does not know is taken for the program's, unless it comes before the program:
    then it is a mistake.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            if param.nargs == -1:
                is_process = "PID" in (getattr(param, "metavar", None) or "")
                how = "process_or_program" if is_process else "programs"
                param._custom_shell_complete = completed(how)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse options that there are not; take note whether a program follows ``--``."""
        before = args[: args.index("--")] if "--" in args else list(args)
        ctx.meta[_HAS_DASHES] = "--" in args
        rest = super().parse_args(ctx, args)
        words = next(
            (ctx.params.get(one.name or "") for one in self.params if one.nargs == -1), None
        )
        if words and words[0].startswith("-") and words[0] in before:
            self._refuse(ctx, words[0])
        return rest

    def _refuse(self, ctx: click.Context, word: str) -> None:
        if ctx.resilient_parsing:
            return
        name = word.partition("=")[0]
        known = [option for one in self.get_params(ctx) for option in one.opts]
        meant = did_you_mean(name, [one for one in known if one.startswith("-")])
        raise click.UsageError(sentence(f"No such option '{name}'.", meant), ctx)


def sentence(text: str, more: str) -> str:
    """Return a sentence and, if there is one, the next."""
    return f"{text} {more[0].upper()}{more[1:]}" if more else text


def process_id(words: Sequence[str]) -> int | None:
    """Return the process that words name, or ``None`` if they are a command.

    A command whose name is a number has to be written as a path: ``./123``. A single word that is
    the name of a process stands for that, unless it follows ``--``.
    """
    if len(words) != 1:
        return None
    word = words[0]
    found = _number(word)
    ctx = click.get_current_context(silent=True)
    if found is not None or not may_be_name(word) or (ctx and ctx.meta.get(_HAS_DASHES)):
        return found
    return _process_or_program(word)


program_argument = click.argument(
    "program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="PID|NAME|-- CMD..."
)
"""Gives a command the words that :func:`process_id` makes sense of, as ``program``."""


def refuse_time_of_programs(seconds: float | None, pid: int | None) -> None:
    """Refuse ``--for`` where a program is started, which is watched to its end."""
    if seconds is not None and pid is None:
        raise InvalidArgument(
            "--for is for processes that run already", advice="give a process id instead of CMD"
        )


def file_or_process(word: str) -> int | None:
    """Return the process that a word names, or ``None`` if it is a file.

    A file whose name is a number has to be written as a path: ``./123``.
    """
    found = _number(word)
    if found is not None or not may_be_name(word) or Path(word).exists():
        return found
    import shutil

    from weft.program.processes import find_process, processes_named

    if processes_named(word):
        return _only_process(word)
    program = shutil.which(word)
    advice = f"for the program: {program}"
    if program is None:
        try:
            return find_process(word).pid
        except NoSuchProcess as error:
            advice = error.advice
    raise BadFile(f"there is no file or process {word}", "", advice)


def _number(word: str) -> int | None:
    """The process of a number; ``None`` if the word is none."""
    if not (word.isascii() and word.isdecimal()):
        return None
    digits = word.lstrip("0") or "0"
    if len(digits) > len(str(_HIGHEST_PID)) or int(digits) > _HIGHEST_PID:
        raise NoSuchProcess(
            f"there is no process {digits[:40]}",
            "no process has an id that high",
            "list the processes: weft ps",
        )
    from weft.program.tasks import is_kernel_thread

    if digits == "0" or is_kernel_thread(int(digits)):
        raise NoSuchProcess(
            f"{digits} is no process of user space",
            "the kernel itself has that id" if digits == "0" else "it is a thread of the kernel",
            "list the processes: weft ps",
        )
    return int(digits)


def _only_process(name: str) -> int:
    from weft.program.processes import find_process

    return _noted(name, find_process(name))


def _process_or_program(name: str) -> int | None:
    """The only process of a name; ``None`` if it is that of a program that can be started."""
    import shutil

    from weft.program.processes import find_process, processes_named, several

    found = processes_named(name)
    program = shutil.which(name)
    to_start = f"; to start another: -- {name}" if program else ""
    if not found:
        # Whoever is told that there is no such program wants to know of processes, too.
        return None if program else find_process(name, "process or program").pid
    if len(found) > 1:
        error = several(name, found)
        error.advice += to_start
        raise error
    return _noted(name, found[0], to_start)


def _noted(name: str, process: RunningProcess, more: str = "") -> int:
    """Say which process a name stands for."""
    ctx = click.get_current_context(silent=True)
    if ctx is None or not ctx.resilient_parsing:
        echo(f"note: {name} is process {process.pid}, {process.command}{more}", err=True)
    return process.pid
