"""What weft's own files of metrics say is parsed once, and then kept."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from weft.mdl import ast, parser
from weft.mdl.passes.imports import LIBRARY, Sources
from weft.mdl.words import Word

FILES = sorted(LIBRARY.glob("*.mdl"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "weft" / "library"


def documents(path: Path) -> list[ast.Document]:
    found = Sources()
    found.add_file(path)
    assert found.diagnostics == []
    return found.shipped


def everything(value: object) -> object:
    """A part of a document with all that comparisons leave out: places, and those of names."""
    if isinstance(value, tuple):
        return [everything(one) for one in value]
    if is_dataclass(value):
        parts = {field.name: everything(getattr(value, field.name)) for field in fields(value)}
        return (type(value), parts)
    return (str(value), getattr(value, "span", None)) if isinstance(value, Word) else value


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_kept_is_what_was_parsed(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = documents(path)
    assert len(list(folder.iterdir())) == len(made)
    monkeypatch.setattr(parser, "parse", None)
    assert everything(tuple(documents(path))) == everything(tuple(made))


@pytest.mark.parametrize("damage", ["empty", "cut", "other", "writable", "another text"])
def test_what_cannot_be_trusted_is_parsed_again(folder: Path, damage: str) -> None:
    path = LIBRARY / "constraints.mdl"
    made = documents(path)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    if damage == "writable":
        # Made by anybody, and of the worst kind: it would be read without a mistake.
        file.write_bytes(whole.replace(b"procedure", b"brocedure"))
        file.chmod(0o666)
    elif damage == "another text":
        file.write_bytes(whole.replace(b"constraint", b"konstraint"))
    else:
        other = {"empty": b"", "cut": whole[: len(whole) // 2], "other": b"N."}
        file.write_bytes(other[damage])
    assert documents(path) == made
    assert file.read_bytes() == whole
    assert file.stat().st_mode & 0o022 == 0


def test_a_folder_that_cannot_be_written_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert documents(LIBRARY / "constraints.mdl")
    assert list(tmp_path.iterdir()) == [file]


def test_files_of_users_are_not_kept(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.mdl"
    path.write_text("metric mine { base is counter { append preInsn a.entry (* mine++; *) } }")
    Sources().add_file(path)
    assert not folder.exists()
