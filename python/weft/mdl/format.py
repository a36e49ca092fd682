"""Writes MDL the one way that it should look.

Older spellings become those of today. Otherwise tokens and comments stay what they are, and in
their order; only the space between them changes. A list, a code block or a branch that its author
put on one line stays on one if it fits; the rows of a list of names stay rows; and one empty line
stays where there were any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lark import Token

from weft.mdl.diagnostics import has_errors
from weft.mdl.lexer import COMMENTS, Lexer, general_type
from weft.mdl.loader import bad_metric
from weft.mdl.parser import parse
from weft.mdl.spelling import respelled

__all__ = ["format_document"]

_WIDTH = 100
_INDENT = "  "
_OPERANDS = ("NAME", "VARIABLE", "NUMBER", "STRING")
_TIGHT_BEFORE = {";", ",", ")", "]", ".", "++", "--", "[", "->"}
_TIGHT_AFTER = {"(", "[", ".", "->"}


def format_document(text: str, file: str = "<text>") -> str:
    """Return a text as it should look; raise :class:`~weft.errors.BadMetric` if it is broken."""
    _, diagnostics = parse(text, file)
    if has_errors(diagnostics):
        raise bad_metric(diagnostics, {file: text})
    lexer = Lexer(text, file)
    tokens = respelled(list(lexer.tokens()))
    end = lexer.token("$END", len(text), len(text))
    return _Formatter(_with_comments([*tokens, end])).document()


@dataclass
class _Comment:
    text: str
    blank_before: bool


@dataclass
class _Part:
    """A token with the comments that go with it."""

    token: Token
    starts_line: bool
    blank_before: bool
    before: list[_Comment] = field(default_factory=list)
    """On lines of their own."""
    after: list[str] = field(default_factory=list)
    """On the same line."""
    is_unary: bool = False

    @property
    def kind(self) -> str:
        return self.token.type


def _with_comments(tokens: Sequence[Token]) -> list[_Part]:
    parts: list[_Part] = []
    waiting: list[_Comment] = []
    last_line = 0
    for token in tokens:
        assert token.line is not None and token.end_line is not None
        same_line = token.line == last_line
        blank = token.line > last_line + 1
        last_line = token.end_line
        if token.type in COMMENTS:
            text = "\n".join(line.rstrip() for line in token.split("\n"))
            if same_line and parts and not waiting:
                parts[-1].after.append(text)
            else:
                waiting.append(_Comment(text, blank))
            continue
        part = _Part(token, not same_line or bool(waiting), blank, waiting)
        if token in ("-", "!", "~"):
            part.is_unary = not parts or not _ends_operand(parts[-1])
        parts.append(part)
        waiting = []
    return parts


def _ends_operand(part: _Part) -> bool:
    return general_type(part.token) in _OPERANDS or part.token in (")", "]")


def _space(left: _Part, right: _Part) -> str:
    """Return what stands between two tokens on one line."""
    before, after = left.token, right.token
    if left.is_unary:
        return " " if before == after == "-" else ""
    if after == "(":
        is_call = general_type(before) == "NAME" and left.kind != "IF"
        return "" if is_call or before == "(" else " "
    return "" if after in _TIGHT_BEFORE or before in _TIGHT_AFTER else " "


class _Formatter:
    """Goes through the parts of a text that is known to be right."""

    def __init__(self, parts: list[_Part]) -> None:
        self.parts = parts
        self.position = 0
        self.lines: list[str] = []
        self.line = ""
        self.level = 0
        self.previous: _Part | None = None
        """What the next token follows; nothing where something new begins."""
        self.must_break = False
        """Whether a comment runs to the end of the current line."""
        self.block_start = 0
        """How many lines there were where the current block began."""

    def document(self) -> str:
        """Write everything."""
        was_short = True
        while self.part.kind != "$END":
            if self.part.kind == "RBRACE":  # One too many, which is no error.
                self._begin_line()
                self._write()
                self._end_line()
                was_short = False
                continue
            is_short = self.part.kind == "IMPORT" or self._is_short_list()
            if not (was_short and is_short):
                self._want_blank()
            was_short = is_short
            self._definition()
        self._comments(self.part, self.level)
        return "".join(f"{line}\n" for line in self.lines)

    @property
    def part(self) -> _Part:
        """What comes next."""
        return self.parts[self.position]

    # Definitions.

    def _definition(self) -> None:
        self._begin_line()
        kind = self.part.kind
        if kind == "IMPORT" or self._is_short_list():
            self._flat(self._closing(self.position) if kind == "LIST" else self._find("SEMICOLON"))
        elif kind == "CONSTRAINT":
            self._constraint()
        else:
            self._flat(self._find("LBRACE"))
            self._block("RBRACE", self._attribute)
        self._end_line()

    def _is_short_list(self) -> bool:
        if self.part.kind != "LIST":
            return False
        end = self._closing(self.position)
        return self._is_one_line(self.position, end) and self._width(self.position, end) <= _WIDTH

    def _constraint(self) -> None:
        self._flat(self.position + 2)
        while self.part.token != "is" or self.parts[self.position - 1].token == "/":
            self._write(tight=True)
        self._flat(self.position + 1)
        if self.parts[self.position - 1].kind == "KEY":
            self._flat(self._find("END"))
            if self.part.kind == "SEMICOLON":
                self._write()
            return
        self._flat(self._find("LBRACE"))
        self._block("RBRACE", self._where)

    def _attribute(self) -> None:
        self._begin_line()
        if self.part.kind == "ITEMS" and self.parts[self.position + 1].kind == "LBRACE":
            self._items()
        elif self.part.kind == "BASE":
            self._base()
        else:
            self._flat(self._find("SEMICOLON"))
        self._end_line()

    def _items(self) -> None:
        start, end = self.position, self._find("SEMICOLON")
        if self._is_one_line(start, end) and self._fits(start, end):
            self._flat(end)
            return
        self._flat(self._find("LBRACE"))
        self._deepen()
        while self.part.kind != "RBRACE":
            first = self.position
            last = first + (self.part.token == "~")
            if self.parts[last + 1].kind == "COMMA":
                last += 1
            width = self._width(first, last)
            if self.line and (self.part.starts_line or len(self.line) + 1 + width > _WIDTH):
                self._end_line()
            if not self.line:
                self._begin_line()
            self._flat(last)
        self._end_line()
        self._comments(self.part, self.level)
        self.level -= 1
        self._flat(end)

    def _base(self) -> None:
        self._flat(self.position + 2)
        kind = self.parts[self.position - 1].kind
        if kind == "RECORD":
            self._flat(self._find("RBRACE"))
        elif kind == "MAP":
            self._flat(self._find("RSQB"))
        elif self.part.token == "$process":
            self._flat(self._find("SEMICOLON"))
            return
        self._flat(self._find("LBRACE"))
        self._block("RBRACE", self._where)

    def _block(self, closing: str, inner: Callable[[], None]) -> None:
        """Write what is between braces, the second of which begins a line."""
        self._deepen()
        while self.part.kind != closing:
            inner()
        self._comments(self.part, self.level)
        self.level -= 1
        self._write()

    def _deepen(self) -> None:
        self._end_line()
        self.level += 1
        self.block_start = len(self.lines)

    # Where.

    def _where(self) -> None:
        self._begin_line()
        if self.part.kind == "FOREACH":
            self._flat(self.position + 3)
            if self.part.kind == "LSQB":
                self._flat(self._find("RSQB"))
            while self.part.kind == "DOT":
                self._flat(self.position + 1)
            if self.part.kind == "LBRACE":
                self._write()
                self._block("RBRACE", self._where)
            else:
                self._indented(self._where)
        else:
            self._flat(self._find("BEGIN") - 1)
            self._code()
        self._end_line()

    def _indented(self, inner: Callable[[], None]) -> None:
        self._deepen()
        inner()
        self.level -= 1

    # What.

    def _code(self) -> None:
        start, end = self.position, self._find("END")
        if self._is_one_line(start, end) and self._fits(start, end):
            self._flat(end)
            return
        self._write()
        self._block("END", self._statement)

    def _statement(self) -> None:
        self._begin_line()
        if self.part.kind == "IF":
            self._if()
        else:
            self._flat(self._find("SEMICOLON"))
        self._end_line()

    def _if(self) -> None:
        self._write()
        depth = 0
        while True:
            depth += (self.part.token == "(") - (self.part.token == ")")
            self._write()
            if depth == 0:
                break
        self._branch()
        if self.part.kind != "ELSE":
            return
        if self.previous is None or self.previous.kind != "RBRACE":
            self._end_line()
            self._begin_line()
        self._write()
        if self.part.kind == "IF" and not self.part.before:
            self._if()
        else:
            self._branch()

    def _branch(self) -> None:
        if self.part.kind == "LBRACE":
            self._write()
            self._block("RBRACE", self._statement)
            return
        start, end = self.position, self._find("SEMICOLON")
        short = self.part.kind != "IF" and not self.part.starts_line and not self.must_break
        if short and self._is_one_line(start, end) and self._fits(start, end):
            self._flat(end)
        else:
            self._indented(self._statement)

    # Finding.

    def _find(self, kind: str) -> int:
        position = self.position
        while self.parts[position].kind != kind:
            position += 1
        return position

    def _closing(self, position: int) -> int:
        """Find the brace that ends a definition."""
        depth = 0
        while True:
            kind = self.parts[position].kind
            depth += (kind == "LBRACE") - (kind == "RBRACE")
            if depth == 0 and kind == "RBRACE":
                return position
            position += 1

    def _is_one_line(self, start: int, end: int) -> bool:
        """Whether the author put these parts on one line, with no comment between them."""
        parts = self.parts[start : end + 1]
        has_comments = any(one.before for one in parts[1:]) or any(one.after for one in parts[:-1])
        return parts[0].token.line == parts[-1].token.line and not has_comments

    def _width(self, start: int, end: int) -> int:
        parts = self.parts[start : end + 1]
        width = sum(len(part.token) for part in parts)
        return width + sum(map(len, map(_space, parts, parts[1:])))

    def _fits(self, start: int, end: int) -> bool:
        return len(self.line) + 1 + self._width(start, end) <= _WIDTH

    # Writing.

    def _flat(self, last: int) -> None:
        """Write up to a position, and what is there too, on one line as far as comments let it."""
        while self.position <= last:
            self._write()

    def _write(self, tight: bool = False) -> None:
        """Write the next token with its comments."""
        part = self.part
        if self.line and (part.before or self.must_break):
            self._flush()
        continued = self.level + (self.previous is not None)
        self._comments(part, continued)
        if not self.line:
            self.line = _INDENT * continued + part.token
        else:
            assert self.previous is not None
            self.line += ("" if tight else _space(self.previous, part)) + part.token
        self.previous = part
        for comment in part.after:
            self.line += f" {comment}"
            self.must_break = comment.startswith("//")
        self.position += 1

    def _begin_line(self) -> None:
        """Get ready for something that stands on a line of its own."""
        self._comments(self.part, self.level)
        self._blank(self.part.blank_before)

    def _end_line(self) -> None:
        if self.line:
            self._flush()
        self.previous = None

    def _flush(self) -> None:
        self.lines.append(self.line)
        self.line = ""
        self.must_break = False

    def _comments(self, part: _Part, level: int) -> None:
        """Write the comments before a token, on lines of their own."""
        for comment in part.before:
            self._blank(comment.blank_before)
            self.lines.append(_INDENT * level + comment.text)
        part.before = []

    def _blank(self, wanted: bool) -> None:
        """Leave a line empty, but not where a block begins."""
        if wanted and len(self.lines) > self.block_start and self.lines[-1]:
            self.lines.append("")

    def _want_blank(self) -> None:
        """Ask for an empty line before what comes next."""
        if self.part.before:
            self.part.before[0].blank_before = True
        else:
            self.part.blank_before = True
