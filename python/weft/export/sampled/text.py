"""Sampled time as text: threads, functions and waits, for a person to read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft.base.numbers import percent, printable, quantity, shortened
from weft.export.metrics.draw import bar
from weft.export.sampled.kinds import STATES, Kind, StackTime, note, stack_times, wait_name
from weft.export.tables import BAR, table, write_plain
from weft.model.contention import own_frame
from weft.model.sampled import NOT_SAMPLED, PlaceTime, SampledTime, ThreadTime
from weft.model.stacks import StackFrame
from weft.model.waits import Holder

__all__ = ["STATE_TITLES", "heading", "state_cells", "summary", "write"]

STATE_TITLES = ("RUNNING", "", "RUNNABLE", "", "BLOCKED", "")
"""Above the cells of :func:`state_cells`."""

_WIDEST_WAIT = 40


def write(file: BinaryIO, found: SampledTime, kind: Kind, title: str, top: int) -> None:
    """Write it without colour; no name is shortened."""
    write_plain(file, summary(found, kind, title, top))


def summary(
    found: SampledTime, kind: Kind, title: str, top: int, width: int | None = None
) -> RenderableType:
    """Return the threads, functions and waits with most time, so many of each.

    ``width`` is that of the screen that it must fit; without one, no name is shortened.
    """
    parts: list[RenderableType] = [heading(found, title, f"{kind} time, ")]
    if found.threads:
        parts += [Text(), *_threads(found, kind, top, width)]
    times = list(stack_times(found, kind))
    total = sum(one.seconds for one in times)
    if total > 0:
        functions = _functions(times)
        for order in ("own", "all"):
            parts += [Text(), _functiontable(functions, total, order, top, width)]
        if kind != "cpu" and (waits := _waits(times)):
            parts += [Text(), _waittable(waits, total, top, width)]
    elif found.threads:
        parts += [Text(), Text(f"there was no {kind} time")]
    parts.append(Text())
    if total > 0:
        parts.append(Text(f"~ is an estimate: {note(found)}", style="dim"))
    parts += [Text(printable(f"note: {one}"), style="yellow") for one in found.notes]
    return Group(*parts)


def heading(found: SampledTime, title: str, about: str = "") -> Text:
    """Return the line above all else: the program, for how long it was watched, how often."""
    made = Text(printable(f"{' '.join(title.split())} ({found.pid})"), style="bold")
    share = found.stood_still / found.seconds if found.seconds else 0.0
    still = f"{quantity(found.stood_still, 's')} in all ({percent(share)})"
    facts = f"{found.looks:,} looks, threads stood still for {still}"
    watched = f"  {about}watched for {quantity(found.seconds, 's')}: {facts}"
    made.append(watched, style="not bold")
    return made


# --- Threads ----------------------------------------------------------------------------------


def _threads(found: SampledTime, kind: Kind, top: int, width: int | None) -> list[RenderableType]:
    def relevant(thread: object) -> float:
        return sum(float(getattr(thread, state)) for state in STATES[kind])

    shown = sorted(found.threads, key=lambda one: (-relevant(one), one.tid))[:top]
    rows = []
    for one in shown:
        rows.append([str(one.tid), *state_cells(one), one.name])
    parts: list[RenderableType] = [table(("THREAD", *STATE_TITLES, "NAME"), rows, width, "NAME")]
    if len(found.threads) > len(shown):
        parts.append(Text(f"and {len(found.threads) - len(shown):,} more threads", style="dim"))
    return parts


def state_cells(thread: ThreadTime) -> list[str]:
    """For how long a thread ran, was ready to, and was blocked."""
    return [
        cell
        for seconds in (thread.running, thread.runnable, thread.blocked)
        for cell in (
            quantity(seconds, "s"),
            percent(seconds / thread.seconds) if thread.seconds > 0 else "",
        )
    ]


# --- Functions --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Function:
    name: str
    home: str
    """Its module, or its file."""
    own: float = 0.0
    all: float = 0.0
    own_samples: int = 0
    all_samples: int = 0


def _functions(times: Sequence[StackTime]) -> list[_Function]:
    found: dict[tuple[str, str], _Function] = {}
    # A place that ran and was ready to run was seen once.
    counted: set[tuple[int, bool]] = set()
    for one in times:
        place = one.place
        is_first = (id(place), one.state == "blocked") not in counted
        counted.add((id(place), one.state == "blocked"))
        samples = place.samples if is_first else 0
        keys = [_key(frame) for frame in place.frames] or [(NOT_SAMPLED, "")]
        for key in dict.fromkeys(keys):
            function = found.setdefault(key, _Function(*key))
            function.all += one.seconds
            function.all_samples += samples
        function = found[keys[0]]
        function.own += one.seconds
        function.own_samples += samples
    return list(found.values())


def _key(frame: StackFrame) -> tuple[str, str]:
    name = frame.function or f"{frame.address:#x}"
    if frame.language == "python" and frame.location is not None:
        # Its module is the interpreter.
        return name, frame.location.file.rpartition("/")[2]
    return name, frame.module or ""


def _functiontable(
    functions: Sequence[_Function], total: float, order: str, top: int, width: int | None
) -> Table:
    is_own = order == "own"
    ranked = sorted(functions, key=lambda one: (-getattr(one, order), one.name))
    shown = [one for one in ranked if getattr(one, order) > 0][:top]
    highest = getattr(shown[0], order)
    rows = []
    for one in shown:
        seconds = one.own if is_own else one.all
        samples = one.own_samples if is_own else one.all_samples
        rows.append(
            [
                f"~{quantity(seconds, 's')}",
                percent(seconds / total),
                bar(seconds / highest, BAR),
                f"{samples:,}",
                one.name,
                one.home,
            ]
        )
    first = "SELF" if is_own else "TOTAL"
    return table((first, "", "BAR", "SAMPLES", "FUNCTION", "MODULE"), rows, width, "FUNCTION")


# --- Waits ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Waited:
    seconds: float = 0.0
    samples: int = 0
    holders: Counter[Holder] = field(default_factory=Counter)


def _waits(times: Sequence[StackTime]) -> dict[tuple[str, str], _Waited]:
    found: defaultdict[tuple[str, str], _Waited] = defaultdict(_Waited)
    for one in times:
        if one.state == "blocked" and one.place.samples:
            waited = found[wait_name(one.place).strip("[]"), _where(one.place)]
            waited.seconds += one.seconds
            waited.samples += one.place.samples
            for holder, count in one.place.holders:
                waited.holders[holder] += count
    return found


def _where(place: PlaceTime) -> str:
    """The function that waits."""
    frame = own_frame(place)
    return "" if frame is None else frame.function or ""


def _waittable(
    waits: dict[tuple[str, str], _Waited], total: float, top: int, width: int | None
) -> Table:
    rows = []
    ranked = sorted(waits.items(), key=lambda entry: (-entry[1].seconds, entry[0]))
    for (what, where), waited in ranked[:top]:
        most = waited.holders.most_common(1)
        rows.append(
            [
                f"~{quantity(waited.seconds, 's')}",
                percent(waited.seconds / total),
                f"{waited.samples:,}",
                what if width is None else shortened(what, _WIDEST_WAIT),
                str(most[0][0]) if most else "",
                where,
            ]
        )
    titles = ("WAIT", "", "SAMPLES", "FOR", "HELD MOST BY", "FUNCTION")
    return table(titles, rows, width, "FUNCTION")
