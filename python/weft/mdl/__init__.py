"""MDL, the language in which metrics are written: text in, what to weave where out."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft.mdl.diagnostics import Diagnostic, render
from weft.mdl.loader import Library, load

if TYPE_CHECKING:
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

_HOMES = {
    "parse_one_liner": "weft.mdl.one_liners",
    **dict.fromkeys(["parse", "parse_code", "parse_where"], "weft.mdl.parser"),
}


if not TYPE_CHECKING:  # a checker would believe that everything is there

    def __getattr__(name: str) -> Any:
        """Load the parser when it is asked for: weft's own metrics are kept parsed."""
        if name not in _HOMES:
            raise AttributeError(f"module 'weft.mdl' has no attribute {name!r}")
        found = getattr(import_module(_HOMES[name]), name)
        globals()[name] = found
        return found
