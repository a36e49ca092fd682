"""Metrics of one target: what is woven for them, who needs it, and reading it.

A request for a metric and a focus is lowered to instruments. Those that are woven already are used
again; what nobody needs any more is taken out.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from weft import _native
from weft.errors import InvalidArgument, LimitReached, TargetError
from weft.mdl import ast
from weft.mdl.loader import Library, load
from weft.mdl.lower import Focus, Instrument, Key, Plan, Weaving, lower
from weft.metrics import kernel
from weft.metrics.budget import HITS, Budget, Sampling
from weft.metrics.metric import Metric, Reading
from weft.metrics.program import TargetProgram
from weft.probes import Point, PointKind, Probe

if TYPE_CHECKING:
    from weft.session import Session

__all__ = ["Engine", "Node"]

_Item: TypeAlias = "tuple[int, str, list[PointKind], list[int], list[int], bool]"
"""What the compiled core takes of a probe."""

_LOOK_AGAIN = 0.2
"""How long at least between two looks at what is loaded, in seconds."""


@dataclass
class Node:
    """An instrument that is woven, and how many need it."""

    instrument: Instrument
    probes: list[Probe]
    needs: list[Node] = field(default_factory=list)
    users: int = 0
    is_on: bool = True
    gaps: list[Sampling] = field(default_factory=list)
    """Times that are over, in which it was not measured all the time."""
    has_hits: bool = False
    known: dict[int, set[Point]] = field(init=False)
    """Where it is, by the place in its definition."""

    def __post_init__(self) -> None:
        self.known = _places(self.instrument)

    @property
    def can_be_sampled(self) -> bool:
        """Whether what is measured in moments says something about the rest.

        A timer that is running when it is taken out would never stop, a predicate would miss that
        its function was entered; and where one event belongs to another, as the end of something to
        its beginning or what is freed to what was allocated, one of them may be missed.
        """
        first, *others = self.instrument.declarations
        is_paired = any(text.startswith("local") for text in others) or any(
            f"{first.split()[1]} -= " in weaving.body for weaving in self.instrument.weavings
        )
        kinds = ("counter", "map", "histogram")
        return first.startswith(kinds) and not self.needs and not is_paired

    @property
    def number(self) -> int:
        """The probe that has the data."""
        return self.probes[0].numbers[0]

    def take(self, target: _native.Target, number: int, weaving: Weaving) -> None:
        """Count a probe that was woven later as one of its own."""
        if _is_by_point(self.instrument.declarations[0]):
            self.probes[0]._grow(target, number, weaving.points, ())
        else:
            self.probes.append(Probe(target, number, weaving.points))
        if not self.is_on:
            target.set_probe_enabled(number, False)

    def cost(self, target: _native.Target) -> float:
        """Predicted nanoseconds of one hit."""
        return max(target.probe_cost(number) for probe in self.probes for number in probe.numbers)


class Engine:
    """The metrics of a session; made when the first is asked for."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._sources: list[str | Path] = [*library_files()]
        self._known = Library()
        """What has been read of the library."""
        self.metrics: list[Metric] = []
        self._nodes: dict[Key, Node] = {}
        """The newest of each key."""
        self._sampler: _native.Sampler | None = None
        self._readings: list[Reading] = []
        self._others: list[Metric] = []
        self._lists: dict[str, ast.ListDefinition] = {}
        self._budget: Budget | None = None
        self._mapped: frozenset[str] = frozenset()
        self._looked = 0.0
        self.lock = threading.RLock()

    @cached_property
    def library(self) -> Library:
        """The definitions that metrics are taken from."""
        self._known = load(*self._sources)
        return self._known

    def definition(self, name: str) -> ast.Metric:
        """Return the definition of a metric; only the file that has it is read."""
        is_whole = "library" in self.__dict__
        if name not in self._known.metrics and not is_whole:
            begin = re.compile(rf"^metric {re.escape(name)} ", re.MULTILINE)
            for file in self._sources:
                if isinstance(file, Path) and begin.search(file.read_text()):
                    self._known = self._known.plus(load(file))
        metric = self._known.metrics.get(name) or self.library.metrics.get(name)
        if metric is None:
            raise unknown_metric(name, self.library)
        return metric

    def load(self, *sources: str | Path) -> None:
        """Add definitions of files or texts."""
        if sources:
            self.__dict__["library"] = self._known = load(*self._sources, *sources)
            self._sources += sources

    def define(self, lists: Iterable[ast.ListDefinition]) -> None:
        """Add lists that one-liners use."""
        self._lists.update({one.name: one for one in lists})

    @cached_property
    def program(self) -> TargetProgram:
        """The target's functions as they were at the last look at what is loaded."""
        return TargetProgram(self.session)

    @property
    def target(self) -> _native.Target:
        """The compiled core's side of the session."""
        return self.session._target

    def request(self, name: str, focus: str = "", *, by_function: bool = False) -> Metric:
        """Begin to measure a metric of the library."""
        return self.request_all([(self.definition(name), focus)], by_function=by_function)[0]

    def request_all(
        self, wanted: Sequence[tuple[ast.Metric, str]], *, by_function: bool = False
    ) -> list[Metric]:
        """Begin to measure several metrics, all woven in one stop of the target."""
        with self.lock:
            self.refresh()
            plans = [self.plan(metric, focus, by_function=by_function) for metric, focus in wanted]
            return self._request(wanted, plans)

    def _request(
        self, wanted: Sequence[tuple[ast.Metric, str]], plans: Sequence[Plan | None]
    ) -> list[Metric]:
        nodes = self._weave([plan for plan in plans if plan is not None])
        rest = iter(nodes)
        try:
            made = [
                Metric(self, definition, Focus.parse(focus), plan, next(rest) if plan else None)
                for (definition, focus), plan in zip(wanted, plans, strict=True)
            ]
        except BaseException:
            self._release_all(nodes)
            raise
        self.metrics += made
        self.forget_sampler()
        return made

    def keep_within(self, share: float) -> None:
        """Keep what the target loses below a part of its time, for all metrics asked for later."""
        self._budget = Budget(self, share)

    @property
    def overhead(self) -> float | None:
        """What the target loses at the moment, from 0 to 1; not known without a budget."""
        return None if self._budget is None else self._budget.overhead

    def nodes(self) -> list[Node]:
        """The instruments that count how often they are hit."""
        return [node for node in self._all_nodes() if node.has_hits]

    def _all_nodes(self) -> list[Node]:
        """All that is woven, predicates before what uses them."""
        bases = {id(metric.node): metric.node for metric in self.metrics if metric.node}
        needed = {id(node): node for base in bases.values() for node in base.needs}
        return [*needed.values(), *bases.values()]

    def forget_sampler(self) -> None:
        """What is read at each sample has changed."""
        self._sampler = None

    def plan(
        self, metric: ast.Metric, focus_text: str, *, by_function: bool = False
    ) -> Plan | None:
        """Say what a metric needs; nothing is woven. The kernel's counters need nothing."""
        focus = Focus.parse(focus_text)
        if metric.base.process:
            if metric.base.process not in kernel.COUNTED:
                raise InvalidArgument(
                    f"the kernel does not count {metric.base.process}",
                    f"it counts {', '.join(kernel.COUNTED)}",
                )
            if focus.parts:
                raise InvalidArgument(f"{metric.name} is known for the whole process only")
            return None
        lists, constraints = {**self._known.lists, **self._lists}, self._known.constraints
        return lower(metric, focus, self.program, lists, constraints, by_function=by_function)

    def snippets(self, plan: Plan) -> list[tuple[Weaving, str]]:
        """What would be woven for a plan, and the text of each snippet."""
        found = []
        for instrument in (*plan.predicates, plan.base):
            imports = [declaration for _, declaration in instrument.imports]
            for weaving in instrument.weavings:
                text = "\n".join([*imports, *instrument.declarations, weaving.body])
                found.append((weaving, text))
        return found

    def _weave(self, plans: Sequence[Plan]) -> list[Node]:
        """Weave what is not woven yet; return the node of each plan, which has one more user."""
        try:
            return self._insert(plans, self._nodes)
        except (LimitReached, InvalidArgument) as error:
            # What uses a predicate must measure into the same memory, and that may be full; two
            # predicates may be in different memory. Then they are woven once more.
            new = (plan for plan in plans if plan.base.key not in self._nodes)
            shared = {one.key for plan in new for one in plan.predicates} & self._nodes.keys()
            is_too_much = isinstance(error, LimitReached) and len(plans) > 1
            if not shared and not is_too_much:
                raise
        if shared:
            others = self._nodes.copy()
            for key in shared:
                del others[key]
            try:
                return self._insert(plans, others)
            except LimitReached:
                if len(plans) == 1:
                    raise
        # It is too much for one piece of memory.
        half = len(plans) // 2
        first = self._weave(plans[:half])
        try:
            return first + self._weave(plans[half:])
        except BaseException:
            self._release_all(first)
            raise

    def _insert(self, plans: Sequence[Plan], known: dict[Key, Node]) -> list[Node]:
        """Weave plans as far as their instruments are not known, predicates before their users.

        From then on, what is new is what others with the same key find.
        """
        new: dict[Key, Instrument] = {}
        for plan in plans:
            if plan.base.key not in known:
                new.update({one.key: one for one in plan.predicates if one.key not in known})
                new[plan.base.key] = plan.base
        # Where there is a budget, one must know how often each is hit.
        has_hits = self._budget is not None
        numbers = iter(self.target.reserve_probes(sum(len(one.weavings) for one in new.values())))
        items: list[_Item] = []
        woven: dict[Key, list[int]] = {}
        for key, instrument in new.items():
            own = woven[key] = [next(numbers) for _ in instrument.weavings]
            imported = [
                woven[other][0] if other in woven else known[other].number
                for other, _ in instrument.imports
            ]
            for number, weaving in zip(own, instrument.weavings, strict=True):
                owner = None if number == own[0] else own[0]
                items.append(_item(number, instrument, weaving, owner, imported, has_hits))
        if items:
            self.target.insert_many(items)
        nodes = known.copy()
        for key, instrument in new.items():
            probes = [
                Probe(self.target, number, weaving.points)
                for number, weaving in zip(woven[key], instrument.weavings, strict=True)
            ]
            needs = [nodes[other] for other, _ in instrument.imports]
            for predicate in needs:
                predicate.users += 1
            nodes[key] = self._nodes[key] = Node(instrument, probes, needs, has_hits=has_hits)
        bases = [nodes[plan.base.key] for plan in plans]
        for base in bases:
            base.users += 1
        return bases

    def refresh(self) -> list[Point]:
        """Weave what is measured into libraries that have come since, and return the new points.

        Values go on. It is done at each sample, so one needs it only to be sure of a moment. What
        a library does before is not measured; nor is one that only a forked child has loaded.
        """
        with self.lock:
            self._looked = time.monotonic()
            mapped = _mapped_code(self.session.pid)
            if not mapped or mapped == self._mapped:
                return []
            self._mapped = mapped
            self.__dict__.pop("program", None)
            if not self._nodes or not self.target.is_current():
                return []
            return self._grow()

    def _grow(self) -> list[Point]:
        """Weave every instrument at the points that it has now and had not before."""
        fresh: list[tuple[Node, Weaving]] = []
        now = self._lowered_again()
        for node in self._all_nodes():
            instrument = now.get(node.instrument.key)
            for weaving in instrument.weavings if instrument else ():
                known = node.known.get(weaving.place, set())
                points = tuple(point for point in weaving.points if point not in known)
                if points:
                    fresh.append((node, replace(weaving, points=points)))
            # What was unloaded may come back at the same place.
            node.known = _places(instrument) if instrument else {}
        numbers = self.target.reserve_probes(len(fresh))
        if fresh:
            self.target.insert_many(
                [
                    _item(
                        number,
                        node.instrument,
                        weaving,
                        node.number,
                        [one.number for one in node.needs],
                        node.has_hits,
                    )
                    for number, (node, weaving) in zip(numbers, fresh, strict=True)
                ]
            )
        for number, (node, weaving) in zip(numbers, fresh, strict=True):
            node.take(self.target, number, weaving)
        for metric in self.metrics:
            metric.forget_paths()
        self.forget_sampler()
        return [point for _, weaving in fresh for point in weaving.points]

    def _lowered_again(self) -> dict[Key, Instrument]:
        """The instruments of all metrics, as they are with the modules that there are now."""
        found: dict[Key, Instrument] = {}
        for metric in self.metrics:
            # What a metric was narrowed to may have been unloaded.
            with suppress(InvalidArgument):
                if plan := metric.plan_again():
                    found.update({one.key: one for one in (*plan.predicates, plan.base)})
        return found

    def forget(self, metric: Metric) -> None:
        """Take out what a metric needed and no other does."""
        with self.lock:
            self.metrics.remove(metric)
            self.forget_sampler()
            if metric.node is not None:
                self._release(metric.node)

    def _release_all(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._release(node)

    def _release(self, node: Node) -> None:
        node.users -= 1
        if node.users:
            return
        if self._nodes.get(node.instrument.key) is node:
            del self._nodes[node.instrument.key]
        for probe in node.probes:
            probe.remove()
        self._release_all(node.needs)
        for probe in reversed(node.probes):
            for number in probe.numbers:
                # What was in a library that has gone is kept by the core: it may come back.
                with suppress(InvalidArgument):
                    self.target.discard_probe(number)

    def sample(self) -> float:
        """Note the value of every metric, and return the time of it, in seconds since 1970."""
        with self.lock:
            return self._sample()

    def _sample(self) -> float:
        if time.monotonic() - self._looked >= _LOOK_AGAIN:
            # Where the target has just ended, its last values are still to be had.
            with suppress(TargetError):
                self.refresh()
        if self._sampler is None:
            simple = [metric for metric in self.metrics if metric.is_simple]
            self._readings = [metric.reading() for metric in simple]
            self._others = [metric for metric in self.metrics if not metric.is_simple]
            self._sampler = _native.Sampler(
                self.target,
                [(metric.node.number, metric.datum) for metric in simple if metric.node],
            )
        now = time.time()
        numbers = self._sampler.read()
        place = 0
        for history, width, scale, first in self._readings:
            history.add(now, numbers[place] * scale - first)
            place += width
        for metric in self._others:
            metric.note_value(now)
        return now

    def close(self) -> None:
        """Keep the last values, for the session ends."""
        if self._budget is not None:
            self._budget.close()
        for metric in self.metrics:
            metric.freeze()


def _item(
    number: int,
    instrument: Instrument,
    weaving: Weaving,
    owner: int | None,
    imported: Iterable[int],
    has_hits: bool,
) -> _Item:
    """What the compiled core is told of a weaving.

    ``owner`` is the probe that has the data of the instrument, if it is another; ``imported`` are
    those that have the data of other instruments.
    """
    imports = [
        f"{text} of {other}" for (_, text), other in zip(instrument.imports, imported, strict=True)
    ]
    declared = [*instrument.declarations, *([f"counter {HITS} shared"] if has_hits else [])]
    data = [
        text if owner is None or _is_by_point(text) else f"{text} of {owner}" for text in declared
    ]
    count_hit = [f"{HITS} += 1"] if has_hits else []
    return (
        number,
        "\n".join([*imports, *data, *count_hit, weaving.body]),
        [point.kind for point in weaving.points],
        [point.address for point in weaving.points],
        [point.target for point in weaving.points],
        weaving.order == "prepend",
    )


def _is_by_point(declaration: str) -> bool:
    """Whether a datum is one for each point, so that probes cannot share it."""
    return declaration.startswith("counter ") and not declaration.endswith(" shared")


def _places(instrument: Instrument) -> dict[int, set[Point]]:
    places: dict[int, set[Point]] = {}
    for weaving in instrument.weavings:
        places.setdefault(weaving.place, set()).update(weaving.points)
    return places


def _mapped_code(pid: int) -> frozenset[str]:
    """The files that a process has code of, and where; nothing when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(
        line for line in lines if " r-xp " in line and "/" in line and "/memfd:weft" not in line
    )


def unknown_metric(name: str, library: Library) -> InvalidArgument:
    """Say that there is no such metric, and which one may be meant."""
    from difflib import get_close_matches

    close = get_close_matches(name, library.metrics, 1)
    meant = f"did you mean {close[0]}? " if close else ""
    return InvalidArgument(
        f"there is no metric {name}", advice=f"{meant}`weft metrics` lists what there is"
    )


def library_files() -> list[Path]:
    """The files of the metrics that come with weft."""
    return sorted(Path(__file__).parent.glob("library/*.mdl"))
