"""Parquet files of traces: one table each, written as it is read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, BinaryIO

from weft.base.extras import needed

if TYPE_CHECKING:
    from weft.tools.trace import Trace, View

__all__ = ["write"]


def write(trace: Trace, view: View, file: BinaryIO) -> int:
    """Write one table of a trace; returns its number of rows.

    The key ``weft`` of the file's metadata holds the notes of the trace and the modules, as JSON.
    """
    with needed("arrow", "writing Parquet"):
        import pyarrow
        import pyarrow.parquet
    about = {
        "notes": trace.notes,
        "modules": [
            {"path": file.path, "start": file.start, "end": file.end, "offset": file.offset}
            for file in trace.modules
        ],
    }
    table = trace.table(view)
    schema = table.schema.with_metadata({"weft": json.dumps(about)})
    rows = 0
    with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in table.batches(1 << 20):
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows
