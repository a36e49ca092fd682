"""Draws the pictures of the documentation: ``python -m docs.pictures``, in the repository's root.

A picture is a function that returns SVG, in :data:`PICTURES` under the name of its file. They are
drawn from given data, so that they change only when what they show does.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from tests.measurements import TARGET, Measurement, growing, measurements
from weft.metrics.model import Measured, Sample
from weft.probes import Histogram
from weft.ui.live import view

FOLDER = Path(__file__).parent / "pictures"

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


PICTURES: dict[str, Callable[[], str]] = {"live.svg": live}


def main() -> None:
    """Draw all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw())


if __name__ == "__main__":
    main()
