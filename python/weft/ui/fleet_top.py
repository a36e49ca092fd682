"""The view of `weft fleet top`: a table of hosts that changes, and what one of them says.

From a host one goes on to its processes, to the threads of one, and to stacks. What a host tells of
these is a second request, which ends when one goes elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import ClassVar, Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Static

from weft.base.numbers import exact, printable, rate
from weft.errors import WeftError
from weft.fleet.folding import SeriesKey, number
from weft.fleet.results import FleetResult
from weft.model.values import Histogram
from weft.ui.fleet import quantiles
from weft.ui.fleet_rows import Part, Place, Row, labels, parts, rates, rows

__all__ = ["Detail", "FleetTop", "Watched"]

_MOST_ROWS = 500
_MOST_NOTES = 8
_MOST_FRAMES = 10
_NAMES = {"process": "PROCESS", "thread": "THREAD", "stack": "STACK"}


class Watched(Protocol):
    """What is watched: a measurement of a fleet."""

    @property
    def is_over(self) -> bool:
        """Whether all has been told that will be."""

    def now(self) -> FleetResult:
        """What is known until now."""


class Detail(Watched, Protocol):
    """What is watched of one host, as long as somebody looks at it."""

    def stop(self) -> None:
        """End it."""


class FleetTop(App[None]):
    """Shows a measurement as it goes on. It ends when the person wants.

    ``opens`` begins to measure what a place is made of.
    """

    TITLE = "weft fleet top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #header { height: 1; background: $primary; color: $text; }
    #table { height: 1fr; scrollbar-size-vertical: 1; }
    #details { height: auto; max-height: 12; border-top: solid $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit", key_display="q"),
        Binding("g", "group", "Group by label"),
        Binding("s", "sort", "Sort"),
        Binding("k", "stacks", "Stacks"),
        Binding("escape", "outer", "Back"),
    ]

    def __init__(
        self,
        watched: Watched,
        opens: Callable[[Place], Detail],
        interval: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._watched = watched
        self._opens = opens
        self._place = Place()
        self._detail: Detail | None = None
        """What is measured of the place, once it is."""
        self._trouble = ""
        """Why nothing is."""
        self._parts: list[Part] = []
        self._moving = asyncio.Lock()
        self._interval = interval
        self._clock = clock
        self._by = ""
        self._order: SeriesKey | None = None
        self._before: tuple[float, FleetResult] | None = None
        self._found = FleetResult("", (), (), False)
        self._rates: dict[str, dict[SeriesKey, float]] = {}
        self._rows: list[Row] = []
        self._header = Static(id="header", markup=False)
        self._table: DataTable[Text] = DataTable(id="table", cursor_type="row")
        self._details = Static(id="details", markup=False)

    def compose(self) -> ComposeResult:
        """Put everything in its place."""
        yield self._header
        yield self._table
        yield self._details
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        self._look()
        self.set_interval(self._interval, self._look)

    def _look(self) -> None:
        if self._place != Place():
            self._look_closely()
            return
        is_over, now, found = self._watched.is_over, self._clock(), self._watched.now()
        # The last rates stay: that nothing is measured any more does not make them fall to 0.
        if self._before is not None and not is_over:
            self._rates = rates(found, self._before[1], now - self._before[0])
        self._before = now, found
        self._found = found
        self._draw()

    def _look_closely(self) -> None:
        if self._detail is not None:
            now, found = self._clock(), self._detail.now()
            before, since = (None, now) if self._before is None else self._before[::-1]
            self._parts = parts(found, before, now - since, self._order)[:_MOST_ROWS]
            self._before = now, found
            self._found = found
        self._draw_parts()

    def _draw(self) -> None:
        found = self._found
        keys = [(one.metric, one.focus) for one in found.totals]
        chosen = self._chosen()
        self._rows = rows(found, self._rates, self._by, self._order)[:_MOST_ROWS]
        table = self._table
        table.clear(columns=True)
        first = f"{self._by.upper()} (label)" if self._by else "HOST"
        table.add_columns(first, "STATE", "HOSTS", "PROCESSES")
        for metric, focus in keys:
            table.add_columns(f"{metric} {focus.rpartition('/')[2]}".strip(), "RATE")
        for row in self._rows:
            cells = [
                Text(printable(row.name), style="" if row.complete else "yellow"),
                Text(row.state),
                Text(str(row.hosts), justify="right"),
                Text(str(row.processes), justify="right"),
            ]
            for key in keys:
                total, grown = row.totals.get(key), row.rates.get(key)
                cells += [
                    Text("-" if total is None else exact(total), justify="right"),
                    Text("-" if grown is None else rate(grown), justify="right"),
                ]
            table.add_row(*cells)
        names = [row.name for row in self._rows]
        if chosen in names:
            table.move_cursor(row=names.index(chosen))
        processes = sum(host.processes for host in found.hosts)
        order = f"by rate of {self._order[0]}" if self._order else "what is least like the others"
        text = f"fleet: {len(found.hosts)} hosts, {processes} processes; first {order}"
        text += "" if self._by else "; Enter shows the processes of a host"
        if self._watched.is_over:
            text = f"OVER, these are the last values; q ends the view. {text}"
        self._header.update(text)
        self._show_details()

    def _draw_parts(self) -> None:
        """Show what a host, a process or all stacks of one are made of."""
        place, chosen, table = self._place, self._chosen(), self._table
        keys = [(one.metric, one.focus) for one in self._found.totals]
        table.clear(columns=True)
        for metric, focus in keys:
            table.add_columns(f"{metric} {focus.rpartition('/')[2]}".strip(), "RATE")
        table.add_column(_NAMES[place.by])
        for part in self._parts:
            cells = []
            for key in keys:
                value, grown = part.values.get(key), part.rates.get(key)
                cells += [
                    Text("-" if value is None else exact(number(value)), justify="right"),
                    Text("-" if grown is None else rate(grown), justify="right"),
                ]
            table.add_row(*cells, Text(printable(part.name)))
        names = [part.name for part in self._parts]
        if chosen in names:
            table.move_cursor(row=names.index(chosen))
        states = ", ".join(host.state for host in self._found.hosts)
        more = "" if place.process or place.stacks else "; Enter shows the threads of a process"
        text = f"{place}: {self._trouble or states or 'asking'}{more}"
        self._header.update(printable(text))
        self._show_details()

    def _chosen(self) -> str:
        at = self._table.cursor_row
        names = [one.name for one in (self._rows if self._place == Place() else self._parts)]
        return names[at] if 0 <= at < len(names) else ""

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show what there is to say of another row."""
        del event
        self._show_details()

    def _show_details(self) -> None:
        chosen = self._chosen()
        if self._place != Place():
            self._details.update("\n".join(map(printable, self._lines_of(chosen))))
            return
        row = next((one for one in self._rows if one.name == chosen), None)
        if row is None:
            self._details.update("")
            return
        lines = [f"{chosen}: {', '.join(row.members)}" if self._by else chosen]
        members = [host for host in self._found.hosts if host.host in row.members]
        for host in members:
            lines += [
                f"  {total.metric} {total.focus}: {quantiles(total.value, total.unit)}"
                for total in host.totals
                if isinstance(total.value, Histogram) and total.value.count
            ]
        notes = [f"  ! {host.host}: {note}" for host in members for note in host.notes]
        lines += notes[:_MOST_NOTES]
        self._details.update("\n".join(map(printable, lines)))

    def _lines_of(self, chosen: str) -> list[str]:
        """What there is to say of a process, a thread or a stack."""
        lines = [chosen]
        if self._place.stacks and chosen:
            frames = chosen.split(";")[::-1]
            lines = [f"  {name}" for name in frames[:_MOST_FRAMES]]
            if len(frames) > _MOST_FRAMES:
                lines.append(f"  and {len(frames) - _MOST_FRAMES} more calls")
        for part in self._parts:
            if part.name == chosen:
                lines += [
                    f"  {metric} {focus}: {quantiles(value, _unit(self._found, (metric, focus)))}"
                    for (metric, focus), value in part.values.items()
                    if isinstance(value, Histogram) and value.count
                ]
        notes = [f"  ! {note}" for host in self._found.hosts for note in host.notes]
        return [*lines, *notes[:_MOST_NOTES]]

    # From one place to another.

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Go on to the processes of a host, or the threads of a process."""
        del event
        place, chosen = self._place, self._chosen()
        if place.stacks or place.process or not chosen:
            return
        if not place.host and not self._by:
            self._go(Place(chosen))
        elif place.host and chosen.endswith(")") and not chosen.startswith("("):
            self._go(Place(place.host, chosen))

    def action_stacks(self) -> None:
        """Show the stacks of a host, or of a process."""
        place, chosen = self._place, self._chosen()
        if place.stacks:
            return
        if place.process:
            self._go(Place(place.host, place.process, stacks=True))
        elif place.host and chosen.endswith(")") and not chosen.startswith("("):
            self._go(Place(place.host, chosen, stacks=True))
        elif not place.host and chosen and not self._by:
            self._go(Place(chosen, stacks=True))

    def action_outer(self) -> None:
        """Go back to what this is a part of."""
        if self._place != Place():
            self._go(self._place.outer)

    def _go(self, place: Place) -> None:
        self._place = place
        self._trouble, self._order, self._before = "", None, None
        self._parts, self._found = [], FleetResult("", (), (), False)
        self._rates = {}
        self.run_worker(self._arrive(place), exit_on_error=True)
        if place == Place():
            self._look()
        else:
            self._draw_parts()

    async def _arrive(self, place: Place) -> None:
        """End what was measured elsewhere, and begin to measure what is looked at now."""
        async with self._moving:
            if self._detail is not None:
                detail, self._detail = self._detail, None
                await asyncio.to_thread(detail.stop)
            # Who goes on quickly has gone on already.
            if place == Place() or place != self._place:
                return
            try:
                self._detail = await asyncio.to_thread(self._opens, place)
            except WeftError as error:
                self._trouble = str(error)

    def action_group(self) -> None:
        """Put hosts together of which the next label says the same; after the last, none."""
        if self._place != Place():
            return
        known = ["", *labels(self._found)]
        at = known.index(self._by) if self._by in known else 0
        self._by = known[(at + 1) % len(known)]
        self._draw()

    def action_sort(self) -> None:
        """Sort by the rate of the next metric; after the last, by what stands out."""
        keys: list[SeriesKey | None] = [None]
        keys += [(one.metric, one.focus) for one in self._found.totals]
        at = keys.index(self._order) if self._order in keys else 0
        self._order = keys[(at + 1) % len(keys)]
        if self._place == Place():
            self._draw()


def _unit(found: FleetResult, key: SeriesKey) -> str:
    return next((one.unit for one in found.totals if (one.metric, one.focus) == key), "")
