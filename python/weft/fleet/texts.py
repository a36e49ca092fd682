"""The texts of a request, in MDL: what they define, and what they would do to a process.

They come from elsewhere, so nothing of this machine is read for them but weft's own library, and
what they ask to be allowed is found in what they say, before anything is woven.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from weft.errors import BadMetric, InvalidArgument
from weft.fleet.dividing import key_of
from weft.fleet.protocol import Request
from weft.mdl import ast
from weft.mdl.diagnostics import has_errors
from weft.mdl.functions import FUNCTIONS
from weft.mdl.loader import bad_metric, load
from weft.mdl.one_liners import parse_one_liner
from weft.mdl.parser import parse
from weft.mdl.passes.scope import expressions, inserts, statements

__all__ = ["Reader", "Snippets", "Texts", "explain", "read"]

Snippets: TypeAlias = Literal["library", "read", "write"]
"""What may be woven: metrics of the host's own library; texts of the request, too, if they only
read; those, too, that change what the process does."""

_LIBRARY_FILE = re.compile(r"[A-Za-z0-9_-]+\.mdl")
_REST = 20
"""How much longer to rest than a text has taken to read."""
_ASSIGNED = re.compile(
    r"\$(?:arg\s*\[[^\]]*\]|return|reg\s*\[[^\]]*\])\s*[-+]?=(?!=)|\breturn\s+\S+\s*;"
)
"""What changes an argument, a result or a register; only snippets of one's own process have it."""


@dataclass(frozen=True)
class Texts:
    """What the texts of a request come to."""

    needs: Snippets
    """What has to be allowed for them."""
    files: tuple[str, ...] = ()
    """Texts for the library of a session."""
    metrics: tuple[ast.Metric, ...] = ()
    """The metrics of one-liners; each variable is one."""
    lists: tuple[ast.ListDefinition, ...] = ()


def read(request: Request) -> Texts:
    """Read what a request brings. What makes no sense raises an error; so does what may not be."""
    key = key_of(request.by) if request.by else None
    if not request.texts and not request.probes and key is None:
        return Texts("library")
    brought = (*request.texts, *request.probes, *(() if key is None else (request.by,)))
    changes = [name for text in brought for name in _changes(text)]
    if changes:
        raise InvalidArgument(
            f"a request cannot change what a process does: {changes[0]}",
            "it stores to an argument, a result or a register",
            "do that where the process is: see weft.Session.insert",
        )
    files: list[str] = []
    definitions: list[ast.Definition] = []
    for text in request.texts:
        document, found = parse(text, "the request's text")
        if has_errors(found):
            raise bad_metric(found, {"the request's text": text})
        for one in document.definitions:
            if isinstance(one, ast.Import) and not _LIBRARY_FILE.fullmatch(one.file):
                why = "a request may only import what comes with weft"
                raise InvalidArgument(f"{one.file!r} cannot be imported", why)
        definitions += document.definitions
        # A line that ends in ".mdl" alone would be taken for the name of a file.
        files.append(text + "\n")
    if files:
        load(*files)
    metrics: list[ast.Metric] = []
    lists: dict[str, ast.ListDefinition] = {}
    for text in request.probes:
        some, its, found = parse_one_liner(text)
        if has_errors(found):
            raise bad_metric(found, {"<text>": text})
        metrics += some
        lists.update({one.name: one for one in its})
    is_call = any(map(_calls, (*definitions, *metrics))) or (key is not None and _is_call(key))
    need: Snippets = "write" if is_call else "read"
    return Texts(need, tuple(files), tuple(metrics), tuple(lists.values()))


class Reader:
    """Reads the texts of one request after the other, for a small part of the time.

    What it costs to read a text is for its writer to choose, within the limits of its size.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._due = 0.0

    async def read(self, request: Request) -> Texts:
        """Read what a request brings, when it is its turn: see :func:`read`."""
        if not request.texts and not request.probes:
            return read(request)
        loop = asyncio.get_running_loop()
        async with self._turn:
            await asyncio.sleep(max(self._due - loop.time(), 0.0))
            began = loop.time()
            try:
                return await asyncio.to_thread(read, request)
            finally:
                now = loop.time()
                self._due = now + _REST * (now - began)


def explain(error: BadMetric | InvalidArgument) -> str:
    """What is wrong with a text, on one line."""
    if isinstance(error, BadMetric):
        first = next((one for one in error.diagnostics if one.severity == "error"), None)
        return error.what if first is None else f"{first.code}: {first.message}"
    return f"{error.what}: {error.why}" if error.why else error.what


def _changes(text: str) -> list[str]:
    return [match[0].strip() for match in _ASSIGNED.finditer(text)]


def _calls(definition: ast.Definition) -> bool:
    """Whether a definition has the process call a function of its own, which may change it."""
    return any(map(_is_call, _code(definition)))


def _is_call(code: ast.Statement | ast.Expression) -> bool:
    return any(
        isinstance(one, ast.Call) and one.function not in FUNCTIONS for one in expressions(code)
    )


def _code(definition: ast.Definition) -> Iterator[ast.Statement | ast.Expression]:
    if isinstance(definition, ast.Metric):
        yield from _statements(definition.base.body)
    elif isinstance(definition, ast.Constraint):
        if isinstance(definition.body, ast.Key):
            yield definition.body.value
        else:
            yield from _statements(definition.body)


def _statements(body: Sequence[ast.Where]) -> Iterator[ast.Statement]:
    for insert in inserts(body):
        yield from statements(insert.code.body)
