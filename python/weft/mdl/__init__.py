"""MDL, the language in which metrics are written: text in, what to weave where out."""

from __future__ import annotations

from weft.mdl.diagnostics import Diagnostic, render
from weft.mdl.loader import Library, load
from weft.mdl.one_liners import parse_one_liner
from weft.mdl.parser import parse, parse_code, parse_where

__all__ = [
    "Diagnostic",
    "Library",
    "load",
    "parse",
    "parse_code",
    "parse_one_liner",
    "parse_where",
    "render",
]
