"""All programs of the zoo, the plainest first."""

from __future__ import annotations

from tests.zoo.compilers import COMPILERS
from tests.zoo.interpreters import INTERPRETERS
from tests.zoo.services import SERVICES
from tests.zoo.tools import TOOLS

EXHIBITS = (*TOOLS, *COMPILERS, *INTERPRETERS, *SERVICES)
SHORT = [exhibit for exhibit in EXHIBITS if exhibit.short]
