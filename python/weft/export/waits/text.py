"""Who waits for whom, as text for a person to read."""

from __future__ import annotations

from typing import BinaryIO

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft.base.numbers import percent, printable, quantity, shortened
from weft.export.sampled.kinds import note
from weft.export.sampled.text import STATE_TITLES, heading, state_cells
from weft.export.tables import table, write_plain
from weft.export.waits.classes import waits_by_thread
from weft.model.contention import Contention, LockTime, contention
from weft.model.sampled import SampledTime

__all__ = ["convoy", "summary", "write"]

_WIDEST = 36


def write(file: BinaryIO, found: SampledTime, title: str, top: int = 10) -> None:
    """Write it without colour; no name is shortened."""
    write_plain(file, summary(found, title, top))


def summary(found: SampledTime, title: str, top: int, width: int | None = None) -> RenderableType:
    """Return threads, locks and who waits for whom, so many of each.

    ``width`` is that of the screen that it must fit; without one, no name is shortened.
    """
    parts: list[RenderableType] = [heading(found, title)]
    locks = contention(found)
    if found.threads:
        parts += [Text(), _threads(found, top, width)]
        if (more := len(found.threads) - top) > 0:
            parts.append(Text(f"and {more:,} more threads", style="dim"))
        parts.append(Text())
        parts += _locks(locks, top, width)
    parts.append(Text())
    if any(place.samples for place in found.places):
        parts.append(Text(f"~ is an estimate: {note(found)}", style="dim"))
    parts += [
        Text(printable(f"note: {one}"), style="yellow") for one in (*locks.notes, *found.notes)
    ]
    return Group(*parts)


def _threads(found: SampledTime, top: int, width: int | None) -> Table:
    waits = waits_by_thread(found)
    # A thread that sleeps all the time waits for work, most likely.
    ranked = sorted(found.threads, key=lambda one: (-one.running - one.runnable, one.tid))
    rows = []
    for one in ranked[:top]:
        most = next((wait for wait in waits[one.tid] if wait.seconds > 0), None)
        what = "" if most is None else f"{most.name} (~{quantity(most.seconds, 's')})"
        name = one.name if width is None else shortened(one.name, _WIDEST)
        rows.append([str(one.tid), *state_cells(one), name, what])
    return table(("THREAD", *STATE_TITLES, "NAME", "FOR"), rows, width, "FOR")


def _locks(found: Contention, top: int, width: int | None) -> list[RenderableType]:
    if not found.locks:
        return [Text("no thread was found to wait for a lock")]
    rows = [
        [
            f"~{quantity(one.seconds, 's')}",
            percent(one.wanted),
            f"{one.queue:.1f}",
            str(one.longest),
            str(len(one.waiters)),
            str(one.lock),
        ]
        for one in found.locks[:top]
    ]
    titles = ("WAITED", "WANTED", "QUEUE", "LONGEST", "THREADS", "LOCK")
    parts: list[RenderableType] = [table(titles, rows, width, "LOCK")]
    if (more := len(found.locks) - top) > 0:
        parts.append(Text(f"and {more:,} more locks", style="dim"))
    edges = [(one, held) for one in found.locks for held in one.held]
    ranked = sorted(edges, key=lambda edge: -edge[1].seconds)
    rows = []
    for one, held in ranked[:top]:
        cells = [one.lock.name, held.who_waits, held.who_holds]
        if width is not None:
            cells[:2] = [shortened(cell, _WIDEST) for cell in cells[:2]]
        rows.append(
            [
                f"~{quantity(held.seconds, 's')}",
                percent(held.seconds / (found.seconds or 1.0)),
                *cells,
            ]
        )
    columns = ("WAIT", "", "LOCK", "WHO WAITS", "WHO HOLDS IT")
    parts += [Text(), table(columns, rows, width, "WHO HOLDS IT")]
    if (more := len(edges) - top) > 0:
        parts.append(Text(f"and {more:,} more", style="dim"))
    for one in found.locks:
        if one.is_convoy:
            parts += [Text(), Text(printable(convoy(one)), style="bold")]
    return parts


def convoy(one: LockTime) -> str:
    """Say what a convoy is."""
    return (
        f"convoy: {len(one.waiters)} threads queue for {one.lock} and pass it on to each other; at "
        f"{percent(one.convoy)} of the looks two or more waited, up to {one.longest}"
    )
