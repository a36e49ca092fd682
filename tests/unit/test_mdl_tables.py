from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lark import Lark

from weft.mdl import tables

TEXT = "metric a { base is counter { append preInsn b.entry (* a++; *) } }"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tables.grammar.cache_clear()
    yield tmp_path / "weft" / "grammar"
    tables.grammar.cache_clear()


def terminals(grammar: Lark) -> list[str]:
    return sorted(terminal.name for terminal in grammar.terminals)


def test_tables_are_made_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tables.grammar()
    assert len(list(folder.iterdir())) == 1
    tables.grammar.cache_clear()
    monkeypatch.setattr(tables, "_store", None)
    kept = tables.grammar()
    assert terminals(kept) == terminals(made)
    assert kept.parse(TEXT, start="document") == made.parse(TEXT, start="document")


@pytest.mark.parametrize("damage", ["empty", "cut", "other", "writable"])
def test_tables_that_cannot_be_trusted_are_made_again(folder: Path, damage: str) -> None:
    names = terminals(tables.grammar())
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    if damage == "writable":
        # Made by anybody, and of the worst kind: it would be read without a mistake.
        file.write_bytes(whole.replace(b"METRIC", b"METRIK"))
        file.chmod(0o666)
    else:
        file.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "other": b"N"}[damage])
    tables.grammar.cache_clear()
    assert terminals(tables.grammar()) == names
    # They are kept again, for the next time.
    assert len(file.read_bytes()) > len(whole) / 2
    assert file.stat().st_mode & 0o022 == 0


def test_a_folder_that_cannot_be_written_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    tables.grammar.cache_clear()
    assert terminals(tables.grammar())
    tables.grammar.cache_clear()
    assert list(tmp_path.iterdir()) == [file]
