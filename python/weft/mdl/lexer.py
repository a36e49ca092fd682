"""Cuts an MDL text into tokens: the terminals of ``grammar.lark``, and comments."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from lark import Token
from lark.lexer import PatternStr

from weft.mdl.ast import Span
from weft.mdl.diagnostics import MOST_ERRORS, Diagnostic, problem
from weft.mdl.tables import grammar
from weft.mdl.words import span_of

__all__ = ["COMMENTS", "Lexer", "general_type"]

COMMENTS = ("DOC", "COMMENT")


def general_type(token: Token) -> str:
    """Return what a keyword is where the grammar expects none: a name, or a ``$variable``."""
    words = _words()
    if words.terminals.get(token) != token.type:
        return token.type
    return "VARIABLE" if token.startswith("$") else "NAME"


@dataclass(frozen=True)
class _Words:
    """How to find tokens: a pattern for all of them, and the terminals of the keywords."""

    pattern: re.Pattern[str]
    terminals: dict[str, str]


@cache
def _words() -> _Words:
    keywords, others = {}, []
    for terminal in grammar().terminals:
        value = terminal.pattern.value
        if isinstance(terminal.pattern, PatternStr) and value.lstrip("$").isidentifier():
            keywords[value] = terminal.name
        elif terminal.name != "ERROR":
            others.append(terminal)
    # Of two signs that begin alike, the longer one is meant; and comments begin like signs.
    others.sort(key=lambda terminal: (-terminal.pattern.max_width, -len(terminal.pattern.value)))
    alternatives = (f"(?P<{one.name}>{one.pattern.to_regexp()})" for one in others)
    return _Words(re.compile("|".join(alternatives)), keywords)


class Lexer:
    """The tokens of a text; what is none is reported and left out."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.diagnostics: list[Diagnostic] = []
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]

    def tokens(self, start: int = 0) -> Iterator[Token]:
        """Find all tokens from an offset on, comments among them."""
        words = _words()
        position = start
        while position < len(self.text):
            match = words.pattern.match(self.text, position)
            if match is None:
                token, position = self._garbage(position)
                if token is not None:
                    yield token
                continue
            position = match.end()
            kind = match.lastgroup
            assert kind is not None
            if kind == "SPACE":
                continue
            value = match[0]
            if kind in ("NAME", "VARIABLE"):
                kind = words.terminals.get(value, kind)
            token = self.token(kind, match.start(), position)
            if kind == "COMMENT" and value.startswith("/*") and not value.endswith("*/", 2):
                hint = "end it with `*/`"
                self._report("MDL004", "this comment never ends", hint, span_of(token))
            yield token

    def token(self, kind: str, start: int, end: int) -> Token:
        """Return a piece of the text as a token."""
        line, column = self._place(start)
        end_line, end_column = self._place(end)
        return Token(
            kind,
            self.text[start:end],
            start_pos=start,
            line=line,
            column=column,
            end_line=end_line,
            end_column=end_column,
            end_pos=end,
        )

    def _garbage(self, start: int) -> tuple[Token | None, int]:
        """Report what no token begins with; a string without an end is still taken for one."""
        if self.text[start] == '"':
            end = self.text.find("\n", start)
            line = self.text[start : end if end >= 0 else None]
            # What most likely follows the string is not taken for a part of it.
            token = self.token("STRING", start, start + len(line.rstrip("; ,}\t\r")))
            hint = 'end it with `"` on the same line'
            self._report("MDL003", "this string never ends", hint, span_of(token))
            assert token.end_pos is not None
            return token, token.end_pos
        end = start + 1
        pattern = _words().pattern
        while end < len(self.text) and self.text[end] != '"' and not pattern.match(self.text, end):
            end += 1
        shown = ascii(self.text[start : min(end, start + 20)])[1:-1]
        hint = "leave it out, or put it into a string or a comment"
        span = span_of(self.token("GARBAGE", start, end))
        self._report("MDL002", f"`{shown}` means nothing in MDL", hint, span)
        return None, end

    def _place(self, position: int) -> tuple[int, int]:
        line = bisect_right(self._lines, position)
        return line, position - self._lines[line - 1] + 1

    def _report(self, code: str, message: str, hint: str, span: Span) -> None:
        if len(self.diagnostics) < MOST_ERRORS:
            self.diagnostics.append(problem(code, message, hint, self.file, span))
