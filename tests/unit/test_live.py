"""The live table and the summary, as a person sees them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from tests.measurements import (
    LATENCY,
    SHED,
    START,
    TARGET,
    Measurement,
    distribution,
    growing,
    log2,
    measurements,
)
from weft.base.numbers import shortened
from weft.export.metrics import draw, text
from weft.model.measured import Interval, Missing, Shed, TargetFacts
from weft.ui.live import LiveTable, line, view

GOLDEN = Path(__file__).parent / "golden"


def screen(width: int = 80, height: int = 24) -> Console:
    return Console(record=True, width=width, height=height, force_terminal=True, file=io.StringIO())


def shown(picture: RenderableType, width: int = 80, height: int = 24) -> list[str]:
    console = screen(width, height)
    console.print(picture)
    return [line.rstrip() for line in console.export_text().splitlines()]


def golden(name: str) -> list[str]:
    return (GOLDEN / name).read_text().splitlines()


def test_the_table_on_a_small_terminal() -> None:
    picture = view(TARGET, measurements(), 7.0, 0.02, 0.013, width=80, height=24)
    assert shown(picture) == golden("live-80x24.txt")


def test_the_table_on_a_large_terminal() -> None:
    picture = view(TARGET, measurements(), 3607.0, None, 0.013, width=120, height=50)
    assert shown(picture, 120, 50) == golden("live-120x50.txt")


@pytest.mark.parametrize("width", [30, 40, 79, 80, 200])
@pytest.mark.parametrize("height", [6, 12, 24, 60])
@pytest.mark.parametrize("count", [0, 1, 6, 40])
def test_the_table_fits_every_terminal(width: int, height: int, count: int) -> None:
    metrics = (measurements() * 7)[:count]
    picture = view(TARGET, metrics, 7.0, 0.02, 0.5, width=width, height=height)
    lines = shown(picture, width, height)
    assert max(map(len, lines)) <= width
    # A terminal lower than the notes and a row cannot show them; the display cuts it.
    assert len(lines) <= max(height - 1, 8)


def test_rows_that_do_not_fit_are_counted() -> None:
    metrics = [Measurement(f"m{number}", number) for number in range(40)]
    lines = shown(view(TARGET, metrics, 1.0, width=80, height=24))
    assert len(lines) == 23
    assert lines[-1] == "… and 21 more"
    assert "m18" in lines[-2]


def test_much_shedding_is_counted() -> None:
    metrics = [Measurement(f"m{number}", 1, shed=SHED) for number in range(7)]
    lines = shown(view(TARGET, metrics, 1.0, width=80, height=24))
    assert lines[4] == "… and 4 more notes"


def test_what_was_removed_is_marked() -> None:
    shed = Shed("calls", "", "removed", START, 0.0, "incomplete since 0:03")
    missing = (Missing("time", "", "too costly; incomplete since 0:03", None, "--budget 5%"),)
    metric = Measurement("calls", 7, shed=shed, missing=missing)
    lines = shown(view(TARGET, [metric], 1.0, width=80, height=24))
    what = "missing time: too costly; incomplete since 0:03; try --budget 5%"
    assert lines[1] == shortened(f"! calls: incomplete: {what}", 80)
    assert " !7 " in lines[4]


def test_a_pipe_gets_a_line_for_each_metric() -> None:
    file = io.StringIO()
    table = LiveTable(Console(file=file, width=80), TARGET, 0.02)
    table.update(measurements(), 7.0, 0.013)
    assert file.getvalue().splitlines() == golden("lines.txt")
    table.finish(TARGET, measurements(), 7.0)
    assert "\x1b" not in file.getvalue()


def test_lines_can_be_searched_even_if_names_are_odd() -> None:
    odd = Measurement("calls", 1, focus="/Code/a\nb/f", samples=growing([1]))
    assert (
        line(odd, 0.25)
        == "time=0.2 metric=calls focus=/Code/a?b/f total=1 rate=1 unit=calls status=exact"
    )


def test_a_terminal_gets_the_table_and_then_the_summary() -> None:
    file = io.StringIO()
    console = Console(file=file, width=80, height=24, force_terminal=True)
    table = LiveTable(console, TARGET, 0.02)
    table.update(measurements(), 6.0, 0.013)
    table.update(measurements(), 7.0, 0.013)
    assert "budget" in file.getvalue()
    before = len(file.getvalue())
    table.finish(TARGET, measurements(), 7.0)
    after = file.getvalue()[before:]
    assert "\x1b[?25h" in after, "the cursor is shown again"
    assert "120,123" in after


def test_the_summary() -> None:
    file = io.BytesIO()
    target = TargetFacts(TARGET.pid, TARGET.program, TARGET.command, 3)
    text.write(file, target, measurements(), 7.0)
    assert file.getvalue().decode().splitlines() == golden("summary.txt")


def test_the_interval_of_a_histogram_is_about_its_count() -> None:
    interval = Interval(14_000, 17_000, 0.99)
    latency = Measurement("latency", LATENCY, "histogram", "ns", interval=interval)
    lines = shown(text.summary(TARGET, [latency], 7.0, 80))
    assert "~ latency: from 14.0k to 17.0k with 99% confidence" in [line.strip() for line in lines]


def test_the_summary_fits_a_terminal() -> None:
    lines = shown(text.summary(TARGET, measurements(), 7.0, 80))
    assert max(map(len, lines)) <= 80
    assert any("…" in line and "lock_wait" in line for line in lines)


def test_the_summary_of_nothing() -> None:
    assert shown(text.summary(TARGET, [], 0.0, 80))[0] == "redis-server  pid 4242  0 ns"


def test_sparklines_are_relative_to_the_highest() -> None:
    assert draw.sparkline([0, 1, 2, 7], 10) == "▁▂▃█"
    assert draw.sparkline([5, 0, 0], 2) == "▁▁"
    assert draw.sparkline([-1, 1], 5) == "▁█"
    assert draw.sparkline([1], 0) == draw.sparkline([], 5) == ""


def test_bars_are_in_eighths() -> None:
    assert draw.bar(0.5, 10) == "█████"
    assert draw.bar(0.55, 10) == "█████▌"
    assert draw.bar(0.0001, 10) == "▏"
    assert draw.bar(0, 10) == ""
    assert draw.bar(7, 3) == "███"


def test_a_histogram_joins_what_has_few_values() -> None:
    metric = Measurement("latency", LATENCY, kind="histogram", unit="ns")
    rows = [line.plain[:17] for line in draw.section(metric, 80, 4)[2:]]
    assert rows == [
        " 4.1 us … 32.8 us",
        "32.8 us … 65.5 us",
        "65.5 us …  131 us",
        " 131 us …  2.1 ms",
    ]


def test_a_histogram_of_very_many_buckets_is_drawn_at_once() -> None:
    steps = distribution(*((number, number, 1) for number in range(65_536)))
    metric = Measurement("sizes", steps, kind="histogram", unit="bytes")
    lines = draw.section(metric, 80, 10)
    assert 6 <= len(lines) - draw.SECTION_HEAD <= 10


def test_open_buckets_have_one_end() -> None:
    histogram = distribution((-(1 << 63), 99, 1), (100, 199, 4), (200, (1 << 63) - 1, 2))
    metric = Measurement("sizes", histogram, kind="histogram", unit="bytes")
    rows = [line.plain[:13] for line in draw.section(metric, 40, 9)[2:]]
    assert rows == ["      …  99 B", "100 B … 199 B", "200 B …      "]


def test_an_empty_histogram_has_no_bars() -> None:
    metric = Measurement("latency", log2(first=3), kind="histogram", unit="ns")
    lines = [line.plain for line in draw.section(metric, 80, 5)]
    assert lines == ["latency", "p50 0 ns  p90 0 ns  p99 0 ns  p999 0 ns  mean 0 ns"]
