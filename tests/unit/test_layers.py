"""The check of the layers sees what it is for."""

from pathlib import Path

import pytest

from tests.layers.__main__ import violations
from tests.layers.rust import Crate

CLEAN = {
    "lib.rs": "mod base; mod top;\npub use top::run;\n",
    "base.rs": (
        "pub struct Registers;\nimpl Registers {}\n"
        "#[cfg(test)]\nmod tests { use crate::top::run; }\n"
    ),
    "top.rs": "use crate::base::Registers;\n// use crate::nothing;\npub fn run(_: Registers) {}\n",
}
ORDER = [["base"], ["top"]]


def found(folder: Path, changed: dict[str, str]) -> list[str]:
    for name, text in {**CLEAN, **changed}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return list(violations(Crate.read(folder), ORDER))


def test_a_clean_crate_has_none(tmp_path: Path) -> None:
    assert found(tmp_path, {}) == []


@pytest.mark.parametrize(
    "base",
    [
        "use crate::top::run;",
        "use super::{top::{self, run}};",
        "pub fn f() { crate::top::run() }",
        # By the root, which re-exports it.
        "use crate::run;",
    ],
)
def test_an_import_upwards_is_found(tmp_path: Path, base: str) -> None:
    assert "base (base) imports top (top), which is in a layer above it" in found(
        tmp_path, {"base.rs": base}
    )


def test_a_circle_is_found(tmp_path: Path) -> None:
    assert "2 modules import each other: base, top" in found(
        tmp_path, {"base.rs": "use crate::top::run;"}
    )


def test_a_circle_of_a_module_and_its_part_is_found(tmp_path: Path) -> None:
    parts = {
        "top.rs": "mod part;\nuse part::help;\npub fn run() {}\n",
        "top/part.rs": "use super::run;\npub fn help() {}\n",
    }
    assert found(tmp_path, parts) == ["2 modules import each other: top, top::part"]


def test_methods_from_another_layer_are_found(tmp_path: Path) -> None:
    top = "use crate::base::Registers;\nimpl Registers { fn more(&self) {} }\n"
    assert found(tmp_path, {"top.rs": top}) == [
        "top adds methods to Registers, which is defined in another layer: base"
    ]


def test_a_module_without_a_layer_is_found(tmp_path: Path) -> None:
    assert found(tmp_path, {"other.rs": ""}) == ["other is in no layer"]
