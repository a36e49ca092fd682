"""A reader of drcov files, from what its authors say of the format.

https://dynamorio.org/page_drcov.html and DynamoRIO's ``drcov`` sources name the fields: a version,
a flavour, a table of modules whose columns have names, and a table of blocks, each a 32-bit offset
from the base of its module, a 16-bit size and a 16-bit number of the module, little-endian.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Drcov:
    modules: dict[int, dict[str, str]]
    """By id, what the columns say."""
    blocks: list[tuple[int, int, int]]
    """Module, offset, size."""


def read(data: bytes) -> Drcov:
    """Read a file, and fail where it is not what the format allows."""
    lines = _Lines(data)
    assert lines.next() == "DRCOV VERSION: 2"
    assert re.fullmatch(r"DRCOV FLAVOR: \S+", lines.next())
    table = re.fullmatch(r"Module Table: version 2, count (\d+)", lines.next())
    assert table
    names = lines.next().removeprefix("Columns: ").split(", ")
    assert names[:4] == ["id", "base", "end", "entry"] and names[-1] == "path"
    modules = {}
    for _ in range(int(table[1])):
        values = [value.strip() for value in lines.next().split(", ", len(names) - 1)]
        module = dict(zip(names, values, strict=True))
        assert int(module["base"], 16) <= int(module["end"], 16)
        modules[int(module["id"])] = module
    count = re.fullmatch(r"BB Table: (\d+) bbs", lines.next())
    assert count
    rest = data[lines.at :]
    assert len(rest) == 8 * int(count[1])
    blocks = [(number, offset, size) for offset, size, number in struct.iter_unpack("<IHH", rest)]
    for number, offset, size in blocks:
        module = modules[number]
        assert int(module["base"], 16) + offset + size <= int(module["end"], 16)
    return Drcov(modules, blocks)


class _Lines:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def next(self) -> str:
        end = self.data.index(b"\n", self.at)
        line = self.data[self.at : end].decode()
        self.at = end + 1
        return line
