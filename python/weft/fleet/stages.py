"""Stages of a request: a few hosts first, and all only when these could take it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from weft.errors import InvalidArgument

__all__ = ["Stage"]

_PART = re.compile(r"(?P<count>[1-9][0-9]{0,8})|(?P<share>[0-9]{1,2}(?:\.[0-9]{1,3})?)%")
_MOST = 20


@dataclass(frozen=True)
class Stage:
    """How many hosts are asked: so many, or a part of all, but one at least."""

    count: int = 1
    share: float = 0.0

    @classmethod
    def parse(cls, text: str) -> list[Stage]:
        """Read ``1 then 10% then all``; all follow in any case."""
        parts = [part.strip() for part in re.split(r"\bthen\b", text)]
        if parts[-1] == "all":
            parts.pop()
        found = [_PART.fullmatch(part) for part in parts]
        if not all(found) or len(parts) > _MOST:
            raise InvalidArgument(
                f"{text!r} are no stages",
                "each is a number of hosts, or a percentage of them",
                "write them like: 1 then 10% then all",
            )
        return [
            cls(int(one["count"])) if one["count"] else cls(1, float(one["share"]) / 100)
            for one in found
            if one
        ]

    def of(self, names: Sequence[str]) -> list[str]:
        """The hosts of this stage, which the next has as well if it has more."""
        return [*names[: max(self.count, math.ceil(self.share * len(names)))]]
