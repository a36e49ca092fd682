"""Finds the files that a text imports, and those that they import."""

from __future__ import annotations

import contextlib
import pickle
import sys
from binascii import crc32
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from weft.base.files import MOST_TEXT, read
from weft.mdl import ast, kept
from weft.mdl.diagnostics import Diagnostic, did_you_mean, problem

__all__ = ["LIBRARY", "Sources"]

LIBRARY = Path(__file__).parents[2] / "metrics" / "library"
"""The folder of the metrics that ship with weft."""

_DECIDING = ("ast.py", "builder.py", "grammar.lark", "lexer.py", "parser.py", "words.py")
"""The files on which it depends what becomes of a text."""
_LONGEST_CHAIN = 100
"""How many files may import each other in a row."""


@dataclass
class Sources:
    """Documents that are used together: what is imported comes before what imports it."""

    own: list[ast.Document] = field(default_factory=list)
    """Those of the user."""
    shipped: list[ast.Document] = field(default_factory=list)
    """Those that come with weft."""
    texts: dict[str, str] = field(default_factory=dict)
    """The texts of all documents, by the name that diagnostics have for them."""
    diagnostics: list[Diagnostic] = field(default_factory=list)
    _seen: set[Path] = field(default_factory=set)
    _open: list[Path] = field(default_factory=list)

    def add_text(self, text: str, file: str = "<text>") -> None:
        """Parse a text, and all that it imports, from the library only."""
        self._add(text, file, None)

    def add_file(self, path: Path) -> None:
        """Read a file, and all that it imports."""
        self._read(path, ast.Import(str(path)), str(path))

    def _add(self, text: str, file: str, folder: Path | None) -> None:
        self.texts[file] = text
        document, found = (_parse_shipped if folder == LIBRARY else _parse)(text, file)
        self.diagnostics += found
        for definition in document.definitions:
            if isinstance(definition, ast.Import):
                self._import(definition, file, folder)
        (self.shipped if folder == LIBRARY else self.own).append(document)

    def _import(self, wanted: ast.Import, file: str, folder: Path | None) -> None:
        candidates = [LIBRARY / wanted.file]
        if folder is not None:
            candidates.insert(0, folder / wanted.file)
        for path in candidates:
            if _is_file(path):
                self._read(path, wanted, file)
                return
        siblings = [one.name for place in (folder, LIBRARY) if place for one in place.glob("*.mdl")]
        where = "beside this file or in weft's library" if folder else "in weft's library"
        hint = did_you_mean(wanted.file, siblings, f"it is looked for {where}")
        self._report("MDL050", f"there is no file `{wanted.file}`", hint, file, wanted)

    def _read(self, path: Path, wanted: ast.Import, file: str) -> None:
        try:
            place = path.resolve()
            if place in self._open:
                names = " imports ".join(f"`{one.name}`" for one in [*self._open, place])
                message = f"importing `{wanted.file}` leads back here"
                self._report("MDL051", message, f"{names}: take one of these out", file, wanted)
                return
            if place in self._seen:
                return
            if len(self._open) == _LONGEST_CHAIN:
                message = f"more than {_LONGEST_CHAIN} files import each other in a row"
                self._report("MDL006", message, "put some of them together", file, wanted)
                return
            self._seen.add(place)
            text = read(path, MOST_TEXT).decode()
        except (OSError, ValueError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            if isinstance(error, UnicodeDecodeError):
                reason = "it is not UTF-8"
            self._report("MDL012", f"`{wanted.file}` cannot be read", reason, file, wanted)
            return
        self._open.append(place)
        self._add(text, str(path), path.parent)
        self._open.pop()

    def _report(self, code: str, message: str, hint: str, file: str, node: ast.Node) -> None:
        self.diagnostics.append(problem(code, message, hint, file, node.span))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # A name that no file can have.
        return False


def _parse(text: str, file: str) -> tuple[ast.Document, list[Diagnostic]]:
    # Who measures weft's own metrics does not wait for it to be loaded.
    from weft.mdl.parser import parse

    return parse(text, file)


def _parse_shipped(text: str, file: str) -> tuple[ast.Document, list[Diagnostic]]:
    """Parse a file of weft's own once, and then take what was kept of it."""
    origin = b"\0".join([*_made_by(), file.encode(), text.encode()])
    # A longer sum would need a library that takes as long to load as some of the parser.
    path = kept.place("library", f"{Path(file).stem}-{crc32(origin):08x}")
    # What is damaged can raise anything.
    with contextlib.suppress(Exception):
        known, document = pickle.loads(kept.read(path))
        if known == origin and isinstance(document, ast.Document):
            return document, []
    document, diagnostics = _parse(text, file)
    if not diagnostics:
        with contextlib.suppress(OSError):
            kept.write(path, pickle.dumps((origin, document)))
    return document, diagnostics


@cache
def _made_by() -> list[bytes]:
    """What documents are made by, and understood by."""
    folder = Path(__file__).parents[1]
    return [sys.version.encode(), *((folder / name).read_bytes() for name in _DECIDING)]
