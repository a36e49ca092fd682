"""The view of `weft top`, as a person sees it and as keys change it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from click.testing import CliRunner
from textual.message import Message
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from tests.watched import PER_SECOND, GivenSource, under_load
from weft.cli import main
from weft.errors import InvalidArgument, TargetGone
from weft.ui.board import Board
from weft.ui.source import CALLERS, LATENCY, Reading, Request
from weft.ui.top import Top
from weft.ui.watcher import Opened, Read, Watcher

SMALL, LARGE = (80, 24), (120, 40)
QUICK = 0.1
CALLS = Request("calls", "/Code/redis-server/*")
TIMES = {Request("inclusive_time", f"/Code/redis-server/{name}") for name in PER_SECOND}

Steps = Callable[[Top, "Pilot[None]"], Awaitable[None]]


def watch(source: GivenSource, steps: Steps, size: tuple[int, int] = SMALL) -> Top:
    """Run the view until the steps are done."""

    async def run() -> Top:
        app = Top(source, interval=QUICK)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: column(app, 1)[:1] not in ([], ["-"]))
            await steps(app, pilot)
        return app

    return asyncio.run(run())


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Wait for what the thread beside the event loop is to bring about."""
    for _ in range(200):
        if condition():
            return
        await asyncio.sleep(QUICK / 2)
    raise TimeoutError(screen(pilot.app))


def screen(app: object) -> str:
    assert isinstance(app, Top)
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def table(app: Top) -> DataTable[object]:
    found: DataTable[object] = app.query_one(DataTable)
    return found


def column(app: Top, number: int) -> list[str]:
    rows = table(app)
    return [str(rows.get_row_at(row)[number]) for row in range(rows.row_count)]


def titles(app: Top) -> list[str]:
    return [str(one.label) for one in table(app).ordered_columns]


def status(app: Top) -> str:
    return str(app.query_one("#status", Static).content)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_it_begins_with_the_calls_of_the_program(size: tuple[int, int]) -> None:
    source = GivenSource()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: column(app, 1)[:2] == ["253k", "211k"])
        assert titles(app) == ["function", "calls/s▼", "calls"]
        assert column(app, 0)[:2] == ["dictFind", "zmalloc"]
        assert source.begun == {CALLS}
        await until(pilot, lambda: "q Quit" in screen(app))
        shown = screen(app)
        for text in ("redis-server", "pid 4242", "libc.so.6", "io_thd_1", "15 functions", "q Quit"):
            assert text in shown
        lines = shown.splitlines()
        assert len(lines) == size[1]
        assert all(len(line) == size[0] for line in lines)

    watch(source, steps, size)


def test_nothing_but_one_thread_beside_the_event_loop_touches_the_target() -> None:
    source = GivenSource()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("t", "l", "enter", "tab", "down", "enter", "q")
        await until(pilot, lambda: source.is_closed)

    watch(source, steps)
    assert len(source.used_by) == 1
    assert "MainThread" not in source.used_by


def test_metrics_are_turned_on_and_off_by_keys() -> None:
    source = GivenSource()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("t")
        await until(pilot, lambda: len(source.begun) == 1 + 15)
        assert source.begun == {CALLS, *TIMES}, "what is on the screen is measured"
        wanted = ["function", "calls/s▼", "calls", "time %", "time", "each"]
        assert titles(app) == wanted
        await until(pilot, lambda: column(app, 3)[0] == "4.1%")
        assert column(app, 5)[0] == "162 ns"
        assert "162 ns" in screen(app), "all of it is on the small screen"
        await pilot.press("c")
        assert titles(app) == ["function", "time %▼", "time"]
        assert source.begun == {CALLS, *TIMES}, "which functions are called has to be known"
        await until(pilot, lambda: column(app, 0)[0] == "aeProcessEvents")
        await pilot.press("t")
        await until(pilot, lambda: not source.begun)

    watch(source, steps)


