"""Names that know where they stand.

The syntax tree holds most names as plain strings. Those that come from a text are of this class,
so that a diagnostic can point at the name itself and not at the whole definition around it.
"""

from __future__ import annotations

from lark import Token

from weft.mdl.ast import NOWHERE, Node, Span
from weft.mdl.lexer import span_of

__all__ = ["Word", "place_of"]


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
