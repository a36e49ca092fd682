"""Texts in MDL for tests, and syntax trees written down so that a change can be read.

``python -m tests.mdl`` writes the trees of the golden files anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

from weft.mdl import parse
from weft.mdl.passes.imports import LIBRARY

GOLDEN = sorted(Path(__file__).with_name("golden").glob("mdl/*.mdl"))
SHIPPED = sorted(LIBRARY.glob("*.mdl"))


def dump(node: object) -> str:
    """Write a tree down: one node or value on a line; what is empty is left out."""
    return "\n".join(_dump(node, "", "")) + "\n"


def _dump(node: object, indent: str, label: str) -> Iterator[str]:
    if isinstance(node, tuple):
        if all(isinstance(one, str) for one in node):
            yield f"{indent}{label}{', '.join(node)}"
            return
        yield f"{indent}{label}".rstrip()
        for one in node:
            yield from _dump(one, indent + "  ", "")
    elif is_dataclass(node):
        yield f"{indent}{label}{type(node).__name__}"
        for field in fields(node):
            value = getattr(node, field.name)
            if field.name not in ("span", "file") and value not in ("", (), -1, False):
                yield from _dump(value, indent + "  ", f"{field.name}: ")
    else:
        yield f"{indent}{label}{node!r}"


if __name__ == "__main__":
    for path in GOLDEN:
        path.with_suffix(".tree").write_text(dump(parse(path.read_text())[0]))
