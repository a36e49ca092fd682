"""Why a program is slow, for programs."""

from __future__ import annotations

import json
from typing import BinaryIO

from weft.model.answers import Answers

__all__ = ["write"]


def write(file: BinaryIO, found: Answers) -> None:
    """Write it."""
    file.write(json.dumps({"schema": 1, **found.to_json()}, indent=2).encode() + b"\n")
