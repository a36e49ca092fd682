"""What a front end refuses before a host is asked."""

from __future__ import annotations

from typing import Any

import pytest

from weft.errors import InvalidArgument
from weft.fleet.defining import check_metrics
from weft.fleet.front import AsyncFleet
from weft.fleet.protocol import Ask, Request
from weft.fleet.texts import read


def request(*metrics: str, **more: Any) -> Request:
    return Request("r", "tests", tuple(map(Ask, metrics)), "*", 10.0, **more)


@pytest.mark.parametrize(
    ("name", "meant"), [("latnecy", "did you mean latency?"), ("zzqq", "`weft metrics` lists")]
)
def test_a_metric_that_nothing_defines_is_refused(name: str, meant: str) -> None:
    asked = request("calls", name)
    with pytest.raises(InvalidArgument, match=f"there is no metric {name}") as refused:
        check_metrics(asked, read(asked))
    assert meant in refused.value.advice


def test_metrics_of_weft_and_of_the_request_are_known() -> None:
    text = """metric mine {
      units calls;
      base is counter { foreach func in $focus.funcs append preInsn func.entry (* mine++; *) }
    }"""
    asked = request("calls", "latency", "mine", texts=(text,))
    check_metrics(asked, read(asked))
    with pytest.raises(InvalidArgument, match="did you mean mine"):
        asked = request("mime", texts=(text,))
        check_metrics(asked, read(asked))


def test_a_text_alone_is_not_its_characters() -> None:
    asked = AsyncFleet("nats://127.0.0.1").request("calls", probes="entry malloc { n++ }")
    assert asked.probes == ("entry malloc { n++ }",)


@pytest.mark.parametrize("more", [{"seconds": -1}, {"seconds": float("nan")}, {"interval": 0}])
def test_times_that_make_no_sense_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="cannot be asked"):
        AsyncFleet("nats://127.0.0.1").request("calls", **more)
