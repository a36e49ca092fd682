"""Parses MDL: text in, syntax tree and diagnostics out.

The parser reports as many mistakes as it can in one run: after one, it goes on at the next
statement, attribute or definition. No text makes it raise anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lark import Token, Tree
from lark.parsers.lalr_analysis import Shift

from weft.mdl.ast import CodeBlock, Document, Statement, Where
from weft.mdl.builder import Builder
from weft.mdl.diagnostics import MOST_ERRORS, Diagnostic, did_you_mean, problem
from weft.mdl.lexer import COMMENTS, Lexer, general_type
from weft.mdl.tables import grammar
from weft.mdl.words import span_of

__all__ = ["parse", "parse_code", "parse_statements", "parse_where"]

_OPENING = ("LBRACE", "BEGIN")
_CLOSING = ("RBRACE", "END")
_END_OF_TEXT = "$END"

_SHOWN = {
    "NAME": "a name",
    "STRING": "a string in quotes",
    "NUMBER": "a number",
    "VARIABLE": "a `$variable`",
    _END_OF_TEXT: "the end of the text",
}


def parse(text: str, file: str = "<text>") -> tuple[Document, list[Diagnostic]]:
    """Parse a whole text; what is broken in it is reported, and left out of the document."""
    document, diagnostics = _parse(text, file, "document")
    return document or Document((), file), diagnostics


def parse_where(text: str) -> tuple[tuple[Where, ...], list[Diagnostic]]:
    """Parse a fragment: ``foreach ...``, ``append ...``."""
    wheres, diagnostics = _parse(text, "<text>", "fragment")
    return wheres or (), diagnostics


def parse_code(text: str) -> tuple[CodeBlock, list[Diagnostic]]:
    """Parse a fragment: ``(* ... *)``."""
    code, diagnostics = _parse(text, "<text>", "code")
    return code or CodeBlock(()), diagnostics


def parse_statements(
    tokens: Sequence[Token], lexer: Lexer
) -> tuple[tuple[Statement, ...], list[Diagnostic]]:
    """Parse the statements that tokens make up."""
    statements, diagnostics = _parse_tokens(tokens, lexer, "statements")
    return statements or (), diagnostics


def _parse(text: str, file: str, start: str) -> tuple[Any, list[Diagnostic]]:
    lexer = Lexer(text, file)
    value, diagnostics = _parse_tokens(list(lexer.tokens()), lexer, start)
    diagnostics = [*lexer.diagnostics, *diagnostics]
    return value, sorted(diagnostics, key=lambda one: (one.span.line, one.span.column))


def _parse_tokens(
    tokens: Sequence[Token], lexer: Lexer, start: str
) -> tuple[Any, list[Diagnostic]]:
    parts, docs = _without_comments(tokens)
    end = (parts[-1].end_pos or 0) if parts else 0
    driver = _Driver([*parts, lexer.token(_END_OF_TEXT, end, end)], lexer.file, start)
    tree = driver.run()
    if tree is None:
        return None, driver.diagnostics
    builder = Builder(lexer.file, docs)
    value = builder.build(tree)
    return value, driver.diagnostics + builder.diagnostics


def _without_comments(tokens: Sequence[Token]) -> tuple[list[Token], dict[int, str]]:
    """Take the comments out; doc comments by the offset of what follows them."""
    parts: list[Token] = []
    docs: dict[int, str] = {}
    lines: list[str] = []
    for token in tokens:
        if token.type == "DOC":
            lines.append(token[3:].removeprefix(" ").rstrip())
        elif token.type not in COMMENTS:
            if lines:
                docs[token.start_pos or 0] = "\n".join(lines)
                lines = []
            parts.append(token)
    return parts, docs


class _Driver:
    """Feeds tokens to lark's parser, and finds a way on after a mistake.

    After a mistake the parser goes back to where the grammar allows ``ERROR``, and tokens are
    skipped up to what seems to be the end of the broken part.
    """

    def __init__(self, tokens: list[Token], file: str, start: str) -> None:
        self.tokens = tokens
        self.file = file
        self.diagnostics: list[Diagnostic] = []
        self.parser = grammar().parse_interactive(start=start)
        self.state = self.parser.parser_state
        self.table = self.state.parse_conf.parse_table
        self.end_state = self.table.end_states[start]
        self.heads = _heads(tokens) if start == "document" else set()
        self.ends = _ends(tokens, is_code=start == "statements")
        self.position = 0
        self.resumed = -1
        """Where parsing went on after the last mistake."""

    def run(self) -> Tree[Token] | None:
        """Parse all tokens; return `None` if no part of them can be parsed."""
        while True:
            token = self._as_expected(self.tokens[self.position])
            if self._accepts(token.type):
                tree: Tree[Token] | None = self.parser.feed_token(token)
                if token.type == _END_OF_TEXT:
                    return tree
                self.position += 1
            elif self.position in self.ends and self._accepts("SEMICOLON"):
                self.parser.feed_token(Token.new_borrow_pos("SEMICOLON", ";", token))
            elif token.type == "RBRACE" and self._accepts("METRIC"):
                message = "there is no open brace that this one closes"
                self._report("MDL008", message, "leave it out", token)
                self.position += 1
            elif not self._recover(token):
                return None

    def _as_expected(self, token: Token) -> Token:
        """Turn a keyword into a name where no keyword is expected, unless a definition begins."""
        if self.position in self.heads:
            return token
        general = general_type(token)
        if token.type in ("START", "STOP") and not self._is_action():
            return Token.new_borrow_pos(general, token.value, token)
        if general != token.type and not self._accepts(token.type) and self._accepts(general):
            return Token.new_borrow_pos(general, token.value, token)
        return token

    def _is_action(self) -> bool:
        """Whether `start` is followed by the name of a timer, and is no variable itself."""
        return general_type(self.tokens[self.position + 1]) == "NAME"

    def _accepts(self, kind: str) -> bool:
        """Whether a token of this kind could come next; changes nothing."""
        states, stack = self.table.states, self.state.state_stack
        height, pushed = len(stack), list[Any]()
        while True:
            action = states[pushed[-1] if pushed else stack[height - 1]].get(kind)
            if action is None:
                return False
            if action[0] is Shift:
                return True
            rule = action[1]
            for _ in rule.expansion:
                if pushed:
                    pushed.pop()
                else:
                    height -= 1
            state = pushed[-1] if pushed else stack[height - 1]
            pushed.append(states[state][rule.origin.name][1])
            if pushed[-1] == self.end_state:
                return kind == _END_OF_TEXT

    def _recover(self, token: Token) -> bool:
        """Report what cannot be understood, and skip it; say whether there is a way on."""
        is_end = token.type == _END_OF_TEXT or self.position in self.heads
        if self.position != self.resumed or not (is_end or token.type in _CLOSING):
            self._report_unexpected(token, is_end)
        if is_end:
            return self._close(token)
        if self.position == self.resumed:
            self.position += 1  # The same token again: it fits nowhere.
        depth = self._go_back()
        if depth is None:
            return False
        self._skip(depth)
        self.resumed = self.position
        return True

    def _close(self, token: Token) -> bool:
        """Close everything that is open, so that what is whole of it can be kept."""
        while not self._accepts(token.type):
            closing = next((kind for kind in _CLOSING if self._accepts(kind)), None)
            if closing is not None:
                self.parser.feed_token(Token.new_borrow_pos(closing, "", token))
            elif self._go_back() is None:
                return False
        return True

    def _go_back(self) -> int | None:
        """Go back to where ERROR may stand; return how many braces were open since then."""
        depth = 0
        while not self._accepts("ERROR"):
            if not self.state.value_stack:
                return None
            self.state.state_stack.pop()
            value = self.state.value_stack.pop()
            kind = value.type if isinstance(value, Token) else ""
            depth += (kind in _OPENING) - (kind in _CLOSING)
        self.parser.feed_token(Token.new_borrow_pos("ERROR", "", self.tokens[self.position]))
        return max(0, depth)

    def _skip(self, depth: int) -> None:
        """Skip to the end of the broken part: its semicolon, its last brace, or the next part."""
        braces = depth
        while self.position not in self.heads:
            kind = self.tokens[self.position].type
            if kind == _END_OF_TEXT or (kind in _CLOSING and braces == 0):
                return
            self.position += 1
            if kind in _OPENING:
                braces += 1
            elif kind in _CLOSING:
                braces -= 1
                if braces == 0:
                    if self.tokens[self.position].type == "SEMICOLON":
                        self.position += 1
                    return
            elif kind == "SEMICOLON" and braces <= depth:
                return

    def _report_unexpected(self, token: Token, is_end: bool) -> None:
        if len(self.diagnostics) >= MOST_ERRORS:
            return
        expected = [kind for kind in self._choices() if self._accepts(kind)]
        wanted = [self._shown(kind) for kind in expected]
        hint = ""
        if 1 <= len(wanted) <= 8:
            hint = f"expected {_either(sorted(wanted))}"
        if is_end:
            what = "the text ends" if token.type == _END_OF_TEXT else f"`{token}` begins"
            message = f"{what} before what comes before it is complete"
            closing = next((kind for kind in _CLOSING if kind in expected), None)
            hint = f"add {self._shown(closing)} before it" if closing else hint
            self._report("MDL005", message, hint, token)
            return
        values = [self._value(kind) for kind in expected]
        words = [value for value in values if value.lstrip("$").isidentifier()]
        if words and general_type(token) in ("NAME", "VARIABLE"):
            hint = did_you_mean(token, words, hint)
        shown = token if len(token) <= 40 else f"{token[:40]}..."
        self._report("MDL001", f"`{shown}` is not expected here", hint, token)

    def _choices(self) -> list[str]:
        states = self.table.states[self.state.position]
        return [kind for kind in states if kind.isupper() and kind not in ("ERROR", "DOC")]

    def _shown(self, kind: str) -> str:
        return _SHOWN.get(kind) or f"`{self._value(kind)}`"

    def _value(self, kind: str) -> str:
        return "" if kind in _SHOWN else grammar().get_terminal(kind).pattern.value

    def _report(self, code: str, message: str, hint: str, token: Token) -> None:
        if len(self.diagnostics) < MOST_ERRORS:
            self.diagnostics.append(problem(code, message, hint, self.file, span_of(token)))


def _heads(tokens: Sequence[Token]) -> set[int]:
    """Find where definitions begin, whatever braces are open there."""
    third = {"METRIC": "LBRACE", "LIST": "IS", "CONSTRAINT": "SLASH"}
    heads = set()
    index = 0
    while index + 2 < len(tokens):
        kind, following = tokens[index].type, tokens[index + 1]
        is_named = general_type(following) == "NAME" and tokens[index + 2].type == third.get(kind)
        if is_named or (kind == "IMPORT" and following.type == "STRING"):
            heads.add(index)
            index += 1
        index += 1
    return heads


def _ends(tokens: Sequence[Token], *, is_code: bool) -> set[int]:
    """Find where statements of code end, so that they need no semicolon."""
    ends = set()
    for index, token in enumerate(tokens):
        is_code = is_code or token.type == "BEGIN"
        if is_code and token.type in ("END", "RBRACE", "ELSE"):
            ends.add(index)
        is_code = is_code and token.type != "END"
    return ends


def _either(choices: list[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"
