"""What `weft top` shows, as data: where one is, what is measured for that, and the rows of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest, nsmallest
from typing import Literal

from weft.base.numbers import percent, quantity
from weft.model.completeness import EXACT, Status
from weft.model.measured import Shed
from weft.model.values import Histogram
from weft.ui.source import CALLERS, LATENCY, Reading, Request

__all__ = ["MEASURES", "Board", "Column", "Measure", "Place", "Row"]

NAME = "name"
"""The title of the first column."""

MOST_ROWS = 200
"""Nobody reads more of them; searching looks at all."""

TOO_HOT = "too hot"
"""Where a function cannot be measured within the budget."""


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

    def text(self, value: float | None, too_hot: float | None = None) -> str:
        """A number of it for people; or what measuring it would cost, if that is too much."""
        if value is None and too_hot is not None:
            return {"rate": TOO_HOT, "total": _cost(too_hot), "each": "-"}[self.kind]
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
    statuses: tuple[Status, ...] = ()
    """Of each value, whether it is exact."""
    too_hot: tuple[float | None, ...] = ()
    """Of each that is not measured because the budget does not allow it, what it would cost."""


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
    followed: dict[str, None] = field(default_factory=dict)
    """The functions that are measured one by one, the latest last."""
    refused: set[Request] = field(default_factory=set)
    """What cannot be measured."""

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
            self.followed = {}
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
        """Turn a metric on or off. What could not be measured before is tried again."""
        self.measures ^= {measure}
        self.refused = {request for request in self.refused if request.metric != measure}

    def sort_by_next(self) -> None:
        """Sort by the column to the right of the one it is sorted by; after the last, by name."""
        titles = [NAME, *(column.title for column in self.columns())]
        self.sort = titles[(titles.index(self.sorted_by) + 1) % len(titles)]
        self.is_reversed = False

    def drop(self, request: Request) -> None:
        """Do without what could not be measured."""
        self.refused.add(request)
        if request.metric == LATENCY:
            self.latency = ""
        elif request.metric == CALLERS:
            gone = Place("callers", request.path)
            self.places = [place for place in self.places if place != gone]
        elif request.is_of_module or all(
            Request(request.metric, path, request.thread) in self.refused for path in self.followed
        ):
            self.measures.discard(request.metric)

    def look_at(self, paths: Iterable[str]) -> None:
        """Take note of the functions that are on the screen: these are measured one by one.

        Where the rows are sorted by what is known of these only, so are those that are called, as
        many as there can be rows: first those that are called least, as they cost least.
        """
        wanted = dict.fromkeys(paths) if self.place.kind == "functions" else {}
        if self.place.kind == "functions" and self._is_sorted_by_followed:
            calls = self._growing(MEASURES[0])
            called = [path for path, rate in calls.items() if rate > 0]
            wanted |= dict.fromkeys(nsmallest(MOST_ROWS, called, key=lambda path: calls[path]))
        for path in wanted:
            self.followed.pop(path, None)
        # What was on the screen a moment ago may soon be there again.
        kept = list(self.followed)[max(0, len(self.followed) + len(wanted) - MOST_ROWS) :]
        self.followed = dict.fromkeys([*kept, *wanted])

    @property
    def _is_sorted_by_followed(self) -> bool:
        titles = {column.title: column for column in self.columns()}
        column = titles.get(self.sorted_by)
        return column is not None and column.measure != MEASURES[0]

    def _growing(self, measure: Measure) -> Mapping[str, float]:
        before, now = self.readings
        return {} if before is None or now is None else self._growth(before, now, measure)

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
        active = self._active() if self.module else []
        if active:
            # Of which functions there is something to see, is known by their calls.
            wanted.add(self._of_module(MEASURES[0]))
        wanted |= {
            Request(measure.metric, path, self.thread)
            for measure in active
            if measure != MEASURES[0]
            for path in self.followed
        }
        if self.latency:
            wanted.add(Request(LATENCY, self.latency, self.thread))
        if self.place.kind == "callers":
            wanted.add(Request(CALLERS, self.place.path, self.thread))
        return frozenset(wanted - self.refused)

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
            Row(
                path,
                self._name(path),
                tuple(table.get(path) for table in tables),
                tuple(self._status(column, path) for column in columns),
                tuple(self._too_hot(column, path) for column in columns),
            )
            for path in order
        ]
        return rows, len(paths)

    def _shed(self, column: Column, path: str) -> Shed | None:
        """What is done to a number to stay within the budget."""
        partly = self.reading.partly if self.reading is not None else {}
        if self.place.kind == "callers":
            return partly.get((CALLERS, self.place.path))
        return partly.get((column.measure.metric, path))

    def _too_hot(self, column: Column, path: str) -> float | None:
        shed = self._shed(column, path)
        return (shed.cost or 0.0) if shed is not None and shed.how == "removed" else None

    def _paths(self, tables: Iterable[Mapping[str, float]]) -> list[str]:
        if self.place.kind == "modules":
            return [f"/Code/{module}" for module in self.modules]
        known = dict.fromkeys(path for table in tables for path in table)
        if self.place.kind == "functions" and self.reading is not None:
            known |= dict.fromkeys(self._totals(self.reading, MEASURES[0]) or {})
        return list(known)

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

    def _status(self, column: Column, path: str) -> Status:
        """Whether a number is exact."""
        if self.reading is None:
            return "exact"
        if shed := self._shed(column, path):
            return "estimate" if shed.how == "sampled" else "incomplete"
        request = self._request(column.measure)
        if self.place.kind == "functions" and column.measure != MEASURES[0]:
            request = Request(column.measure.metric, path, self.thread)
        completeness = self.reading.completeness.get(request, EXACT)
        if self.place.kind != "functions":
            return completeness.status
        if any(one.where in (path, "") for one in completeness.missing):
            return "incomplete"
        return "exact" if completeness.interval is None else "estimate"

    def _request(self, measure: Measure) -> Request:
        """What is measured for a column."""
        if self.place.kind == "callers":
            return Request(CALLERS, self.place.path, self.thread)
        return self._of_module(measure)

    def _growth(self, before: Reading, now: Reading, measure: Measure) -> Mapping[str, float]:
        old, new = self._totals(before, measure), self._totals(now, measure)
        if old is None or new is None:
            return {}
        if self.place.kind == "functions":
            # What was not measured yet at the beginning has not grown for as long as the others.
            new = {path: total for path, total in new.items() if path in old}
        # An estimate may turn out to have been too high.
        return {path: max(total - old.get(path, 0), 0) for path, total in new.items()}

    def _totals(self, reading: Reading, measure: Measure) -> Mapping[str, float] | None:
        """The totals by path; nothing when it was not measured then."""
        if self.place.kind == "functions" and measure != MEASURES[0]:
            values: object = self._one_by_one(reading, measure)
        elif self.place.kind == "modules" and measure != MEASURES[0]:
            return None  # of a module, only some functions are measured
        else:
            values = reading.values.get(self._request(measure))
        if not isinstance(values, dict):
            return None
        if self.place.kind == "modules":
            return {f"/Code/{self.module}": sum(values.values())}
        return values

    def _one_by_one(self, reading: Reading, measure: Measure) -> dict[str, int | float] | None:
        """What is known of the functions that are measured one by one; nothing when none is."""
        found: dict[str, int | float] = {}
        is_measured = False
        for request, values in reading.values.items():
            if (request.metric, request.thread) == (measure.metric, self.thread):
                is_measured = True
                found.update(values if isinstance(values, dict) else {})
        return found if is_measured else None

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


def _cost(share: float) -> str:
    """What measuring would cost, in less than the width of a column."""
    if share >= 0.995:
        return "cost>99%"
    return f"cost {share:.0%}" if share >= 0.005 else "cost <1%"
