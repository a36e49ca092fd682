"""CSV: one row per sample, the columns named in the first."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import BinaryIO

from weft.export.values import number
from weft.metrics.model import Measured, TargetFacts

COLUMNS = ("time", "metric", "focus", "value", "rate", "unit")


def write(file: BinaryIO, target: TargetFacts, metrics: Sequence[Measured], seconds: float) -> None:
    """Write the samples, metric by metric; of a histogram how many values, of a map the sum."""
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for metric in metrics:
        for sample in metric.history():
            value = number(sample.value)
            rows.writerow((sample.time, metric.name, metric.focus, value, sample.rate, metric.unit))
    file.write(text.getvalue().encode(errors="surrogateescape"))
