"""Parquet: one row per sample, and the totals in the file's own notes.

The rows have the columns of the CSV format. The key ``weft`` of the file's metadata holds the rest
of the document as JSON: the target, the exact totals and what was shed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import BinaryIO

from weft.base.extras import needed
from weft.base.numbers import readable
from weft.export.metrics.document import document
from weft.export.metrics.values import number, sample_unit, trust
from weft.model.measured import Measured, TargetFacts


def check() -> None:
    """Find out now whether Parquet can be written."""
    with needed("arrow", "writing Parquet"):
        import pyarrow.parquet  # noqa: F401


def write(file: BinaryIO, target: TargetFacts, metrics: Sequence[Measured], seconds: float) -> None:
    """Write the samples, metric by metric; of a histogram how many values, of a map the sum."""
    with needed("arrow", "writing Parquet"):
        import pyarrow
        import pyarrow.parquet
    about = document(target, metrics, seconds)
    del about["series"]
    name = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    schema = pyarrow.schema(
        [
            ("time", pyarrow.timestamp("us", tz="UTC")),
            ("metric", name),
            ("focus", name),
            ("value", pyarrow.float64()),
            ("rate", pyarrow.float64()),
            ("unit", name),
            ("status", name),
            ("low", pyarrow.float64()),
            ("high", pyarrow.float64()),
            ("missing", name),
        ],
        metadata={"weft": json.dumps(about)},
    )
    rows = [
        {
            "time": round(sample.time * 1e6),
            "metric": readable(metric.name),
            "focus": readable(metric.focus),
            "value": float(number(sample.value)),
            "rate": sample.rate,
            "unit": readable(sample_unit(metric)),
            **dict(zip(("status", "low", "high"), trust(sample.completeness), strict=True)),
            "missing": readable(sample.completeness.summary()),
        }
        for metric in metrics
        for sample in metric.history()
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), file)
