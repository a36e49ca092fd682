"""Names that know where they stand.

The syntax tree holds most names as plain strings. Those that come from a text are of this class,
so that a diagnostic can point at the name itself and not at the whole definition around it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.mdl.ast import NOWHERE, Node, Span

if TYPE_CHECKING:
    from lark import Token

__all__ = ["Word", "place_of", "span_of"]


def span_of(token: Token) -> Span:
    """Return where a token stands."""
    assert token.line is not None and token.column is not None
    assert token.end_line is not None and token.end_column is not None
    return Span(token.line, token.column, token.end_line, token.end_column)


class Word(str):
    """A string that comes from a text; equal to any other string of the same letters."""

    __slots__ = ("span",)

    span: Span

    @classmethod
    def from_token(cls, token: Token) -> Word:
        """Make a name of a token."""
        word = cls(token)
        word.span = span_of(token)
        return word

    def instead(self, text: str) -> Word:
        """Return another name for the same place."""
        word = Word(text)
        if hasattr(self, "span"):
            word.span = self.span
        return word


def place_of(name: str, node: Node) -> Span:
    """Return where a name of a node stands; the place of the node if only that is known."""
    return getattr(name, "span", NOWHERE) if isinstance(name, Word) else node.span
