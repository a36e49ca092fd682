"""Selectors: ``exe=redis-server and label.zone=b``; their grammar is in ``selector.lark``.

A value is a pattern: ``*`` stands for any text, ``?`` for one character, ``[ab]`` for one of some.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import cache, cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, TypeAlias

from weft.base.names import did_you_mean
from weft.base.numbers import printable
from weft.errors import InvalidArgument

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

__all__ = ["EVERYTHING", "FIELDS", "Facts", "Selector"]

Facts: TypeAlias = "Mapping[str, tuple[str, ...]]"
"""What is known of a process and its host: the texts that each field has."""

FIELDS: Mapping[str, str] = {
    "exe": "what the process was started as, the name of its file, or that file's whole path",
    "pid": "its id",
    "uid": "the number of its effective user",
    "user": "the name of that user",
    "cgroup": "its control group: /system.slice/redis.service",
    "container": "the id of its container, or the beginning of it",
    "build_id": "the build id of its program",
    "netns": "the number of its network namespace; 'own' stands for that of weft host",
    "host": "the name of its host",
}
"""The fields there are, each with what it is; and ``label.NAME``."""

_LONGEST = 4096
_DEEPEST = 50
"""How many signs and words of nesting a selector may have."""
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Selector:
    """A selector that has been read."""

    text: str
    _tree: _Node

    @classmethod
    def parse(cls, text: str) -> Selector:
        """Read a selector; what makes no sense raises an error that says where."""
        from lark.exceptions import UnexpectedInput

        if len(text) > _LONGEST:
            raise InvalidArgument(
                "the selector is too long", f"it has {len(text):,} characters", f"use {_LONGEST:,}"
            )
        nesting = text.count("(") + len(re.findall(r"\bnot\b", text))
        if nesting > _DEEPEST:
            raise InvalidArgument(
                "the selector is nested too deeply",
                f"it has {nesting} parentheses and negations",
                f"use {_DEEPEST} at most",
            )
        try:
            tree = _grammar().parse(text)
        except UnexpectedInput as error:
            is_end = getattr(getattr(error, "token", None), "type", "") == "$END"
            place = len(text) if is_end or error.pos_in_stream is None else error.pos_in_stream
            rest = printable(text[place : place + 20])
            why = f"it goes wrong at {rest!r}" if rest else "something is missing at its end"
            advice = "write it like: exe=redis-server and label.zone=b"
            raise InvalidArgument(f"{printable(text)!r} is no selector", why, advice) from None
        return cls(text, _built(tree))

    def matches(self, facts: Facts) -> bool:
        """Whether a process with these facts is meant."""
        return self._tree.matches(facts) is True

    def may_match(self, facts: Facts) -> bool:
        """Whether a process may be meant of which only these facts are known."""
        return self._tree.matches(facts) is not False

    @cached_property
    def is_everything(self) -> bool:
        """Whether it says no more than that everything is meant."""
        return isinstance(self._tree, _All) and not self._tree.parts


class _Node:
    def matches(self, facts: Facts) -> bool | None:
        """Whether it is so; nothing where a fact is not known."""
        raise NotImplementedError


@dataclass(frozen=True)
class _All(_Node):
    parts: tuple[_Node, ...]

    def matches(self, facts: Facts) -> bool | None:
        return _worst(part.matches(facts) for part in self.parts)


@dataclass(frozen=True)
class _Not(_Node):
    part: _Node

    def matches(self, facts: Facts) -> bool | None:
        found = self.part.matches(facts)
        return None if found is None else not found


@dataclass(frozen=True)
class _Has(_Node):
    field: str
    pattern: re.Pattern[str]

    def matches(self, facts: Facts) -> bool | None:
        if self.field not in facts:
            # A label that a host has not is no fact that is missing.
            return False if self.field.startswith("label.") and "host" in facts else None
        return any(map(self.pattern.fullmatch, facts[self.field]))


def _worst(found: Iterable[bool | None]) -> bool | None:
    result: bool | None = True
    for one in found:
        if one is False:
            return False
        if one is None:
            result = None
    return result


EVERYTHING = Selector("*", _All(()))
"""The selector that means everything."""


@cache
def _grammar() -> Lark:
    from lark import Lark

    text = files("weft.fleet").joinpath("selector.lark").read_text()
    return Lark(text, parser="lalr", lexer="contextual")


def _built(tree: Tree[Token]) -> _Node:
    """What a tree of the grammar says."""
    if tree.data in ("start", "conjunction"):
        return _All(tuple(_built(one) for one in _subtrees(tree)))
    if tree.data == "everything":
        return _All(())
    if tree.data == "disjunction":
        # One of some holds unless none does.
        return _Not(_All(tuple(_Not(_built(one)) for one in _subtrees(tree))))
    if tree.data == "negation":
        return _Not(_built(_subtrees(tree)[0]))
    name = _field(str(tree.children[0]))
    values = [_has(name, _value(one)) for one in tree.children[1:]]
    if tree.data == "unequal":
        return _Not(values[0])
    return _Not(_All(tuple(map(_Not, values))))


def _subtrees(tree: Tree[Token]) -> list[Tree[Token]]:
    return [one for one in tree.children if not isinstance(one, str)]


def _value(node: Tree[Token] | Token) -> str:
    if not isinstance(node, str):
        return "*"
    return node[1:-1] if node.type == "STRING" else str(node)


def _field(name: str) -> str:
    if name in FIELDS or (name.startswith("label.") and len(name) > len("label.")):
        return name
    known = [*FIELDS, "label.NAME"]
    raise InvalidArgument(
        f"there is no field {printable(name)!r}",
        f"there are {', '.join(known)}",
        did_you_mean(name, known),
    )


def _has(name: str, value: str) -> _Has:
    if name == "container" and not _GLOB.search(value):
        # People know the first digits of an id.
        value += "*"
    return _Has(name, re.compile(translate(value)))
