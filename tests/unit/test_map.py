"""What the documentation says of the repository is so: its map, and the paths in it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
PAGES = [
    CONTRIBUTING,
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "crates").rglob("README.md")),
]
_PATH = re.compile(
    r"`((?:\.\./)*(?:crates|python|tests|benchmarks|docs|fuzz|examples|src|clone|\.\.)/[\w./-]*)`"
)


def tracked() -> set[str]:
    """All files of the repository, and their folders."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    files = {name for name in listed if (ROOT / name).exists()}
    return files | {str(parent) for name in files for parent in Path(name).parents}


def mapped() -> set[str]:
    """The paths of the map in CONTRIBUTING: those that are indented are in the folder above."""
    text = CONTRIBUTING.read_text()
    drawn = text[text.index("```text") + 7 :]
    paths, folder = set(), ""
    for line in drawn[: drawn.index("```")].splitlines():
        if not line:
            continue
        name = line.split()[0].rstrip("/")
        if line.startswith(" "):
            paths.add(f"{folder}/{name}")
        else:
            folder = name
            paths.add(name)
    return paths


def test_the_map_has_only_what_there_is() -> None:
    assert mapped() - tracked() == set()


@pytest.mark.parametrize("folder", ["python/weft", "crates", "tests"])
def test_the_map_has_every_folder(folder: str) -> None:
    there = {
        path for path in tracked() if (ROOT / path).is_dir() and str(Path(path).parent) == folder
    }
    assert there - mapped() == set()


def test_the_architecture_names_every_layer_and_crate() -> None:
    text = ARCHITECTURE.read_text()
    packages = {path.parent.name for path in (ROOT / "python" / "weft").glob("*/__init__.py")}
    assert {name for name in packages if f"`{name}/`" not in text} == set()
    crates = {path.parent.name for path in (ROOT / "crates").glob("*/Cargo.toml")}
    assert {name for name in crates if f"`crates/{name}/`" not in text} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_lead_somewhere(page: Path) -> None:
    known = tracked()
    folders = [page.parent, ROOT, *(page.parents if "crates" in page.parts else [])]
    folders.append(page.parent / "src")
    missing = []
    for path in _PATH.findall(page.read_text()):
        places = [(folder / path).resolve() for folder in folders]
        inside = [place for place in places if place.is_relative_to(ROOT)]
        if not any(str(place.relative_to(ROOT)) in known for place in inside):
            missing.append(path)
    assert missing == []


def test_paths_in_comments_lead_somewhere() -> None:
    known = tracked()
    pattern = re.compile(
        r"(?<![\w/.-])((?:crates|python|tests|docs|benchmarks|fuzz)/[\w./-]+"
        r"\.(?:rs|py|pyi|md|c|lark))\b"
    )
    missing = []
    for name in sorted(known):
        if not name.endswith((".rs", ".py", ".pyi", ".toml", "Makefile")):
            continue
        # A path may be that of a file of the same crate.
        crate = "/".join(Path(name).parts[:2])
        for path in pattern.findall((ROOT / name).read_text()):
            if not {path, f"{crate}/{path}"} & known:
                missing.append(f"{name}: {path}")
    assert missing == []
