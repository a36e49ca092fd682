"""CSV: one row per sample, the columns named in the first."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import BinaryIO

from weft.export.metrics.values import number, sample_unit, trust
from weft.model.measured import Measured, TargetFacts

COLUMNS = ("time", "metric", "focus", "value", "rate", "unit", "status", "low", "high", "missing")


def write(file: BinaryIO, target: TargetFacts, metrics: Sequence[Measured], seconds: float) -> None:
    """Write the samples, metric by metric; of a histogram how many values, of a map the sum."""
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for metric in metrics:
        for sample in metric.history():
            what = (sample.time, metric.name, metric.focus)
            how_much = (number(sample.value), sample.rate, sample_unit(metric))
            worth = (*trust(sample.completeness), sample.completeness.summary())
            rows.writerow((*what, *how_much, *worth))
    file.write(text.getvalue().encode(errors="surrogateescape"))
