"""The view of `weft top`: the resource tree, a table of functions, a histogram.

The event loop draws and listens to keys. Whatever touches the target happens in one thread beside
it, see :mod:`weft.ui.watcher`.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from rich.console import Group
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.coordinate import Coordinate
from textual.events import Key
from textual.widgets import DataTable, Footer, Input, Static, Tree

from weft.base.numbers import printable, shortened
from weft.export.metrics import draw
from weft.model.completeness import Status
from weft.ui.board import MEASURES, NAME, Board
from weft.ui.live import header
from weft.ui.source import LATENCY, Request, Source
from weft.ui.watcher import Failed, Listed, Opened, Read, Watcher, Weaving

__all__ = ["Top"]

_TREE_WIDTH = 18
_WIDE_TREE = 32
_WIDE_SCREEN = 110
_LATENCY_HEIGHT = 9
_NUMBER_WIDTH = 9
_FEWEST_NAME = 14
_USUAL_NAME, _NAME_STEP = 40, 10
"""How wide names are at least where there is room, and by how much that changes."""
_MOST_IN_TREE = 500
_MOST_NOTES = 2
_TICK = 0.2
_TERMINAL = 0

_KEYS = (
    ("Tab", "between the tree and the table"),
    ("Enter", "one step down: modules, functions, callers"),
    ("Esc", "one step back; closes this, too"),
    ("Up Down", "choose a row"),
    ("/", "search by name"),
    ("s", "sort by the next column"),
    ("r", "sort the other way round"),
    ("c", "calls"),
    ("t", "time, with all that is called"),
    ("b", "basic blocks: the own work"),
    ("l", "latency of the chosen function"),
    ("q", "leave the target as it was"),
)
_KEY_WIDTH = 9
_HELP = (
    'In the tree, Enter on a thread narrows all numbers to it, on "all" widens them again. Rates '
    'and "each" (time of a call) are of the last interval, the others since weft began to measure; '
    '"time %" is of one thread\'s time. Times and blocks are measured of the functions on the '
    'screen. ~ is an estimate; too hot: not within the budget, and "cost" is how much of the '
    "program's time it would take."
)


_NICER = 10
"""By how much drawing is nicer than all else."""


@dataclass(frozen=True, slots=True)
class Node:
    """What stands at a place in the tree."""

    kind: str
    name: str = ""
    module: str = ""


class Top(App[None]):
    """Watches one target. Ends when the person wants, and has left the target then."""

    TITLE = "weft top"
    ENABLE_COMMAND_PALETTE = False
    CSS = f"""
    #header, #crumbs {{ height: 1; }}
    #status {{ height: auto; min-height: 1; max-height: 3; }}
    #header {{ background: $primary; color: $text; }}
    #crumbs {{ color: $text-muted; }}
    #notes, #help {{ height: auto; display: none; }}
    #tree {{ width: {_TREE_WIDTH}; padding: 0; }}
    #tree, #table {{ scrollbar-size-vertical: 1; }}
    #table {{ height: 1fr; }}
    #latency {{ height: {_LATENCY_HEIGHT}; display: none; border-top: solid $primary; }}
    #search {{ height: 1; border: none; padding: 0; display: none; }}
    """
    # On a narrow screen the last ones are cut.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q,ctrl+c", "leave", "Quit", key_display="q"),
        *(Binding(one.key, f"measure('{one.metric}')", one.word.capitalize()) for one in MEASURES),
        Binding("l", "latency", "Latency"),
        Binding("s", "sort", "Sort"),
        Binding("r", "reverse", "Reverse", show=False),
        Binding("slash", "search", "Search", key_display="/"),
        Binding("escape,backspace", "up", "Back", show=False),
    ]

    def __init__(
        self, source: Source, interval: float = 1.0, *, lets_others_first: bool = False
    ) -> None:
        """``lets_others_first``: where processors are scarce, drawing waits for the target."""
        super().__init__()
        self._source = source
        self._lets_others_first = lets_others_first
        self.board = Board()
        self._watcher = Watcher(source, interval, self.post_message)
        self._has_hung_up = False
        self._running_loop: asyncio.AbstractEventLoop | None = None
        self._signal_number: int | None = None
        self._began: float | None = None
        self._weaving: tuple[Request, int, float] | None = None
        self._header = Static(id="header")
        self._tree: Tree[Node] = Tree("target", id="tree")
        self._crumbs = Static(id="crumbs")
        self._table: DataTable[Text] = DataTable(id="table", cursor_type="row", cell_padding=0)
        self._latency = Static(id="latency")
        self._help = Static(id="help", markup=False)
        self._notes = Static(id="notes")
        self._status = Static(id="status")
        place = "a part of a name; Enter keeps it, Esc drops it"
        self._search = Input(id="search", placeholder=place)
        self._shown_columns: list[str] = []
        self._cells: list[list[Text]] = []
        """What the table is to show."""
        self._shown_cells: list[list[Text]] = []
        """What it shows, which matters where it is on the screen only."""
        self._shown_paths: list[str] = []
        self._shown_notes: list[Text] = []
        self._said = Text()

    @property
    def fault(self) -> BaseException | None:
        """What went wrong in weft itself, for the command to report."""
        return self._watcher.fault

    @property
    def has_ended(self) -> bool:
        """Whether the target has ended."""
        return self.board.reading is not None and bool(self.board.reading.end)

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield self._header
        with Horizontal():
            yield self._tree
            with Vertical():
                yield self._crumbs
                yield self._table
                yield self._latency
        yield self._help
        yield self._notes
        yield self._status
        yield self._search
        yield Footer()

    def on_mount(self) -> None:
        """Begin."""
        tree = self._tree
        tree.show_root = False
        tree.guide_depth = 2
        self._code = tree.root.add("Code", Node("code"), expand=True)
        self._threads = tree.root.add("Threads", Node("threads"), expand=True)
        self._threads.add_leaf("all", Node("thread"))
        self._table.focus()
        self._say("looking at the program")
        self._running_loop = asyncio.get_running_loop()
        if self._signal_number is not None:
            self.end_by(self._signal_number)
        if os.isatty(_TERMINAL):
            threading.Thread(target=self._await_hang_up, daemon=True).start()
        self.set_interval(_TICK, self._tick)
        self.watch(self._table, "scroll_y", self._refresh_rows)
        self._work()

    def on_unmount(self) -> None:
        """Have the thread beside end, whatever the reason is."""
        self._watcher.leave()

    @work(thread=True, exit_on_error=False)
    def _work(self) -> None:
        if self._lets_others_first:
            # Not this thread, which may have the target stand still; so it had to begin first.
            _be_nice(threading.main_thread())
        self._watcher.run()
        if self._has_hung_up:
            # Textual waits for ever to write to a terminal that is gone; the target was left.
            os._exit(128 + signal.SIGHUP)

    def _await_hang_up(self) -> None:
        """End when the terminal is gone.

        The kernel sends a signal then only where the terminal is the one that controls the process:
        not to a command that something else has given a terminal, which died.
        """
        terminal = select.poll()
        terminal.register(_TERMINAL, 0)  # a hang-up is told unasked
        terminal.poll()
        self.end_by(signal.SIGHUP)

    def end_by(self, number: int) -> None:
        """Leave the target because of a signal, which may have come before there is anything."""
        self._signal_number = number
        if self._running_loop is None:
            return
        if number == signal.SIGHUP:
            self._has_hung_up = True
            self._watcher.leave()
        else:
            self._running_loop.call_soon_threadsafe(self.action_leave)

    def _tell(self) -> None:
        """Say what is wanted now. Of a target that has ended, all stays as it is."""
        if self.has_ended:
            return
        self._watcher.want(self.board.wanted())

    # What it tells.

    def on_opened(self, message: Opened) -> None:
        """Begin with the program itself."""
        self.board.modules = message.modules
        for module in message.modules:
            self._code.add(_label(module), Node("module", module))
        self._open(message.modules[0])

    def on_listed(self, message: Listed) -> None:
        """Put the functions of a module below it."""
        for node in self._code.children:
            if node.data and node.data.name == message.module and not node.children:
                for name in message.functions[:_MOST_IN_TREE]:
                    node.add_leaf(_label(name), Node("function", name, message.module))
                more = len(message.functions) - _MOST_IN_TREE
                if more > 0:
                    node.add_leaf(f"… {more:,} more", Node("more"))

    def on_weaving(self, message: Weaving) -> None:
        """Show that something is being woven, for as long as it takes."""
        self._weaving = None
        if message.request is not None:
            self._weaving = (message.request, message.count, time.monotonic())
        self._say(message.note, "yellow")

    def on_failed(self, message: Failed) -> None:
        """Say what cannot be done, and do without it."""
        self._weaving = None
        error = message.error
        text = error.what + (f": {error.why}" if error.why else "")
        if error.advice:
            text += f"; try: {error.advice}"
        if not self.has_ended:  # then it is clear why
            self._say(text, "red")
        if message.request is not None:
            self.board.drop(message.request)
            self._changed()

    def on_read(self, message: Read) -> None:
        """Show the new values."""
        if self.has_ended:
            return  # the last values stay
        self.board.note(message.reading, is_early=message.is_early)
        if self._began is None:
            self._began = message.reading.time
        if message.reading.end:
            self._weaving = None
            self._say(f"{message.reading.end}; these are the last values. q quits", "yellow")
        self._show_threads(message.reading.threads)
        self._changed()
        self.call_after_refresh(self._watcher.go_on)

    def on_left(self) -> None:
        """End: nothing of weft is in the target any more."""
        self.exit()

    # What the person does.

    def on_tree_node_expanded(self, event: Tree.NodeExpanded[Node]) -> None:
        """Look for the functions of a module when they are to be seen."""
        node = event.node.data
        if node and node.kind == "module" and not event.node.children:
            self._watcher.list_functions(node.name)

    def on_tree_node_selected(self, event: Tree.NodeSelected[Node]) -> None:
        """Go to a module or a function, or narrow everything to a thread."""
        node = event.node.data
        if node is None:
            return
        if node.kind == "module":
            self._open(node.name)
        elif node.kind == "function":
            if node.module != self.board.module:
                self.board.open_module(node.module)
            self.board.open_callers(f"/Code/{node.module}/{node.name}")
            self._moved()
        elif node.kind == "thread":
            self.board.thread = node.name
            self._moved()
        elif node.kind == "more":
            self._say("the table has them all: / searches it")

    def on_data_table_row_selected(self) -> None:
        """Go one step down."""
        path = self._selected()
        if path and self.board.enter(path):
            self._moved()

    def action_up(self) -> None:
        """Close the help, or go one step back."""
        if self._help.display:
            self._help.display = False
            return
        left = self.board.place.path
        if self.board.leave():
            self._moved(left)

    def action_measure(self, metric: str) -> None:
        """Turn a metric on or off."""
        self.board.toggle(metric)
        self._changed()

    def action_latency(self) -> None:
        """Show the latency of the chosen function, or hide it when it is the one."""
        path = self._selected()
        if path is None or path.count("/") < 3:
            self.board.latency = ""
        else:
            self.board.latency = "" if path == self.board.latency else path
        self._changed()

    def action_sort(self) -> None:
        """Sort by the next column."""
        self.board.sort_by_next()
        self._changed()

    def action_reverse(self) -> None:
        """Sort the other way round."""
        self.board.is_reversed = not self.board.is_reversed
        self._changed()

    def action_search(self) -> None:
        """Let a part of a name be typed."""
        field = self._search
        field.value = self.board.search
        field.display = True
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show what matches so far."""
        if self._search.display:
            self.board.search = event.value
            self._show()

    def on_input_submitted(self) -> None:
        """Keep what was searched for."""
        self._search.display = False
        self._table.focus()

    def on_key(self, event: Key) -> None:
        """Drop what was searched for."""
        if event.key == "escape" and self._search.display:
            event.stop()
            event.prevent_default()
            self._search.display = False
            self.board.search = ""
            self._table.focus()
            self._show()

    def action_help(self) -> None:
        """Show or hide what the keys do."""
        self._help.update(_help_for(self.size.width))
        self._help.display = not self._help.display

    def action_leave(self) -> None:
        """Leave the target, then end."""
        self._weaving = None
        self._say("leaving the target")
        self._watcher.leave()

    def on_resize(self) -> None:
        """Use the room there is."""
        is_wide = self.size.width >= _WIDE_SCREEN
        self._tree.styles.width = _WIDE_TREE if is_wide else _TREE_WIDTH
        if self._help.display:
            self._help.update(_help_for(self.size.width))
        self.call_after_refresh(self._show)

    def _open(self, module: str) -> None:
        self.board.open_module(module)
        self._moved()

    def _moved(self, path: str = "") -> None:
        """Show another place, with the row of a path chosen or else the first."""
        self._table.move_cursor(row=0)
        self._changed()
        if path in self._shown_paths:
            self._table.move_cursor(row=self._shown_paths.index(path))

    def _changed(self) -> None:
        """Show what there is now, and have measured what is on the screen then."""
        self._show()
        self.board.look_at(self._shown_paths[row] for row in self._rows_on_screen())
        self._tell()

    def _selected(self) -> str | None:
        """The path of the row that is chosen, or of the function that is chosen in the tree."""
        node = self._tree.cursor_node
        if self._tree.has_focus and node and node.data and node.data.kind == "function":
            return f"/Code/{node.data.module}/{node.data.name}"
        row = self._table.cursor_row
        return self._shown_paths[row] if 0 <= row < len(self._shown_paths) else None

    # What is on the screen.

    def _say(self, text: str, style: str = "") -> None:
        said = Text(printable(text), style=style)
        if said != self._said:
            self._said = said
            self._status.update(said)

    def _tick(self) -> None:
        """Show that what takes long goes on."""
        if self._weaving:
            request, count, since = self._weaving
            where = request.path.removeprefix("/Code/")
            if count > 1:
                where = f"{count:,} functions of {where.removesuffix('/*')}"
            self._say(f"weaving {request.metric} into {where}: {time.monotonic() - since:.1f} s")

    def _show(self) -> None:
        self._show_header()
        self._show_table()
        self._show_latency()
        self._show_notes()

    def _show_header(self) -> None:
        reading = self.board.reading
        line = header(
            self._source.target,
            reading.time - (self._began or 0.0) if reading else 0.0,
            self._source.budget,
            reading.overhead if reading else None,
            self.size.width,
        )
        self._header.update(line, layout=False)

    def _show_threads(self, names: tuple[str, ...]) -> None:
        known = {node.data.name: node for node in self._threads.children if node.data}
        for name in names:
            if name not in known:
                self._threads.add_leaf(_label(name), Node("thread", name))
        for name, node in known.items():
            if name and name not in names and name != self.board.thread:
                node.remove()

    def _show_table(self) -> None:
        table, board = self._table, self.board
        rows, count = board.rows()
        self._show_crumbs(len(rows), count)
        columns = board.columns()
        room = table.size.width - _NUMBER_WIDTH * len(columns) - 1
        # Numbers far from the names that they belong to are hard to read.
        longest = max((len(row.name) for row in rows), default=0)
        needed = max(_USUAL_NAME, -(-(longest + 1) // _NAME_STEP) * _NAME_STEP)
        name_width = max(_FEWEST_NAME, min(room, needed))
        first = {"modules": "module", "functions": "function", "callers": "caller"}
        titles = [(NAME, first[board.place.kind]), *((one.title, one.title) for one in columns)]
        arrow = "▲" if board.is_reversed != (board.sorted_by == NAME) else "▼"
        labels = [shown + (arrow if key == board.sorted_by else "") for key, shown in titles]
        layout = [str(name_width), *labels]
        chosen = self._selected_row_path()
        if layout != self._shown_columns:
            self._shown_columns = layout
            # Clearing it scrolls it, and then nothing is to be written.
            self._cells, self._shown_cells = [], []
            table.clear(columns=True)
            for number, label in enumerate(labels):
                width = name_width if number == 0 else _NUMBER_WIDTH
                text = Text(label, justify="left" if number == 0 else "right")
                table.add_column(text, width=width)
        cells = [
            [
                Text(shortened(row.name, name_width)),
                *(
                    _number(
                        column.text(value, too_hot),
                        "exact" if value is None else status,
                    )
                    for column, value, status, too_hot in zip(
                        columns, row.values, row.statuses, row.too_hot, strict=True
                    )
                ),
            ]
            for row in rows
        ]
        self._shown_paths = [row.path for row in rows]
        self._show_cells(cells)
        if chosen in self._shown_paths and self._shown_paths.index(chosen) != table.cursor_row:
            table.move_cursor(row=self._shown_paths.index(chosen))

    def _selected_row_path(self) -> str | None:
        """The row that the cursor has to stay on: at the top it stays at the top."""
        row = self._table.cursor_row
        return self._shown_paths[row] if 0 < row < len(self._shown_paths) else None

    def _show_cells(self, cells: list[list[Text]]) -> None:
        """Change what has changed, so that nothing flickers and no key is lost."""
        table, shown = self._table, self._shown_cells
        for new in cells[len(shown) :]:
            table.add_row(*new, key=str(table.row_count))
            shown.append(new)
        for number in range(len(shown) - 1, len(cells) - 1, -1):
            table.remove_row(str(number))
            shown.pop()
        self._cells = cells
        self._refresh_rows()

    def _rows_on_screen(self) -> range:
        first = max(0, int(self._table.scroll_y))
        # Where nothing is laid out yet, there is no height.
        last = first + max(1, self._table.size.height - 1)
        return range(min(first, len(self._shown_paths)), min(last, len(self._shown_paths)))

    def _refresh_rows(self) -> None:
        """Write the rows that are on the screen: it takes long, and the others can wait."""
        rows = self._rows_on_screen()
        for row in range(rows.start, min(rows.stop + 1, len(self._cells))):
            new, old = self._cells[row], self._shown_cells[row]
            for column, (cell, before) in enumerate(zip(new, old, strict=True)):
                if cell != before:
                    self._table.update_cell_at(Coordinate(row, column), cell)
            self._shown_cells[row] = new

    def _show_crumbs(self, shown: int, count: int) -> None:
        board = self.board
        names = [place.path.removeprefix("/Code/") for place in board.places]
        where = " > ".join(["modules", *(name.rpartition("/")[2] for name in names if name)])
        if board.place.kind == "callers":
            where += " > callers"
        kind = board.place.kind
        what = f"{count:,} {kind}" if shown == count else f"{shown:,} of {count:,} {kind}"
        parts = [where, what]
        if board.thread:
            parts.append(f"thread {board.thread}")
        if board.search:
            parts.append(f"/{board.search}")
        line = shortened("   ".join(parts), max(1, self._crumbs.size.width))
        self._crumbs.update(Text(line), layout=False)

    def _show_latency(self) -> None:
        pane = self._latency
        pane.display = bool(self.board.latency)
        if not self.board.latency:
            return
        histogram = self.board.histogram()
        width = max(1, self._table.size.width)
        focus = Request(LATENCY, self.board.latency, self.board.thread).focus
        if histogram is None or not histogram.count:
            partly = self.board.reading.partly if self.board.reading else {}
            shed = partly.get((LATENCY, self.board.latency))
            what = shed.effect if shed else "no call has ended yet"
            pane.update(Text.assemble((LATENCY, "bold"), "  ", (focus, "cyan"), f"\n{what}"))
            return
        bars = _LATENCY_HEIGHT - 1 - draw.SECTION_HEAD
        width = max(1, self._table.size.width)
        pane.update(Group(*draw.picture(LATENCY, focus, histogram, "ns", width, bars)))

    def _show_notes(self) -> None:
        reading, width = self.board.reading, self.size.width
        lines = [draw.shed_note(one, width) for one in (reading.shed if reading else ())]
        for request, completeness in reading.completeness.items() if reading else ():
            lines += draw.notes(request.metric, request.focus, None, completeness, width)
        if len(lines) > _MOST_NOTES:
            rest = f"… and {len(lines) - _MOST_NOTES} more notes"
            lines[_MOST_NOTES:] = [Text(rest, style="yellow")]
        # What is laid out anew is drawn anew, the table included.
        if lines != self._shown_notes:
            self._shown_notes = lines
            self._notes.display = bool(lines)
            self._notes.update(Group(*lines))


def _help_for(width: int) -> str:
    """What the keys do, in two columns where these fit; the rest is wrapped on the screen."""
    lines = [f"{key:{_KEY_WIDTH}}{what}" for key, what in _KEYS]
    widest = max(map(len, lines)) + 2
    if width >= 2 * widest:
        half = -(-len(lines) // 2)
        pairs = zip(lines[:half], [*lines[half:], ""], strict=False)
        lines = [f"{left:{widest}}{right}".rstrip() for left, right in pairs]
    return "\n".join([*lines, _HELP])


def _be_nice(thread: threading.Thread) -> None:
    """Have a thread run after others where processors are scarce."""
    # Its priority may be out of reach, or the lowest already.
    with suppress(OSError):
        if thread.native_id is not None:
            nice = os.getpriority(os.PRIO_PROCESS, thread.native_id) + _NICER
            os.setpriority(os.PRIO_PROCESS, thread.native_id, nice)


def _number(text: str, status: Status) -> Text:
    """A number, marked when it is an estimate or incomplete."""
    sign, style = draw.MARKS[status]
    return Text(sign + text, style=style, justify="right")


def _label(name: str) -> Text:
    """A name as it is: those in brackets are no markup."""
    return Text(printable(name))
