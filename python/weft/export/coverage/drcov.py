"""The format of DynamoRIO's drcov, version 2: the blocks that were executed.

Lighthouse and others show it in disassemblers. A text that lists the modules, then a table of
fixed-size records: where a block begins behind the lowest address of its module (32 bits), its
bytes (16), and the number of the module (16).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from weft.errors import InvalidArgument
from weft.model.flow import Flow
from weft.tools.coverage import Coverage

_RECORD = struct.Struct("<IHH")
_LARGEST_SIZE = 0xFFFF
_LARGEST_OFFSET = 0xFFFF_FFFF


def write(file: BinaryIO, coverage: Coverage) -> None:
    """Write a coverage to a file."""
    flow = coverage.flow
    if not any(module.blocks for module in flow.modules):
        raise InvalidArgument(
            "drcov is about blocks, and of these nothing is known",
            "functions that the patch weaver has seen have no blocks",
            "take another format, or record without --weaver patch",
        )
    records = list(_records(flow))
    header = ["DRCOV VERSION: 2", "DRCOV FLAVOR: drcov"]
    header.append(f"Module Table: version 2, count {len(flow.modules)}")
    header.append("Columns: id, base, end, entry, path")
    for number, module in enumerate(flow.modules):
        base = module.bias + module.start
        end = base + module.size
        header.append(f"{number:3}, {base:#018x}, {end:#018x}, {0:#018x}, {module.path}")
    header.append(f"BB Table: {len(records)} bbs")
    text = "\n".join(header) + "\n"
    file.write(text.encode(errors="surrogateescape"))
    file.write(b"".join(records))


def _records(flow: Flow) -> Iterator[bytes]:
    for number, module in enumerate(flow.modules):
        for start, end in zip(*flow.rows.extents(number), strict=True):
            offset, left = start - module.start, end - start
            # What a program has made itself may be too far away for the format.
            while left > 0 and 0 <= offset <= _LARGEST_OFFSET:
                size = min(left, _LARGEST_SIZE)
                yield _RECORD.pack(offset, size, number)
                offset, left = offset + size, left - size
