"""What can be wrong with an MDL text, and how it is shown to its author."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from weft.mdl.ast import NOWHERE, Span

__all__ = [
    "CODES",
    "MOST_ERRORS",
    "Code",
    "Diagnostic",
    "did_you_mean",
    "has_errors",
    "problem",
    "render",
]

Severity = Literal["error", "warning"]

MOST_ERRORS = 100
"""How many mistakes of one text are reported: further ones are mostly echoes of the first."""

_WIDEST = 120
"""How much of a source line is shown: a file without line breaks must not flood a terminal."""


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of mistake: whether it is one at all, and what it means in one line."""

    severity: Severity
    meaning: str


CODES: dict[str, Code] = {
    # The text.
    "MDL001": Code("error", "something else is expected here"),
    "MDL002": Code("error", "a character that is no part of the language"),
    "MDL003": Code("error", "a string without an end"),
    "MDL004": Code("error", "a comment without an end"),
    "MDL005": Code("error", "the text, or a definition, ends too early"),
    "MDL006": Code("error", "nested too deep"),
    "MDL007": Code("error", "not a number, or one that is too large"),
    "MDL008": Code("warning", "a closing brace too many between definitions"),
    "MDL009": Code("warning", "an attribute that weft does not know"),
    "MDL010": Code("error", "something is said twice that can be said once"),
    "MDL011": Code("error", "a definition lacks what it is for"),
    "MDL012": Code("error", "a file that cannot be read"),
    # Names.
    "MDL020": Code("error", "two definitions have the same name"),
    "MDL021": Code("error", "no list or foreach variable has this name"),
    "MDL022": Code("error", "no constraint has this name"),
    "MDL023": Code("error", "no variable has this name here"),
    "MDL024": Code("error", "no $variable has this name"),
    "MDL025": Code("error", "two variables or fields have the same name"),
    # Types.
    "MDL030": Code("error", "a variable of this type cannot be set or added to like that"),
    "MDL031": Code("error", "`<<` into something that is no histogram"),
    "MDL032": Code("error", "a timer action on something that is no such timer"),
    "MDL033": Code("error", "keys do not fit the variable"),
    "MDL034": Code("error", "`emit` does not fit the record"),
    "MDL035": Code("error", "`postInsn` at a point that is no call"),
    "MDL036": Code("error", "a constraint does more than set its own variable"),
    "MDL037": Code("error", "a variable of this type cannot be read"),
    "MDL038": Code("error", "a built-in function has the wrong number of arguments"),
    "MDL039": Code("error", "a $variable lacks its index, or has one too many"),
    # Places.
    "MDL040": Code("error", "a foreach variable hides another one"),
    "MDL041": Code("error", "`$constraint` outside of a constraint"),
    "MDL042": Code("error", "an index that is out of range"),
    "MDL043": Code("error", "`$focus` outside of a metric"),
    "MDL044": Code("error", "no such kind of point"),
    "MDL045": Code("error", "a place cannot be used like that"),
    # Texts.
    "MDL046": Code("error", "a text where a number is needed"),
    # Imports.
    "MDL050": Code("error", "an imported file cannot be found"),
    "MDL051": Code("error", "files import each other in a circle"),
    # One-liners.
    "MDL060": Code("error", "not a one-liner: KIND FUNCTION { ... }"),
    "MDL061": Code("error", "a variable of a one-liner is used in two ways"),
    "MDL062": Code("error", "a one-liner measures nothing"),
}
"""Every code that a diagnostic can have. A code never changes its meaning."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Something that is wrong, or odd, with a text."""

    code: str
    """``MDL021``: a key of :data:`CODES`."""
    severity: Severity
    """A text with errors is not used; one with warnings is."""
    message: str
    """What is wrong."""
    hint: str = ""
    """What to do about it; may be empty."""
    file: str = "<text>"
    span: Span = NOWHERE

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{_location(self)}: {self.code}: {self.message}{hint}"


def problem(code: str, message: str, hint: str, file: str, span: Span) -> Diagnostic:
    """Return a diagnostic with the severity that its code has."""
    return Diagnostic(code, CODES[code].severity, message, hint, file, span)


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether the text cannot be used."""
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a hint that names what is most like ``name``, or ``otherwise`` if nothing is."""
    close = difflib.get_close_matches(name[:_WIDEST], sorted(set(known)), n=3, cutoff=0.6)
    if not close:
        return otherwise
    quoted = [f"`{one}`" for one in close]
    return f"did you mean {' or '.join(quoted)}?"


def render(diagnostic: Diagnostic, source: Sequence[str]) -> str:
    """Return the diagnostic with the line that it is about, underlined, and with its hint.

    ``source`` is its text, line by line.
    """
    heading = (
        f"{_location(diagnostic)}: {diagnostic.severity} {diagnostic.code}: {diagnostic.message}"
    )
    lines = [_printable(heading)]
    span = diagnostic.span
    if 1 <= span.line <= len(source):
        line = source[span.line - 1].rstrip("\r")
        first = min(max(span.column, 1), len(line) + 1)
        last = span.end_column if span.end_line == span.line else len(line.rstrip()) + 1
        start = max(0, first - 1 - _WIDEST // 2) if len(line) > _WIDEST else 0
        shown = _printable(line[start : start + _WIDEST])
        width = max(1, min(last, start + _WIDEST + 1) - first)
        margin = f"{span.line:>5} | "
        lines.append(margin + shown)
        lines.append(" " * (len(margin) - 2) + "| " + " " * (first - 1 - start) + "^" * width)
    if diagnostic.hint:
        lines.append(f" hint: {_printable(diagnostic.hint)}")
    return "\n".join(lines)


def _location(diagnostic: Diagnostic) -> str:
    if diagnostic.span == NOWHERE:
        return diagnostic.file
    return f"{diagnostic.file}:{diagnostic.span.line}:{diagnostic.span.column}"


def _printable(text: str) -> str:
    """Keep what would move the cursor, or cannot be encoded, away from terminals."""
    return "".join(
        " " if letter == "\t" else letter if letter.isprintable() else "\ufffd" for letter in text
    )
