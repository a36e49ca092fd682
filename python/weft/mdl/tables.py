"""The parser's tables: made from the grammar once, and then kept in the user's cache.

Making them takes longer than all else that is done before a metric is measured.
"""

from __future__ import annotations

import contextlib
import marshal
import sys
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import lark
from lark import Lark
from lark.grammar import Rule
from lark.lexer import TerminalDef

from weft.mdl import kept

__all__ = ["grammar"]

STARTS = ["document", "fragment", "code", "statements"]


@cache
def grammar() -> Lark:
    """Return the tables that ``grammar.lark`` stands for."""
    text = files("weft.mdl").joinpath("grammar.lark").read_text()
    versions = f"{lark.__version__} {sys.version}"
    path = kept.place("grammar", sha256(f"{versions}\n{text}".encode()).hexdigest()[:32])
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError, KeyError):
        return _load(path)
    made = Lark(
        text,
        parser="lalr",
        lexer="basic",
        start=STARTS,
        propagate_positions=True,
        maybe_placeholders=False,
    )
    with contextlib.suppress(OSError, ValueError):
        _store(path, made)
    return made


def _load(path: Path) -> Lark:
    return Lark.load(marshal.loads(kept.read(path)))


def _store(path: Path, made: Lark) -> None:
    data, memo = made.memo_serialize([TerminalDef, Rule])
    kept.write(path, marshal.dumps({"data": data, "memo": memo}))
