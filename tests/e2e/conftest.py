"""The fixtures of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e import builder


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that compiles a program of the zoo, once, and skips where it cannot."""
    folder = tmp_path_factory.mktemp("programs")
    # Programs of other users must be reachable.
    for directory in (folder, *folder.parents):
        if directory.owner() == Path("/proc/self").owner() and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o111)
    return builder.Builder(folder).build
