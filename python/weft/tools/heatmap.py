"""A heat map of memory: which pages are touched when, as a picture.

Time goes from left to right, by the number of accesses; each row is a page, or several neighbours,
of those that were touched at all. The brighter, the more often. A tool of one file over the reader,
like :mod:`weft.tools.cachesim`.
"""

from __future__ import annotations

import html
import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.tools.trace import Trace

__all__ = ["HeatMap", "heat_map", "to_html", "to_png"]

_COLOURS = ((13, 8, 60), (114, 20, 110), (205, 64, 70), (250, 150, 40), (252, 250, 180))
"""From seldom to often; nothing is black."""


@dataclass(frozen=True)
class HeatMap:
    """How often each row of pages was touched in each stretch of time."""

    page: int
    """The bytes of a page."""
    accesses: int
    rows: tuple[tuple[int, int], ...]
    """The first address of each row, and the one behind its last."""
    counts: tuple[tuple[int, ...], ...]
    """For each row, how often it was touched in each stretch."""


def heat_map(
    trace: Trace,
    *,
    width: int = 800,
    height: int = 400,
    page: int = 4096,
    threads: Sequence[int] = (),
) -> HeatMap:
    """Count the accesses of a trace by page and time. Needs ``weft[arrow]``.

    An access that goes beyond its page counts for the page that it begins in.
    """
    shift = max(page.bit_length() - 1, 0)
    chosen = [total for total in trace.threads if not threads or total.thread in threads]
    total = max(sum(thread.accesses for thread in chosen), 1)
    columns = max(min(width, total), 1)
    counts: dict[int, list[int]] = {}
    first = 0
    for batch in trace.accesses(threads):
        for number, column, count in _counted(batch, first, shift, columns, total):
            counts.setdefault(number, [0] * columns)[column] += count
        first += batch.num_rows
    pages = sorted(counts)
    per_row = max(-(-len(pages) // height), 1)
    rows, sums = [], []
    for start in range(0, len(pages), per_row):
        group = pages[start : start + per_row]
        rows.append((group[0] << shift, (group[-1] + 1) << shift))
        sums.append(tuple(map(sum, zip(*(counts[number] for number in group), strict=True))))
    return HeatMap(1 << shift, first, tuple(rows), tuple(sums))


def _counted(
    batch: object, first: int, shift: int, columns: int, total: int
) -> list[tuple[int, int, int]]:
    """Pages, columns and how often, for the accesses of one batch."""
    import pyarrow
    import pyarrow.compute as compute

    assert isinstance(batch, pyarrow.RecordBatch)
    pages = compute.shift_right(batch.column("address"), pyarrow.scalar(shift, pyarrow.uint64()))
    places = pyarrow.array(range(first, first + batch.num_rows), pyarrow.int64())
    column = compute.min_element_wise(
        compute.divide(compute.multiply(places, columns), total), columns - 1
    )
    table = pyarrow.table([pages, column], names=["page", "column"])
    grouped = table.group_by(["page", "column"]).aggregate([([], "count_all")])
    found = zip(*(grouped.column(name).to_pylist() for name in grouped.column_names), strict=True)
    order = [grouped.column_names.index(name) for name in ("page", "column", "count_all")]
    return [
        (row[order[0]], row[order[1]], row[order[2]]) for row in found if row[order[0]] is not None
    ]


def _pixels(heat: HeatMap, scale: int) -> tuple[int, int, bytes]:
    top = log1p(max((max(row) for row in heat.counts), default=0)) or 1.0
    palette = [_colour(step / 255) for step in range(256)]
    lines = []
    for row in heat.counts:
        line = b"".join(
            palette[round(log1p(count) / top * 255)] if count else b"\0\0\0" for count in row
        )
        lines += [line] * scale
    width = len(heat.counts[0]) if heat.counts else 1
    return width, len(lines) or 1, b"".join(b"\0" + line for line in lines or [b"\0\0\0"])


def _colour(share: float) -> bytes:
    place = share * (len(_COLOURS) - 1)
    low = min(int(place), len(_COLOURS) - 2)
    rest = place - low
    pairs = zip(_COLOURS[low], _COLOURS[low + 1], strict=True)
    return bytes(round(a + (b - a) * rest) for a, b in pairs)


def to_png(heat: HeatMap, least_height: int = 160) -> bytes:
    """Draw it as a PNG; few rows are drawn higher."""
    scale = max(least_height // max(len(heat.counts), 1), 1)
    width, height, pixels = _pixels(heat, scale)

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(pixels, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def to_html(heat: HeatMap, title: str) -> str:
    """Draw it as a page of HTML that needs nothing else; pointing at a row shows its addresses."""
    scale = max(160 // max(len(heat.counts), 1), 1)
    places = ",".join(f"[{start},{end},{sum(row)}]" for (start, end), row in _sums(heat))
    picture = b64encode(to_png(heat)).decode()
    return _PAGE.format(
        title=html.escape(title),
        accesses=f"{heat.accesses:,}",
        pages=f"{heat.page:,}",
        picture=picture,
        places=places,
        scale=scale,
    )


def _sums(heat: HeatMap) -> list[tuple[tuple[int, int], tuple[int, ...]]]:
    return list(zip(heat.rows, heat.counts, strict=True))


_PAGE = """<!doctype html>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ background: #111; color: #ddd; font: 14px system-ui, sans-serif; margin: 2em }}
img {{ image-rendering: pixelated; display: block; cursor: crosshair }}
output {{ font-family: monospace; display: block; margin: 0.5em 0; min-height: 1.2em }}
</style>
<h1>{title}</h1>
<p>{accesses} accesses, from left to right; each row is one or more neighbouring pages of
{pages} bytes. The brighter, the more often.</p>
<output id="place"></output>
<img id="map" src="data:image/png;base64,{picture}" alt="heat map of memory">
<script>
const places = [{places}];
document.getElementById("map").addEventListener("mousemove", event => {{
  const row = places[Math.floor(event.offsetY / {scale})];
  if (row) document.getElementById("place").textContent =
    "0x" + row[0].toString(16) + " to 0x" + row[1].toString(16) + ": " + row[2] + " accesses";
}});
</script>
"""
