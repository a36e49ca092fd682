"""JSON: the whole document, on one line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import BinaryIO

from weft.export.metrics.document import document
from weft.model.measured import Measured, TargetFacts


def write(file: BinaryIO, target: TargetFacts, metrics: Sequence[Measured], seconds: float) -> None:
    """Write what was measured."""
    file.write(json.dumps(document(target, metrics, seconds)).encode() + b"\n")
