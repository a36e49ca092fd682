"""Metrics share what is woven for them, as far as there is room, and leave nothing of it behind."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import weft
from tests.e2e.test_probes import needs_weaver
from tests.lockstep import Lockstep, lockstep
from weft import errors
from weft.mdl import lower
from weft.metrics.metric import Metric

Build = Callable[[str], Path]

pytestmark = needs_weaver

MAPS = 24
"""More than there is room for where the first of them measures."""


@pytest.fixture
def counts(build: Build) -> Iterator[tuple[Lockstep, weft.Session]]:
    with lockstep(build("counts"), 4) as program, weft.attach(program.pid) as session:
        yield program, session


def definition(name: str, kind: str, code: str, place: str = "targets.entry") -> str:
    return (
        f"metric {name} {{ constraint procedure; constraint module; base is {kind} {{\n"
        f"append preInsn {place} constrained (* {code} *) }} }}\n"
    )


def define(session: weft.Session, *definitions: str) -> None:
    head = 'import "constraints.mdl";\nlist targets is procedure { items { "rare" }; }\n'
    session.load_metrics(head + "".join(definitions))


def state(session: weft.Session) -> tuple[object, ...]:
    """Return everything that metrics have of a session."""
    engine = session.metrics
    nodes = {key: (node, node.users, list(node.needs)) for key, node in engine._nodes.items()}
    return nodes, list(engine.metrics), woven(session)


def woven(session: weft.Session) -> int:
    """Return how many of the first thousand probes there are."""
    return sum(exists(session, number) for number in range(1000))


def exists(session: weft.Session, number: int) -> bool:
    try:
        session._target.probe_data(number)
    except errors.InvalidArgument:
        return False
    return True


def maps(session: weft.Session, more: str = "") -> list[str]:
    names = [f"by_argument_{number}" for number in range(MAPS)]
    texts = (definition(name, "map[x]", f"{name}[$arg[0] & 255]++;") for name in names)
    define(session, *texts, more)
    return names


@pytest.mark.parametrize("at_once", [False, True])
def test_many_maps_of_one_procedure(
    counts: tuple[Lockstep, weft.Session], at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, session = counts
    if at_once:
        # All of them are too much for one piece of memory.
        monkeypatch.setattr(lower, "MAP_CAPACITY", 1 << 16)
    names, focus = maps(session), "/Code/counts/hot_cold"
    before = state(session)
    engine = session.metrics
    if at_once:
        library = engine.library.metrics
        metrics = engine.request_all([(library[name], focus) for name in names])
    else:
        metrics = [session.metric(name, focus) for name in names]
    predicates = {id(node) for metric in metrics if metric.node for node in metric.node.needs}
    # Not one for each, and not one for all.
    assert 1 < len(predicates) < MAPS / 2
    truth = program.batch(200)["rare"]
    for metric in metrics:
        value = metric.value
        assert isinstance(value, dict)
        assert sum(value.values()) == truth
    # The same is the same, wherever it is.
    again = [session.metric(name, focus) for name in names]
    assert [one.node for one in again] == [one.node for one in metrics]
    for metric in (*metrics[::2], *again, *metrics[1::2]):
        metric.remove()
    assert state(session) == before


TWO_PREDICATES = """
list callers is procedure { items { "hot_cold" }; }
constraint selected /Selected is counter {
  append preInsn callers.entry (* selected = 1; *)
  prepend preInsn callers.return (* selected = 0; *)
}
metric one {
  constraint selected;
  base is counter { append preInsn targets.entry constrained (* one++; *) }
}
metric both {
  constraint selected;
  constraint procedure;
  base is counter { append preInsn targets.entry constrained (* both++; *) }
}
"""


def test_predicates_of_different_memory(counts: tuple[Lockstep, weft.Session]) -> None:
    program, session = counts
    names = maps(session, TWO_PREDICATES)
    first = session.metric("one", "/Selected/it")
    others = [session.metric(name, "/Code/counts/hot_cold") for name in names]
    both = session.metric("both", "/Code/counts/hot_cold,/Selected/it")
    truth = program.batch(100)["rare"]
    assert (first.value, both.value) == (truth, truth)
    for metric in (first, both, *others):
        metric.remove()
    assert not session.metrics._nodes


UNWOVEN = [
    pytest.param("calls", "/Code/counts/nowhere", errors.InvalidArgument, id="no such function"),
    pytest.param("calls", "/Nothing/at/all", errors.InvalidArgument, id="no such hierarchy"),
    pytest.param("syscalls", "Code", errors.InvalidArgument, id="no focus"),
    pytest.param("counter", "/Code/counts/tiny", errors.WeftError, id="a name that is taken"),
]


@pytest.mark.parametrize(("name", "focus", "error"), UNWOVEN)
def test_one_that_fails_leaves_nothing_of_the_others(
    counts: tuple[Lockstep, weft.Session], name: str, focus: str, error: type[Exception]
) -> None:
    program, session = counts
    define(session, definition("counter", "counter", "counter++;", "$focus.entry"))
    kept = session.metric("syscalls", "/Code/counts/tiny")
    before = state(session)
    library = session.metrics.library.metrics
    wanted = [("calls", "/Code/counts/normal"), ("syscalls", "/Code/counts/tiny"), (name, focus)]
    with pytest.raises(error):
        session.metrics.request_all([(library[name], focus) for name, focus in wanted])
    assert state(session) == before
    program.batch(10)
    kept.remove()
    assert not session.metrics._nodes


FOCI = ["/Code/libc.so.6/s*", "/Code/libc.so.6/st*"]
"""Some hundred functions, and most of them again: two metrics that have nothing in common."""
WARM, CYCLES = 6, 30


@pytest.mark.parametrize("overlap", [False, True], ids=["one by one", "before the last has gone"])
def test_what_comes_and_goes_takes_no_more_and_more(
    counts: tuple[Lockstep, weft.Session], overlap: bool
) -> None:
    _, session = counts
    last: list[Metric] = []
    first = (0, 0)
    for cycle in range(WARM + CYCLES):
        metric = session.metric("calls", FOCI[cycle % 2])
        for old in last:
            old.remove()
        last = [metric]
        if not overlap:
            metric.remove()
        if cycle == WARM:
            first = burden()
    end = burden()
    assert end[0] <= first[0] + 64, "pages that are shared with the target"
    assert end[1] <= first[1] + 100, "objects"


def burden() -> tuple[int, int]:
    """Return the KiB that weft shares with targets, and how many blocks Python has."""
    gc.collect()
    shared = re.search(r"RssShmem:\s+(\d+)", Path("/proc/self/status").read_text())
    assert shared is not None
    return int(shared[1]), sys.getallocatedblocks()


def test_what_was_removed_is_not_kept(counts: tuple[Lockstep, weft.Session]) -> None:
    """Thousands of probes and metrics come and go in one session."""
    program, session = counts
    path = "/Code/counts/tiny"
    points = session.points(path)
    kept = session.insert(points, "counter n; n += 1")
    kept.remove()
    before = woven(session)
    for _ in range(300):
        for where in (path, points):
            session.insert(where, "counter n; n += 1").remove()
        session.metric("calls", path).remove()
        session.metric("inclusive_time", path).remove()
    gc.collect()
    last = session.insert(points, "counter n; n += 1")
    numbers = range(last.numbers[0] + 1)
    assert sum(exists(session, number) for number in numbers) == before + 1
    # What somebody still holds can be asked.
    assert kept.value() == 0
    counted = program.batch(10)
    assert last.value() == counted["tiny"]
