"""The short form of the zoo: programs that do the same from the code cache as natively."""

from __future__ import annotations

import pytest

from tests.clone import cloned
from tests.zoo.exhibits import SHORT
from tests.zoo.model import Exhibit
from tests.zoo.running import compare

LIMIT = 100.0


@pytest.mark.watchdog(2 * LIMIT + 30)
@pytest.mark.parametrize("exhibit", SHORT, ids=lambda exhibit: exhibit.name)
def test_does_the_same(exhibit: Exhibit) -> None:
    verdict = compare(exhibit, cloned(), LIMIT)
    if verdict.missing or verdict.broken:
        pytest.skip(verdict.why)
    if exhibit.known and verdict.differences:
        pytest.xfail(exhibit.known)
    assert not verdict.differences, "\n".join(verdict.differences)
