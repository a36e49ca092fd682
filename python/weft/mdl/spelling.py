"""Older spellings of the language, and what is written today.

`weft fmt` turns one into the other, in metrics and in snippets. Both are read, and mean the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lark import Token

from weft.mdl.lexer import COMMENTS

__all__ = ["POINTS", "respelled", "respelled_snippet"]

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
        is_argument = token == "arg" and rest == ["LPAR", "NUMBER", "RPAR"]
        if in_code and is_argument:
            yield Token.new_borrow_pos("VARIABLE", "$arg", token)
            yield Token.new_borrow_pos("LSQB", "[", token)
            yield tokens[position + 2]
            yield Token.new_borrow_pos("RSQB", "]", tokens[position + 2])
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


_WORDS = {
    "result": "$return",
    "caller": "$caller",
    "thread": "$thread",
    "address": "$address",
    "frame": "$frame",
    "access.address": "$memory",
    "access.size": "$size",
    "syscall.number": "$syscall",
    "now": "$time",
    "ticks": "$ticks",
    "cpu": "$cpu",
}
_DECLARATION = re.compile(r"\s*(?:counter|timer|histogram|map|ring|local|mark)\s+\w")
_STATEMENT = re.compile(r"(?:#|//)[^\n]*|/\*.*?\*/|[;\n{}]", re.DOTALL)
_PARTS = re.compile(
    r"\b(?P<timer>(?:start|stop)\s+\w+\s+cpu)\b"
    r"|\b(?P<exit>at\s+)exit\b"
    r"|\barg\(\s*(?P<arg>\d+)\s*\)"
    r"|\breg\(\s*(?P<reg>\w+)\s*\)"
    r"|(?P<step>\s*[+-]=\s*1(?=\s*$))"
    r"|(?<![\w.$])(?P<word>[a-z]+(?:\.[a-z]+)?)(?![\w.(])"
)


def respelled_snippet(text: str) -> str:
    """Return a snippet without mistakes in today's spelling; nothing else in it changes."""
    written, position = [], 0
    for match in _STATEMENT.finditer(text):
        written += [_statement(text[position : match.start()]), match[0]]
        position = match.end()
    return "".join([*written, _statement(text[position:])])


def _statement(text: str) -> str:
    # The words of declarations are names of their own.
    return text if _DECLARATION.match(text) else _PARTS.sub(_part, text)


def _part(match: re.Match[str]) -> str:
    if match["exit"]:
        return f"{match['exit']}return"
    if match["arg"]:
        return f"$arg[{match['arg']}]"
    if match["reg"]:
        return f"$reg[{match['reg']}]"
    if match["step"]:
        return "++" if "+" in match["step"] else "--"
    return _WORDS.get(match["word"] or "", match[0])
