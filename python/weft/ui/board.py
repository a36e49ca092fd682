"""What `weft top` shows, as data: where one is, what is measured for that, and the rows of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest, nsmallest
from typing import Literal

from weft.probes import Histogram
from weft.ui.numbers import percent, quantity
from weft.ui.source import CALLERS, LATENCY, Reading, Request

__all__ = ["MEASURES", "Board", "Column", "Measure", "Place", "Row"]

NAME = "name"
"""The title of the first column."""

MOST_ROWS = 200
"""Nobody reads more of them; searching looks at all."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric that is known of each function, and the key that turns it on and off."""

    metric: str
    key: str
    word: str
    unit: str = ""


MEASURES = (
    Measure("calls", "c", "calls"),
    Measure("inclusive_time", "t", "time", "s"),
    Measure("blocks", "b", "blocks"),
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of numbers: of a metric how much per second, or in all; or the time of a call."""

    measure: Measure
    kind: Literal["rate", "total", "each"]

    @property
    def title(self) -> str:
        """What is above it."""
        if self.kind == "each":
            return "each"
        if self.kind == "total":
            return self.measure.word
        return "time %" if self.measure.unit == "s" else f"{self.measure.word}/s"

    def text(self, value: float | None) -> str:
        """A number of it for people."""
        if value is None:
            return "-"
        if self.kind == "rate" and self.measure.unit == "s":
            return percent(value)
        return quantity(value, self.measure.unit)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one is: among all modules, among the functions of one, or among a function's callers.

    ``path`` is the module's or the function's.
    """

    kind: Literal["modules", "functions", "callers"]
    path: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A module, a function or a caller with its numbers, one for each column."""

    path: str
    name: str
    values: tuple[float | None, ...]


@dataclass
class Board:
    """The state of the view. It changes by keys and readings only."""

    modules: list[str] = field(default_factory=list)
    module: str = ""
    """Whose functions are measured."""
    places: list[Place] = field(default_factory=lambda: [Place("modules")])
    measures: set[str] = field(default_factory=lambda: {"calls"})
    thread: str = ""
    latency: str = ""
    """The function whose latency is shown."""
    search: str = ""
    sort: str = ""
    """The title of the column that was chosen to sort by."""
    is_reversed: bool = False
    readings: tuple[Reading | None, Reading | None] = (None, None)

    @property
    def place(self) -> Place:
        """Where one is."""
        return self.places[-1]

    @property
    def reading(self) -> Reading | None:
        """The newest reading."""
        return self.readings[1]

    # What happens to it.

    def open_module(self, module: str) -> None:
        """Go to the functions of a module, which are measured from now on."""
        if module != self.module:
            self.latency = ""
        self.module = module
        self.places = [Place("modules"), Place("functions", f"/Code/{module}")]
        self.search = ""

    def open_callers(self, path: str) -> None:
        """Go to the callers of a function."""
        self.places.append(Place("callers", path))
        self.search = ""

    def enter(self, path: str) -> bool:
        """Go one step down from a row; false if there is nothing below it."""
        if not path.startswith("/Code/"):
            return False
        if self.place.kind == "modules":
            self.open_module(path.removeprefix("/Code/"))
        else:
            self.open_callers(path)
        return True

    def leave(self) -> bool:
        """Go one step back: out of a search, or up; false at the top."""
        if self.search:
            self.search = ""
            return True
        if len(self.places) == 1:
            return False
        self.places.pop()
        return True

    def toggle(self, measure: str) -> None:
        """Turn a metric on or off."""
        self.measures ^= {measure}

    def sort_by_next(self) -> None:
        """Sort by the column to the right of the one it is sorted by; after the last, by name."""
        titles = [NAME, *(column.title for column in self.columns())]
        self.sort = titles[(titles.index(self.sorted_by) + 1) % len(titles)]
        self.is_reversed = False

    def drop(self, request: Request) -> None:
        """Do without what could not be measured."""
        if request.metric == LATENCY:
            self.latency = ""
        elif request.metric == CALLERS:
            gone = Place("callers", request.path)
            self.places = [place for place in self.places if place != gone]
        else:
            self.measures.discard(request.metric)

    def note(self, reading: Reading, *, is_early: bool = False) -> None:
        """Take a reading; what grows per second is what has grown since the one before.

        One that was made early, for something new, comes too soon after the last to tell rates;
        so does one of the same moment.
        """
        if self.reading is not None and reading.time <= self.reading.time:
            is_early = True
        self.readings = (self.readings[0] if is_early else self.readings[1], reading)

    # What it comes to.

    def wanted(self) -> frozenset[Request]:
        """Everything that has to be measured for what is shown."""
        wanted: set[Request] = set()
        if self.module:
            wanted |= {self._of_module(measure) for measure in self._active()}
        if self.latency:
            wanted.add(Request(LATENCY, self.latency, self.thread))
        if self.place.kind == "callers":
            wanted.add(Request(CALLERS, self.place.path, self.thread))
        return frozenset(wanted)

    def columns(self) -> list[Column]:
        """The columns of numbers."""
        active = self._active() if self.place.kind != "callers" else [MEASURES[0]]
        kinds: tuple[Literal["rate", "total"], ...] = ("rate", "total")
        columns = [Column(one, kind) for one in active for kind in kinds]
        if {MEASURES[0], MEASURES[1]} <= set(active):
            columns.append(Column(MEASURES[1], "each"))
        return columns

    @property
    def sorted_by(self) -> str:
        """The title of the column that the rows are sorted by: the chosen one if it is there."""
        titles = [column.title for column in self.columns()]
        if self.sort in (NAME, *titles):
            return self.sort
        return titles[0] if titles else NAME

    def rows(self) -> tuple[list[Row], int]:
        """The first rows in their order, and how many there are."""
        columns = self.columns()
        tables = [self._table(column) for column in columns]
        paths = self._paths(tables)
        if self.search:
            word = self.search.casefold()
            paths = [path for path in paths if word in self._name(path).casefold()]
        titles = [column.title for column in columns]
        by_name = self.sorted_by == NAME
        if by_name:
            # Names go up, numbers down, unless they are turned round.
            first = nlargest if self.is_reversed else nsmallest
            order = first(MOST_ROWS, paths, key=self._name)
        else:
            table = tables[titles.index(self.sorted_by)]
            first = nsmallest if self.is_reversed else nlargest
            order = first(MOST_ROWS, paths, key=lambda path: table.get(path, -1.0))
        rows = [
            Row(path, self._name(path), tuple(table.get(path) for table in tables))
            for path in order
        ]
        return rows, len(paths)

    def _paths(self, tables: Iterable[Mapping[str, float]]) -> list[str]:
        if self.place.kind == "modules":
            return [f"/Code/{module}" for module in self.modules]
        return list(dict.fromkeys(path for table in tables for path in table))

    def _name(self, path: str) -> str:
        if self.place.kind == "callers":
            return path.removeprefix("/Code/")
        return path.split("/", 3)[-1] if self.place.kind == "functions" else path[len("/Code/") :]

    def _table(self, column: Column) -> Mapping[str, float]:
        """The numbers of a column, by path."""
        before, now = self.readings
        if now is None:
            return {}
        if column.kind == "total":
            return self._totals(now, column.measure) or {}
        if before is None or now.time <= before.time:
            return {}
        grown = self._growth(before, now, column.measure)
        if column.kind == "each":
            calls = self._growth(before, now, MEASURES[0])
            return {path: change / calls[path] for path, change in grown.items() if calls.get(path)}
        return {path: change / (now.time - before.time) for path, change in grown.items()}

    def _growth(self, before: Reading, now: Reading, measure: Measure) -> Mapping[str, float]:
        old, new = self._totals(before, measure), self._totals(now, measure)
        if old is None or new is None:
            return {}
        return {path: total - old.get(path, 0) for path, total in new.items()}

    def _totals(self, reading: Reading, measure: Measure) -> Mapping[str, float] | None:
        """The totals by path; nothing when it was not measured then."""
        if self.place.kind == "callers":
            request = Request(CALLERS, self.place.path, self.thread)
        else:
            request = self._of_module(measure)
        values = reading.values.get(request)
        if not isinstance(values, dict):
            return None
        if self.place.kind == "modules":
            return {f"/Code/{self.module}": sum(values.values())}
        return values

    def histogram(self) -> Histogram | None:
        """The latency that is shown, if it was read already."""
        if self.reading is None or not self.latency:
            return None
        value = self.reading.values.get(Request(LATENCY, self.latency, self.thread))
        return value if isinstance(value, Histogram) else None

    def _active(self) -> list[Measure]:
        return [measure for measure in MEASURES if measure.metric in self.measures]

    def _of_module(self, measure: Measure) -> Request:
        return Request(measure.metric, f"/Code/{self.module}/*", self.thread)
