"""Draws the pictures of the documentation: ``python -m docs.pictures``, in the repository's root.

A picture is a function that returns SVG, in :data:`PICTURES` under the name of its file. They are
drawn from given data, so that they change only when what they show does. Those of commands are
drawn from what the commands have shown on a terminal, which ``docs/record.py`` records.
"""

from __future__ import annotations

import asyncio
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.covered import covered
from tests.measurements import TARGET, Measurement, growing, measurements
from tests.watched import under_load
from weft.export.coverage.text import show
from weft.export.profile import json as profile_json
from weft.export.profile.weighed import by_function
from weft.export.stacks import flame
from weft.model.measured import Measured, Sample
from weft.model.values import Histogram
from weft.ui.live import view
from weft.ui.top import Top
from weft.ui.watcher import Read

FOLDER = Path(__file__).parent / "pictures"
RECORDINGS = Path(__file__).parent / "recordings"
PROFILE = Path(__file__).parent.parent / "tests" / "golden" / "profile" / "words.json"

WIDTH, HEIGHT = 100, 30
SECONDS = 40


def live() -> str:
    """Return the live table of a server under load."""
    return live_table([_under_load(metric, number) for number, metric in enumerate(measurements())])


def live_table(metrics: Sequence[Measured]) -> str:
    """Return the live table of these metrics."""
    screen = Console(
        record=True,
        width=WIDTH,
        height=HEIGHT,
        force_terminal=True,
        color_system="truecolor",
        file=io.StringIO(),
    )
    screen.print(view(TARGET, metrics, SECONDS, 0.02, 0.013, width=WIDTH, height=HEIGHT))
    return screen.export_svg(title="weft attach", unique_id="weft-live")


def _under_load(metric: Measurement, phase: int) -> Measurement:
    """The same total, reached in waves."""
    weights = [2 + math.sin(second / (3 + phase) + phase) for second in range(SECONDS)]
    end = metric.value
    if isinstance(end, dict):
        total: float = sum(end.values())
    else:
        total = end.count if isinstance(end, Histogram) else end
    sums = [sum(weights[: second + 1]) / sum(weights) * total for second in range(SECONDS)]
    samples = [Sample(sample.time, end, sample.change, sample.seconds) for sample in growing(sums)]
    return replace(metric, samples=samples)


def top() -> str:
    """Return the view of `weft top` of a server under load."""
    return asyncio.run(_top())


async def _top() -> str:
    # Time passes when it is told to, so that it does not matter how often the view looks.
    source = under_load()
    source.step, source.second = 0, SECONDS - 1
    app = Top(source, interval=3600.0)
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        await pilot.press("t")
        await _until(lambda: app.board.reading is not None and len(app.board.reading.values) > 1)
        source.second = SECONDS
        app.post_message(Read(source.read()))
        await pilot.pause()
        await pilot.press("s", "s", *["down"] * 3, "l")
        await _until(lambda: app.board.histogram() is not None)
        await pilot.pause()
        return app.export_screenshot(title="weft top")


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def coverage() -> str:
    """Return the summary of what a test has executed."""
    screen = Console(
        record=True,
        width=WIDTH,
        height=HEIGHT,
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
        file=io.StringIO(),
    )
    show(screen, covered())
    return screen.export_svg(title="weft cov", unique_id="weft-cov")


def flame_graph() -> str:
    """Return the flame graph of the program in the tutorial of profiles."""
    return flame.svg(by_function(profile_json.read(str(PROFILE))))


def terminal(file: Path) -> str:
    """Return what a command has shown on a terminal."""
    lines = Text.from_ansi(file.read_text())
    screen = Console(
        record=True,
        width=max(WIDTH, max(line.cell_len for line in lines.split())),
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
        file=io.StringIO(),
    )
    screen.print(lines, soft_wrap=True)
    return screen.export_svg(title=f"weft {file.stem}", unique_id=f"weft-{file.stem}")


PICTURES: dict[str, Callable[[], str]] = {
    **{
        f"weft-{file.stem}.svg": partial(terminal, file)
        for file in sorted(RECORDINGS.glob("*.ansi"))
    },
    "coverage.svg": coverage,
    "flame.svg": flame_graph,
    "live.svg": live,
    "top.svg": top,
}


def main() -> None:
    """Draw all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw())


if __name__ == "__main__":
    main()