def test_rows_are_sorted_by_any_column_and_either_way() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("s")
        assert titles(app) == ["function", "calls/s", "calls▼"]
        await pilot.press("s")
        assert titles(app) == ["function▲", "calls/s", "calls"]
        names = column(app, 0)
        assert names == sorted(names)
        await pilot.press("r")
        assert titles(app) == ["function▼", "calls/s", "calls"]
        assert column(app, 0) == names[::-1]
        await pilot.press("s", "r")
        assert titles(app) == ["function", "calls/s▲", "calls"]
        await until(pilot, lambda: column(app, 0)[0] == "freeClient")

    watch(GivenSource(), steps)


def test_the_chosen_function_stays_chosen_when_the_order_changes() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: column(app, 1)[0] == "253k")
        await pilot.press("down", "down")
        assert app._selected() == "/Code/redis-server/sdsnewlen"
        await pilot.press("r")
        assert app._selected() == "/Code/redis-server/sdsnewlen"
        assert table(app).cursor_row == 12

    watch(GivenSource(), steps)


def test_from_modules_to_functions_to_callers_and_back() -> None:
    source = GivenSource()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        callers = Request(CALLERS, "/Code/redis-server/dictFind")
        await until(pilot, lambda: callers in source.begun)
        await until(pilot, lambda: len(column(app, 1)) == 3 and column(app, 1)[0] == "168k")
        assert titles(app)[0] == "caller"
        assert column(app, 0) == [
            "redis-server/lookupKey",
            "redis-server/setGenericCommand",
            "0x7f31c0de",
        ]
        assert "modules > redis-server > dictFind > callers" in screen(app)
        await pilot.press("enter")  # and who calls the caller
        above = Request(CALLERS, "/Code/redis-server/lookupKey")
        await until(pilot, lambda: above in source.begun and callers not in source.begun)
        await pilot.press("escape", "backspace")
        await until(pilot, lambda: source.begun == {CALLS})
        await pilot.press("escape")
        assert titles(app)[0] == "module"
        assert app._selected() == "/Code/redis-server"
        assert sorted(column(app, 0)) == ["libc.so.6", "libm.so.6", "redis-server"]
        assert column(app, 1)[1:] == ["-", "-"], "they are not measured"
        await pilot.press("escape")  # there is nothing above
        await pilot.press("down", "enter")
        await until(pilot, lambda: source.begun == {Request("calls", "/Code/libc.so.6/*")})
        await until(pilot, lambda: "malloc" in column(app, 0))

    watch(source, steps)


def test_a_caller_without_a_name_has_no_callers() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await until(pilot, lambda: len(column(app, 1)) == 3)
        await pilot.press("down", "down", "enter")
        assert app.board.place.path == "/Code/redis-server/dictFind"

    watch(GivenSource(), steps)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_the_latency_of_the_chosen_function(size: tuple[int, int]) -> None:
    source = GivenSource()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: column(app, 1)[0] == "253k")
        await pilot.press("down", "l")
        request = Request(LATENCY, "/Code/redis-server/zmalloc")
        await until(pilot, lambda: request in source.begun)
        await until(pilot, lambda: "p99" in screen(app))
        assert "█" in screen(app)
        assert "/Code/redis-server/zmalloc" in screen(app)
        await pilot.press("l")
        await until(pilot, lambda: source.begun == {CALLS})
        await until(pilot, lambda: "p99" not in screen(app))

    watch(source, steps, size)


def test_everything_is_narrowed_to_a_thread_in_the_tree() -> None:
    source = GivenSource()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("tab", "end", "enter")
        await until(pilot, lambda: source.begun == {Request("calls", CALLS.path, "io_thd_1")})
        await until(pilot, lambda: column(app, 1)[:1] == ["63.2k"])
        assert "thread io_thd_1" in screen(app)
        await pilot.press("up", "up", "up", "enter")
        await until(pilot, lambda: source.begun == {CALLS})

    watch(source, steps)


def test_functions_in_the_tree() -> None:
    source = GivenSource()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("tab", "home", "down", "down", "enter")
        await until(pilot, lambda: source.begun == {Request("calls", "/Code/libc.so.6/*")})
        await until(pilot, lambda: "├ free" in screen(app))
        await pilot.press("down", "down", "l")
        latency = Request(LATENCY, "/Code/libc.so.6/malloc")
        await until(pilot, lambda: latency in source.begun)
        await pilot.press("enter")
        await until(pilot, lambda: Request(CALLERS, latency.path) in source.begun)

    watch(source, steps, LARGE)


