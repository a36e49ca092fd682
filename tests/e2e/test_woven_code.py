"""The code that is woven for probes, as it can be read, and what it is said to cost."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.toolchain import compile_program
from weft._native import Target

COUNTER = "counter calls\ncalls += 1"
HISTOGRAM = """
histogram took log2; mark began
at entry { stamp began }
at exit { took << since(began) }
"""
CPU_TIMER = "timer busy cpu\nat entry { start busy }\nat exit { stop busy }"

CALLS = 20_000
ROUNDS = 200


class Hot:
    """A program that calls ``tiny`` as often as it is told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process
        self._line()

    def best(self, calls: int) -> float:
        """Return the nanoseconds of a call in the best of several rounds."""
        return min(self._time(calls) for _ in range(ROUNDS)) / calls

    def _time(self, calls: int) -> int:
        assert self._process.stdin
        print(calls, file=self._process.stdin, flush=True)
        return int(self._line())

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("hot.c", tmp_path_factory.mktemp("hot") / "hot", "-O2", "-pthread")


@pytest.fixture
def hot(path: Path) -> Iterator[Hot]:
    with subprocess.Popen(
        [path, "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Hot(process)
        finally:
            process.kill()


def insert(target: Target, session: weft.Session, snippet: str, *kinds: weft.PointKind) -> int:
    points = [point for kind in kinds for point in session.points("/Code/hot/tiny", kind)]
    number = target.insert(
        snippet,
        [point.kind for point in points],
        [point.address for point in points],
        [point.target for point in points],
        False,
    )
    assert target.probe_refused(number) == []
    return number


def test_the_listing_of_a_counter(hot: Hot) -> None:
    with weft.attach(hot.pid) as session:
        target = session._target
        (point,) = session.points("/Code/hot/tiny")
        old = session.read(point.address, 5)
        number = insert(target, session, COUNTER, "entry")
        new = session.read(point.address, 5)
        listing = target.probe_asm(number)
        lines = [line.strip() for line in listing.splitlines()]
        assert lines[0] == f"function {point.address:#x}"
        assert lines[1] == f"{point.address:#x}: {old.hex(' ')} -> {new.hex(' ')}"
        assert re.fullmatch(rf"{point.address:#x}  {new.hex(' ')} +jmp 0x[0-9a-f]+", lines[2])
        # What is shown as the snippet's is, and the copies are not.
        _, _, after = listing.partition(f"snippet at entry {point.address:#x}\n")
        snippet, _, after = after.partition("copy of")
        assert re.search(r" (inc|add) qword", snippet)
        assert "lea rax" not in snippet
        assert re.match(rf" {point.address:#x}\n.* lea rax,\[rdi\+", after)
        assert "qword" not in after.partition("rarely run")[0]
        # All of it is as it is in the target's memory.
        shown = re.findall(r"^ {6}(0x[0-9a-f]+)  ((?:[0-9a-f]{2} )+) ", listing, re.MULTILINE)
        assert len(shown) > 5
        for address, digits in shown:
            code = bytes.fromhex(digits)
            assert session.read(int(address, 16), len(code)) == code
        target.remove_probes([number])
        assert target.probe_asm(number) == ""
        with pytest.raises(weft.errors.InvalidArgument, match="there is no probe 99"):
            target.probe_asm(99)


def test_the_listing_tells_probes_apart(hot: Hot) -> None:
    with weft.attach(hot.pid) as session:
        target = session._target
        one = insert(target, session, COUNTER, "entry")
        other = insert(target, session, "counter n\nn += 7", "entry", "exit")
        for number, snippets, others in ((one, 1, 2), (other, 2, 1)):
            listing = target.probe_asm(number)
            assert len(re.findall(r"snippet at (?:entry|exit) \w+\n", listing)) == snippets
            assert len(re.findall(r"snippet of another probe at \w+\n", listing)) == others
        assert re.search(r"snippet at exit .*\n(.*\n)*?.*\bcopy of .*\n.* ret\b", listing)


def test_predicted_costs(hot: Hot) -> None:
    native = hot.best(CALLS)
    predicted = []
    both: tuple[weft.PointKind, ...] = ("entry", "exit")
    with weft.attach(hot.pid) as session:
        target = session._target
        for snippet, kinds, calls in [
            (COUNTER, both[:1], CALLS),
            (HISTOGRAM, both, CALLS // 10),
            (CPU_TIMER, both, CALLS // 100),
        ]:
            number = insert(target, session, snippet, *kinds)
            cost = target.probe_cost(number)
            woven = hot.best(calls)
            target.remove_probes([number])
            assert target.probe_cost(number) == 0
            # Before and after: a machine that others use is slower at times.
            native = min(native, hot.best(CALLS))
            measured = (woven - native) / len(kinds)
            # What takes a nanosecond or two the processor may do beside the program's own work, and
            # did perhaps not when its price was found.
            assert measured / 3 < cost < measured * 3 + 8, snippet
            predicted.append(cost)
    assert predicted == sorted(predicted)


def test_costs_before_anything_is_woven() -> None:
    counter = Target.snippet_cost(COUNTER)
    between = {"block", "edge", "insn", "load", "store"}
    assert set(counter) == {"entry", "exit", "call", "after"} | between
    assert 0.5 < counter["entry"] < counter["block"] < 20
    timer = Target.snippet_cost(CPU_TIMER)
    assert set(timer) == {"entry", "exit"}
    assert min(timer.values()) > max(counter.values())
    assert set(Target.snippet_cost("counter n\nn += arg(0)")) == {"entry", "call"}
    with pytest.raises(weft.errors.BadSnippet):
        Target.snippet_cost("count n")
