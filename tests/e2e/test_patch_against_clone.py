"""A quick part of what holds the weavers against each other: see ``tests/patch_against_clone``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.patch_against_clone.comparing import compare, differing, varying
from tests.patch_against_clone.measuring import Run
from tests.patch_against_clone.model import Place, Weaver
from tests.patch_against_clone.subjects import SUBJECTS

SHORT = {subject.name: subject for subject in SUBJECTS if subject.is_short}

MOST = 0.9
"""How much of what is executed must have been compared, at least."""


@pytest.mark.watchdog(300)
@pytest.mark.parametrize("name", SHORT)
def test_both_weavers_count_the_same(name: str, tmp_path: Path) -> None:
    verdict = compare(SHORT[name], tmp_path / "it", timed=40)
    if verdict.missing:
        pytest.skip(f"{verdict.missing} is not installed")
    assert not verdict.failure
    assert not verdict.differences, "\n".join(map(str, verdict.differences))
    assert verdict.compared > MOST * verdict.executed > 40
    assert verdict.timed > 20
    assert verdict.calls > 300
    assert not verdict.refused["clone"]


def test_a_difference_is_told_from_what_varies_by_itself() -> None:
    places: list[Place] = [("entry", "program", number) for number in range(4)]
    same, differs, varies, refused = places

    def run(*hits: int) -> Run:
        return Run(hits=dict(zip(places, hits, strict=False)))

    runs: dict[Weaver, list[Run]] = {
        "patch": [run(1, 10, 5), run(1, 10, 6)],
        "clone": [run(1, 11, 6, 7), run(1, 11, 6, 7)],
    }
    assert differing(runs, lambda run: run.hits) == [differs]
    assert varying(runs, lambda run: run.hits) == [varies]
    assert same not in (differs, varies)
    assert refused not in runs["patch"][0].hits