def test_searching() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"cron")
        await until(pilot, lambda: sorted(column(app, 0)) == ["clientsCron", "serverCron"])
        await pilot.press("enter")
        assert "/cron" in screen(app)
        await pilot.press("escape")
        await until(pilot, lambda: len(column(app, 0)) == 15)
        await pilot.press("slash", *"q", "escape")
        await until(pilot, lambda: len(column(app, 0)) == 15)
        assert table(app).has_focus

    watch(GivenSource(), steps)


def test_a_module_of_very_many_functions() -> None:
    names = [f"f{number}" for number in range(20_000)]
    source = GivenSource(functions_of={"redis-server": names})

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(column(app, 1)) and column(app, 1)[0] == "2.0M")
        assert column(app, 0)[0] == "f19999"
        assert "200 of 20,000 functions" in screen(app)
        await pilot.press("slash", *"f777", "enter")
        matching = sum("f777" in name for name in names)
        await until(pilot, lambda: len(column(app, 0)) == matching)

    watch(source, steps, LARGE)


def test_the_budget_and_what_was_shed() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "1.3% of 2%" in screen(app))
        assert "budget ██████▌░░░" in screen(app)
        await until(pilot, lambda: "measured 10% of the time: an estimate" in screen(app))

    watch(under_load(), steps)


def test_what_cannot_be_measured_is_said_and_done_without() -> None:
    source = GivenSource()
    source.errors["inclusive_time"] = InvalidArgument("no", "because", "something else")
    source.errors[LATENCY] = InvalidArgument("never")

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("t")
        await until(pilot, lambda: status(app) == "no: because; try: something else")
        await until(pilot, lambda: titles(app) == ["function", "calls/s▼", "calls"])
        await pilot.press("l")
        await until(pilot, lambda: status(app) == "never")
        assert not app.board.latency
        assert source.begun == {CALLS}

    watch(source, steps)


def test_what_could_not_be_woven_is_said() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "3 points could not be woven" in status(app))

    watch(GivenSource(note="3 points could not be woven, the first is tiny: no room"), steps)


def test_the_last_values_stay_when_the_target_ends() -> None:
    source = GivenSource()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: column(app, 1)[0] == "253k")
        source.end_text = "it has ended with code 7"
        await until(pilot, lambda: "it has ended with code 7" in status(app))
        values = column(app, 2)
        passed = source.second
        await until(pilot, lambda: source.second > passed + 3)
        assert column(app, 2) == values
        await pilot.press("t", "r", "r", "t")  # nothing can be measured any more
        assert column(app, 2) == values
        assert "it has ended with code 7" in screen(app)
        assert app.has_ended

    watch(source, steps)


def test_errors_while_reading_are_said() -> None:
    class Broken(GivenSource):
        def modules(self) -> list[str]:
            raise TargetGone("the target is gone", "it was killed")

    async def run() -> None:
        source = Broken()
        app = Top(source, interval=QUICK)
        async with app.run_test(size=SMALL) as pilot:
            await until(pilot, lambda: status(app) == "the target is gone: it was killed")
            await pilot.press("q")
            await until(pilot, lambda: source.is_closed)

    asyncio.run(run())


def test_a_fault_of_weft_itself_ends_the_view_and_is_kept() -> None:
    class Faulty(GivenSource):
        def functions(self, module: str) -> list[str]:
            raise RuntimeError("a fault")

    source = Faulty()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("tab", "home", "down", "enter")
        await until(pilot, lambda: source.is_closed)

    app = watch(source, steps)
    assert isinstance(app.fault, RuntimeError)


def test_the_help_lists_every_key() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        await until(pilot, lambda: "one step back" in screen(app))
        await pilot.press("question_mark")
        await until(pilot, lambda: "one step back" not in screen(app))

    watch(GivenSource(), steps)


