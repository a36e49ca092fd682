"""Older spellings of the language, and what is written today.

`weft fmt` turns one into the other. Both are read, and mean the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lark import Token

from weft.mdl.lexer import COMMENTS

__all__ = ["POINTS", "respelled"]

POINTS = {
    "exit": "return",
    "call": "calls",
    "block": "blocks",
    "edge": "edges",
    "loop": "loops",
    "insn": "insns",
    "load": "loads",
    "store": "stores",
    "syscall": "syscalls",
}
"""Other names of kinds of points."""

_TIMERS = {
    "STARTWALLTIMER": ("start", ""),
    "STOPWALLTIMER": ("stop", ""),
    "STARTPROCESSTIMER": ("start", "cpu"),
    "STOPPROCESSTIMER": ("stop", "cpu"),
}
_ENDS = ("SEMICOLON", "LBRACE", "RBRACE", "BEGIN")


def respelled(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens of a text without mistakes in today's spelling; comments stay."""
    return list(_with_semicolons(_in_new_words(tokens)))


def _in_new_words(tokens: Sequence[Token]) -> Iterator[Token]:
    position = 0
    in_code = False
    own_clock = ""
    while position < len(tokens):
        token = tokens[position]
        in_code = (in_code or token.type == "BEGIN") and token.type != "END"
        if token.type == "BASE":
            own_clock = "cpu" if tokens[position + 2].type == "PROCESSTIMER" else ""
        rest = [one.type for one in tokens[position + 1 : position + 4]]
        if in_code and token.type in _TIMERS and rest[:1] + rest[2:] == ["LPAR", "RPAR"]:
            action, clock = _TIMERS[token.type]
            name = tokens[position + 2]
            yield Token.new_borrow_pos(action.upper(), action, token)
            yield name
            if clock != own_clock:
                yield Token.new_borrow_pos(clock.upper(), clock, name)
            position += 4
            continue
        if in_code and token in ("+=", "-=") and tokens[position + 1] == "1":
            after = tokens[position + 2].type
            if after in ("SEMICOLON", "RBRACE", "END", "ELSE"):
                sign = "++" if token == "+=" else "--"
                yield Token.new_borrow_pos("STEP", sign, token)
                position += 2
                continue
        if not in_code and token.type == "DOT" and tokens[position + 1] in POINTS:
            kind = tokens[position + 1]
            yield token
            yield Token.new_borrow_pos("NAME", POINTS[kind], kind)
            position += 2
            continue
        yield token
        position += 1


def _with_semicolons(tokens: Iterator[Token]) -> Iterator[Token]:
    """Add those that may be left out, before a closing brace and at the end of code."""
    last: Token | None = None
    in_code = False
    for token in tokens:
        if token.type == "BEGIN":
            in_code = last is None or last.type != "KEY"
        if in_code and token.type in ("END", "RBRACE", "ELSE"):
            assert last is not None
            if last.type not in _ENDS:
                yield Token.new_borrow_pos("SEMICOLON", ";", last)
        if token.type == "END":
            in_code = False
        if token.type not in COMMENTS:
            last = token
        yield token
