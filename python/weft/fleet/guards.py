"""Guards: what the values of each host have to be, or a request ends on all of them.

``latency.p99@processCommand < 2ms``: a metric of the request, of a distribution one of its numbers,
a comparison, and a limit. Values are those since the host has begun.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from weft.base.numbers import exact, printable, quantity
from weft.errors import InvalidArgument
from weft.fleet.folding import Series, SeriesKey
from weft.model.measured import Value
from weft.model.values import Histogram

__all__ = ["Guard"]

_GUARD = re.compile(
    r"\s*(?P<what>\S.*?)\s*(?P<sign><=|>=|<|>)\s*"
    r"(?P<number>[0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(?P<unit>[a-z]*)\s*"
)
_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TIMES = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_NUMBER_OF = re.compile(r"(?P<metric>.+)\.(?P<number>p[0-9]{1,6}|mean|count)")


@dataclass(frozen=True)
class Guard:
    """A comparison that has been read."""

    text: str
    key: SeriesKey
    number: str
    """Which number of a distribution: ``p99``, ``mean``, ``count``; empty for what is a number."""
    sign: str
    limit: float
    """In nanoseconds if it is a time."""
    is_time: bool

    @classmethod
    def parse(cls, text: str, asked: Collection[SeriesKey]) -> Guard:
        """Read one, of a request that asks for these metrics."""
        found = _GUARD.fullmatch(text)
        if found is None or (found["unit"] and found["unit"] not in _TIMES):
            raise InvalidArgument(
                f"{printable(text)!r} is no guard",
                "it compares a metric of the request with a number, or with a time",
                "write it like: latency.p99@processCommand < 2ms",
            )
        name, _, focus = found["what"].partition("@")
        part = _NUMBER_OF.fullmatch(name)
        metric, number = (part["metric"], part["number"]) if part else (name, "")
        if (metric, focus) not in asked:
            known = ", ".join(f"{one}@{where}" if where else one for one, where in asked)
            raise InvalidArgument(
                f"the guard {printable(text)!r} is about what is not measured",
                f"the request measures {printable(known)}",
                "add it: -m METRIC@FOCUS",
            )
        limit = float(found["number"]) * _TIMES.get(found["unit"], 1.0)
        return cls(text.strip(), (metric, focus), number, found["sign"], limit, bool(found["unit"]))

    def violation(self, series: Iterable[Series]) -> str:
        """What speaks against the values of a host; empty if nothing does, or there are none."""
        for one in series:
            if one.key == self.key:
                return self._against(one)
        return ""

    def _against(self, series: Series) -> str:
        value = series.value
        if value is None:
            return ""
        if isinstance(value, Histogram):
            if not self.number:
                return self._senseless("it is a distribution: say which number, such as .p99")
            is_time = series.unit == "ns" and self.number != "count"
            if not value.count and self.number != "count":
                return ""
        elif self.number:
            return self._senseless(f"it is no distribution, and has no {self.number}")
        else:
            is_time = series.unit == "ns"
        if is_time != self.is_time:
            unit = "a time: ns, us, ms or s" if is_time else "no time"
            return self._senseless(f"it is {unit}")
        found = self._number(value)
        if _SIGNS[self.sign](found, self.limit):
            return ""
        shown = quantity(found / 1e9, "s") if is_time else exact(found)
        return f"{self.text} is violated: it is {shown}"

    def _number(self, value: Value) -> float:
        if isinstance(value, Histogram):
            if self.number == "mean":
                return value.mean
            is_count = self.number == "count"
            return value.count if is_count else value.quantile(float(f"0.{self.number[1:]}"))
        return sum(value.values()) if isinstance(value, dict) else value

    def _senseless(self, why: str) -> str:
        return f"{self.text} cannot be decided: {why}"
