"""The resource tree and its patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.toolchain import compile_program
from weft.errors import InvalidArgument
from weft.model.program import Function, Module, Process, Thread
from weft.program.resources import ResourceTree


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> ResourceTree:
    """A tree over two small programs."""
    directory = tmp_path_factory.mktemp("programs")
    with_lines = compile_program("symbols/inlined.c", directory / "inlined", "-g", "-O1")
    cpp = compile_program("symbols/names.cc", directory / "names", "-O0")
    return ResourceTree(
        modules=[Module(str(with_lines), use_cache=False), Module(str(cpp), use_cache=False)],
        processes=[Process(4711, "inlined")],
        threads=[Thread(1, "main"), Thread(2, "worker"), Thread(3, "worker"), Thread(4)],
        machine="db1",
    )


def paths(tree: ResourceTree, pattern: str) -> list[str]:
    return [resource.path for resource in tree.match(pattern)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("/Code", ["/Code"]),
        ("/Code/inlined", ["/Code/inlined"]),
        ("/Code/in*", ["/Code/inlined"]),
        ("/Code/*", ["/Code/inlined", "/Code/names"]),
        ("/Code/inlined/outer", ["/Code/inlined/outer"]),
        ("/Code/inlined/outer_alias", ["/Code/inlined/outer"]),
        ("/Code/in*/out*", ["/Code/inlined/outer"]),
        ("/Code/inlined.c", ["/Code/inlined.c"]),
        ("/Code/inlined.c/outer", ["/Code/inlined.c/outer"]),
        ("/Code/*.c/s*t", ["/Code/inlined.c/secret"]),
        ("/Code/inlined.c/malloc@plt", []),
        ("/Code/inlined/nothing", []),
        ("/Code/nothing/outer", []),
        ("/Process/4711", ["/Process/4711"]),
        ("/Process/*", ["/Process/4711"]),
        ("/Thread/main", ["/Thread/main"]),
        ("/Thread/worker", ["/Thread/2", "/Thread/3"]),
        ("/Thread/3", ["/Thread/3"]),
        ("/Thread/*", ["/Thread/main", "/Thread/2", "/Thread/3", "/Thread/4"]),
        ("/Machine/db*", ["/Machine/db1"]),
        ("/[CP]*", ["/Code", "/Process"]),
    ],
)
def test_match(tree: ResourceTree, pattern: str, expected: list[str]) -> None:
    assert paths(tree, pattern) == expected


def test_demangled_names_match(tree: ResourceTree) -> None:
    for pattern in (
        "zoo::Keeper::feed",
        "zoo::Keeper::feed(*",
        "zoo::Cage<unsigned long, 4>::operator[](int)",
    ):
        (found,) = tree.match(f"/Code/names/{pattern}")
        assert isinstance(found.value, Function)
        assert found.value.display_name.startswith("zoo::")


def test_children(tree: ResourceTree) -> None:
    assert [child.path for child in tree.children("/Code")] == ["/Code/inlined", "/Code/names"]
    below = {child.path for child in tree.children("/Code/inlined")}
    assert {"/Code/inlined/main", "/Code/inlined/malloc@plt"} <= below
    below = {child.path for child in tree.children(tree.get("/Code/inlined.c"))}
    assert "/Code/inlined.c/main" in below
    assert "/Code/inlined.c/malloc@plt" not in below
    assert list(tree.children("/Process/4711")) == []


def test_sources(tree: ResourceTree) -> None:
    assert "/Code/inlined.c" in [source.path for source in tree.sources()]


def test_get(tree: ResourceTree) -> None:
    assert tree.get("/Code/inlined/main").kind == "function"
    with pytest.raises(InvalidArgument, match="no resource"):
        tree.get("/Code/inlined/nothing")
    with pytest.raises(InvalidArgument, match="2 resources"):
        tree.get("/Thread/worker")


@pytest.mark.parametrize("pattern", ["", "/", "Code", "/code", "/Nothing/x"])
def test_what_is_no_path(tree: ResourceTree, pattern: str) -> None:
    with pytest.raises(InvalidArgument):
        tree.match(pattern)


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    tree = ResourceTree(modules=[Module(str(tmp_path / "missing"))])
    assert paths(tree, "/Code/*") == ["/Code/missing"]
