"""Every example of the documentation does what the page says it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples import run_page

ROOT = Path(__file__).parents[2]
TEXTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
PAGES = [page for page in TEXTS if "```" in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)
