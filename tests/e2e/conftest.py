"""The fixtures of the end-to-end tests."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.builder import Builder


@pytest.fixture(scope="session")
def public_folder() -> Iterator[Path]:
    """Return a folder that other users can reach, which those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="weft-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture(scope="session")
def build(public_folder: Path) -> Callable[[str], Path]:
    """Return a function that compiles a program of the zoo, once, and skips where it cannot."""
    return Builder(public_folder).build
