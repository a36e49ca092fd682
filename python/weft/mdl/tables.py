"""The parser's tables: made from the grammar once, and then kept in the user's cache.

Making them takes longer than all else that is done before a metric is measured.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import stat
import sys
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import lark
from lark import Lark
from lark.grammar import Rule
from lark.lexer import TerminalDef

__all__ = ["grammar"]

STARTS = ["document", "fragment", "code", "statements"]


@cache
def grammar() -> Lark:
    """Return the tables that ``grammar.lark`` stands for."""
    text = files("weft.mdl").joinpath("grammar.lark").read_text()
    versions = f"{lark.__version__} {sys.version}"
    kept = _folder() / sha256(f"{versions}\n{text}".encode()).hexdigest()[:32]
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError, KeyError):
        return _load(kept)
    made = Lark(
        text,
        parser="lalr",
        lexer="basic",
        start=STARTS,
        propagate_positions=True,
        maybe_placeholders=False,
    )
    with contextlib.suppress(OSError, ValueError):
        _store(kept, made)
    return made


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "weft" / "grammar"


def _load(path: Path) -> Lark:
    with path.open("rb") as file:
        owner = os.fstat(file.fileno())
        # With sudo, the folder may be another user's, whose files must not be executed as root.
        if owner.st_uid != os.geteuid() or owner.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(path)
        return Lark.load(marshal.load(file))


def _store(path: Path, made: Lark) -> None:
    data, memo = made.memo_serialize([TerminalDef, Rule])
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another process that reads it meanwhile must find all of it, or nothing.
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_bytes(marshal.dumps({"data": data, "memo": memo}))
    draft.replace(path)
