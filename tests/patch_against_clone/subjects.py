"""All programs of the comparison."""

from __future__ import annotations

from tests.patch_against_clone.compiled import COMPILED
from tests.patch_against_clone.distribution import DISTRIBUTION
from tests.patch_against_clone.model import Subject

SUBJECTS: list[Subject] = [*DISTRIBUTION, *COMPILED]