def test_escape_closes_the_help_and_goes_nowhere() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        await until(pilot, lambda: "one step back" in screen(app))
        await pilot.press("escape")
        await until(pilot, lambda: "one step back" not in screen(app))
        assert titles(app)[0] == "function"
        await pilot.press("escape")
        await until(pilot, lambda: titles(app)[0] == "module")

    watch(GivenSource(), steps)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_help_is_wrapped_between_words_and_in_columns(width: int) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        await until(pilot, lambda: "one step back" in screen(app))
        lines = screen(app).splitlines()
        assert all(len(line) == width for line in lines)
        keys = [line for line in lines if line.startswith(("Tab ", "Enter ", "Esc ", "Up Down "))]
        assert len(keys) == 4
        [last] = [line for line in lines if "leave the target as it was" in line]
        assert last.startswith("q ") == (width < 106)

    watch(GivenSource(), steps, (width, 40))


@pytest.mark.parametrize(("width", "most"), [(60, 60), (80, 80), (200, 130)])
def test_numbers_stand_near_their_names(width: int, most: int) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "calls/s" in screen(app))
        heading = next(line for line in screen(app).splitlines() if "calls/s" in line)
        assert heading.index("calls/s") < most
        await until(pilot, lambda: "? Help  q Quit" in screen(app))

    watch(GivenSource(), steps, (width, 24))


def test_it_gets_along_with_a_tiny_screen() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("t", "l")
        await pilot.resize_terminal(40, 12)
        await until(pilot, lambda: len(screen(app).splitlines()) == 12)
        await pilot.resize_terminal(*LARGE)
        await until(pilot, lambda: len(screen(app).splitlines()) == 40)

    watch(under_load(), steps)


def test_the_command_needs_a_terminal() -> None:
    result = CliRunner().invoke(main, ["top", "1"])
    assert result.exit_code == 2
    assert "needs a terminal" in result.output
    result = CliRunner().invoke(main, ["top", "1", "--budget", "much"])
    assert "is no budget" in result.output


def test_a_second_reading_of_the_same_moment_leaves_the_rates() -> None:
    board = Board()
    before, now, again = Reading(1.0), Reading(2.0), Reading(2.0)
    for reading in (before, now, again):
        board.note(reading)
    assert board.readings == (before, again)


def test_what_is_wanted_already_brings_no_reading() -> None:
    """A view says after each reading what it wants: readings come at their intervals all the same.

    One that comes early tells no rates.
    """
    source = GivenSource()
    are_early: list[bool] = []

    def see(message: Message) -> None:
        if isinstance(message, Opened):
            watcher.want(frozenset({CALLS}))
        if isinstance(message, Read):
            are_early.append(message.is_early)
            watcher.want(frozenset({CALLS}))
            watcher.go_on()
            if len(are_early) == 5:
                watcher.leave()

    watcher = Watcher(source, QUICK, see)
    watcher.run()
    assert watcher.fault is None
    assert are_early == [False] * 5


def test_what_is_newly_measured_has_no_rate_yet() -> None:
    """It was not measured for the whole interval."""
    old, new = (Request("inclusive_time", f"/Code/a.out/{name}") for name in ("old", "new"))
    board = Board(modules=["a.out"], measures={"calls", "inclusive_time"})
    board.open_module("a.out")
    calls = Request("calls", "/Code/a.out/*")
    counts: dict[str, float] = dict.fromkeys((old.path, new.path), 0)
    board.note(Reading(1.0, {calls: dict(counts), old: {old.path: 0.0}}))
    grown: dict[str, float] = dict.fromkeys(counts, 1000)
    board.note(Reading(2.0, {calls: grown, old: {old.path: 0.5}, new: {new.path: 0.0001}}))
    titles = [column.title for column in board.columns()]
    rows = {row.name: dict(zip(titles, row.values, strict=True)) for row in board.rows()[0]}
    assert rows["old"]["time %"] == 0.5
    assert rows["old"]["each"] == 0.0005
    assert rows["new"]["time"] == 0.0001
    assert rows["new"]["time %"] is None and rows["new"]["each"] is None
